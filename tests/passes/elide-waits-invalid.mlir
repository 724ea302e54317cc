// RUN: headrace-opt %s -split-input-file -verify-diagnostics -headrace-elide-waits

// expected-error@+1 {{waits are elided in the movement phase, not in phase homes}}
headrace.iteration @homes decode phase(homes) limits(8, 8, 2048) {
}

// -----

headrace.iteration @no_lane decode phase(movement) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  // expected-error@+1 {{has no lane}}
  headrace.publish sampled(%meta) %meta step<head> : <512, bytes>, <512, bytes>
}

// -----

headrace.iteration @program decode phase(movement) limits(8, 8, 2048) {
  %a = headrace.weight 0 "a" qkv layer 0 : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<1024>
  %d, %t = headrace.prefetch %a[0 for 1000] into %slot[0] step<movement 0 on h2d> : <host, 1000, bf16>, slot<1024> -> <1000, bf16>
  // expected-error@+1 {{is in program order; insert the waits between lanes first}}
  headrace.wait %t : token
}
