// RUN: headrace-opt %s -split-input-file -verify-diagnostics -headrace-insert-waits

// expected-error@+1 {{waits are inserted in the movement phase, not in phase lanes}}
headrace.iteration @lanes decode phase(lanes) limits(8, 8, 2048) {
}

// -----

headrace.iteration @no_lane decode phase(movement) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  // expected-error@+1 {{has no lane; assign lanes before waits are inserted}}
  headrace.publish sampled(%meta) %meta step<head> : <512, bytes>, <512, bytes>
}
