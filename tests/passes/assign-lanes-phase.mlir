// RUN: headrace-opt %s -split-input-file -verify-diagnostics -headrace-assign-lanes

// expected-error@+1 {{lanes are assigned in the movement phase, not in phase homes}}
headrace.iteration @homes decode phase(homes) limits(8, 8, 2048) {
}

// -----

// expected-error@+1 {{lanes are assigned in the movement phase, not in phase lanes}}
headrace.iteration @lanes decode phase(lanes) limits(8, 8, 2048) {
}
