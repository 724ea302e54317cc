// Programs that insert-movement cannot serve.
// RUN: headrace-opt %s -split-input-file -verify-diagnostics -headrace-insert-movement

headrace.iteration @kv decode phase(homes) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %kv = headrace.kv 0 tail : <host, 4096, bf16>
  // expected-error@+1 {{brings what nothing uses}}
  %d = headrace.on_device %kv : <host, 4096, bf16> -> <4096, bf16>
}

// -----

headrace.iteration @unused decode phase(homes) limits(8, 8, 2048) {
  %q0 = headrace.weight 0 "q0" qkv layer 0 : <host, 1000, bf16>
  // expected-error@+1 {{brings what nothing uses}}
  %d0 = headrace.on_device %q0 : <host, 1000, bf16> -> <1000, bf16>
}

// -----

headrace.iteration @no_layer decode phase(homes) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %x = headrace.io sampled : <400, f32>
  %q0 = headrace.weight 0 "q0" qkv layer 0 : <host, 1000, bf16>
  // expected-error@+1 {{brings a part of a layer that computes nothing}}
  %d0 = headrace.on_device %q0 : <host, 1000, bf16> -> <1000, bf16>
  %x0 = headrace.norm qkv tokens(%meta) %x, %d0[0 for 100] step<attention 7> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
}

// -----

// Two slots: layer 2's unit goes where layer 0's lies, which is used once more in the end.
// expected-error@+1 {{'q2' is used before its range is free}}
headrace.iteration @again decode phase(homes) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %x = headrace.io sampled : <400, f32>
  %q0 = headrace.weight 0 "q0" qkv layer 0 : <host, 1000, bf16>
  %q1 = headrace.weight 1 "q1" qkv layer 1 : <host, 1000, bf16>
  %q2 = headrace.weight 2 "q2" qkv layer 2 : <host, 1000, bf16>
  %q3 = headrace.weight 3 "q3" qkv layer 3 : <host, 1000, bf16>
  %d0 = headrace.on_device %q0 : <host, 1000, bf16> -> <1000, bf16>
  %x0 = headrace.norm qkv tokens(%meta) %x, %d0[0 for 100] step<attention 0> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
  %d1 = headrace.on_device %q1 : <host, 1000, bf16> -> <1000, bf16>
  %x1 = headrace.norm qkv tokens(%meta) %x0, %d1[0 for 100] step<attention 1> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
  %d2 = headrace.on_device %q2 : <host, 1000, bf16> -> <1000, bf16>
  %x2 = headrace.norm qkv tokens(%meta) %x1, %d2[0 for 100] step<attention 2> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
  %d3 = headrace.on_device %q3 : <host, 1000, bf16> -> <1000, bf16>
  %x3 = headrace.norm qkv tokens(%meta) %x2, %d3[0 for 100] step<attention 3> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
  %x4 = headrace.norm qkv tokens(%meta) %x3, %d0[0 for 100] step<attention 3> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
}
