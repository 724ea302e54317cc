// One program for each rule of the model and homes phases.
// RUN: headrace-opt %s -split-input-file -verify-diagnostics -headrace-verify-phase

headrace.iteration @weight_away decode phase(model) limits(8, 8, 2048) {
  // expected-error@+1 {{is at home off the device in phase model, before homes are chosen}}
  %a = headrace.weight 0 "a" embedding : <host, 1000, bf16>
}

// -----

headrace.iteration @kv_away decode phase(model) limits(8, 8, 2048) {
  // expected-error@+1 {{is at home off the device in phase model, before homes are chosen}}
  %kv = headrace.kv 0 : <host, 1000, bf16>
}

// -----

headrace.iteration @moves decode phase(homes) limits(8, 8, 2048) {
  %a = headrace.weight 0 "a" embedding : <host, 1000, bf16>
  // expected-error@+1 {{moves data in phase homes, before movement is inserted}}
  %slot = headrace.slot 0 : slot<1024>
}

// -----

headrace.iteration @waits decode phase(model) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %x = headrace.io sampled : <400, f32>
  %y = headrace.activate tokens(%meta) %x step<mlp 0> : <512, bytes>, <400, f32> -> <200, f32>
  // expected-error@+1 {{moves data in phase model, before movement is inserted}}
  headrace.wait %y : <200, f32>
}

// -----

headrace.iteration @on_device_left decode phase(movement) limits(8, 8, 2048) {
  %a = headrace.weight 0 "a" embedding : <host, 1000, bf16>
  // expected-error@+1 {{belongs to phase homes only, not to phase movement}}
  %d = headrace.on_device %a : <host, 1000, bf16> -> <1000, bf16>
}

// -----

// Legal in phase homes.
headrace.iteration @homes decode phase(homes) limits(8, 8, 2048) {
  %a = headrace.weight 0 "a" embedding : <host, 1000, bf16>
  %d = headrace.on_device %a : <host, 1000, bf16> -> <1000, bf16>
}
