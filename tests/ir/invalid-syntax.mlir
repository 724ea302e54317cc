// What the parts of assembly that ODS leaves to us refuse (ir/Assembly.h).
// RUN: headrace-opt %s -split-input-file -verify-diagnostics

headrace.iteration @step decode phase(model) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  // expected-error@+1 {{expected embedding, attention, mlp, head or movement, got 'tail'}}
  headrace.publish sampled(%meta) %meta step<tail> : <512, bytes>, <512, bytes>
}

// -----

headrace.iteration @layer decode phase(model) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  // expected-error@+1 {{a layer must not be negative, got -1}}
  headrace.publish sampled(%meta) %meta step<head -1> : <512, bytes>, <512, bytes>
}

// -----

headrace.iteration @lane decode phase(model) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  // expected-error@+1 {{expected compute, h2d, d2h or cpu, got 'gpu'}}
  headrace.publish sampled(%meta) %meta step<head on gpu> : <512, bytes>, <512, bytes>
}

// -----

headrace.iteration @key decode phase(model) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  // expected-error@+1 {{expected direct, resizable, mini_batch, flops, device_bytes or link_bytes, got 'watts'}}
  headrace.publish sampled(%meta) %meta step<head, watts 300> : <512, bytes>, <512, bytes>
}

// -----

headrace.iteration @amount decode phase(model) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  // expected-error@+1 {{flops must not be negative, got -5}}
  headrace.publish sampled(%meta) %meta step<head, flops -5> : <512, bytes>, <512, bytes>
}

// -----

headrace.iteration @small decode phase(model) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  // expected-error@+1 {{mini_batch must be at most 255, got 256}}
  headrace.publish sampled(%meta) %meta step<head, mini_batch 256> : <512, bytes>, <512, bytes>
}

// -----

headrace.iteration @offset decode phase(model) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %unit = headrace.weight 0 "head" head : <1000, bf16>
  %x = headrace.weight 1 "embedding" embedding : <400, f32>
  // expected-error@+1 {{an offset must not be negative, got -4}}
  %n = headrace.norm head tokens(%meta) %x, %unit[-4 for 100] step<head> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
}

// -----

headrace.iteration @bytes decode phase(model) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %unit = headrace.weight 0 "head" head : <1000, bf16>
  %x = headrace.weight 1 "embedding" embedding : <400, f32>
  // expected-error@+1 {{a number of bytes must not be negative, got -100}}
  %n = headrace.norm head tokens(%meta) %x, %unit[0 for -100] step<head> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
}

// -----

headrace.iteration @address decode phase(model) limits(8, 8, 2048) {
  // expected-error@+1 {{an address must not be negative, got -256}}
  %meta = headrace.io meta at -256 : <512, bytes>
}

// -----

headrace.iteration @epilogue decode phase(model) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %unit = headrace.weight 0 "head" head : <1000, bf16>
  %x = headrace.weight 1 "embedding" embedding : <400, f32>
  // expected-error@+1 {{expected relu, gelu or gelu_tanh, got 'tanh'}}
  %y = headrace.linear head tokens(%meta) %x, %unit[0 for 100] then tanh step<head> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
}

// -----

headrace.iteration @role decode phase(model) limits(8, 8, 2048) {
  // expected-error@+1 {{expected embedding, qkv, out, up, down or head, got 'gate'}}
  %unit = headrace.weight 0 "layers.0.gate" gate layer 0 : <1000, bf16>
}

// -----

headrace.iteration @io decode phase(model) limits(8, 8, 2048) {
  // expected-error@+1 {{expected meta, sampled or output, got 'input'}}
  %meta = headrace.io input : <512, bytes>
}

// -----

headrace.iteration @kind decode phase(movement) limits(8, 8, 2048) {
  %unit = headrace.weight 0 "head" head : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<1000>
  %w, %t = headrace.prefetch %unit[0 for 1000] into %slot[0] step<movement> : <host, 1000, bf16>, slot<1000> -> <1000, bf16>
  // expected-error@+1 {{expected raw, war, waw or pacing, got 'rar'}}
  headrace.wait rar %t on compute : token
}

// -----

headrace.iteration @wait decode phase(movement) limits(8, 8, 2048) {
  %unit = headrace.weight 0 "head" head : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<1000>
  %w, %t = headrace.prefetch %unit[0 for 1000] into %slot[0] step<movement> : <host, 1000, bf16>, slot<1000> -> <1000, bf16>
  // expected-error@+1 {{expected compute, h2d, d2h or cpu, got 'gpu'}}
  headrace.wait raw %t on gpu : token
}

// -----

headrace.iteration @staging_of_what decode phase(homes) limits(8, 8, 2048) {
  // expected-error@+1 {{expected meta, qkv, attended or scratch, got 'rows'}}
  %rows = headrace.staging rows : <host, 400, f32>
}

// -----

// The generic form: a step of too few integers.
"headrace.iteration"() <{sym_name = "generic", iteration_class = 0 : i32, phase = 0 : i32, start_rule = 1 : i32, tokens = 8 : i64, sequences = 8 : i64, max_context = 8 : i64}> ({
  %meta = "headrace.io"() <{role = 0 : i32}> : () -> !headrace.buffer<device, 512, bytes>
  // expected-error@+1 {{expected an array of 9 integers in range}}
  "headrace.publish"(%meta, %meta) <{step = array<i64: 1, 2>}> : (!headrace.buffer<device, 512, bytes>, !headrace.buffer<device, 512, bytes>) -> ()
}) : () -> ()

// -----

// The generic form: a lane that there is not.
"headrace.iteration"() <{sym_name = "generic", iteration_class = 0 : i32, phase = 0 : i32, start_rule = 1 : i32, tokens = 8 : i64, sequences = 8 : i64, max_context = 8 : i64}> ({
  %meta = "headrace.io"() <{role = 0 : i32}> : () -> !headrace.buffer<device, 512, bytes>
  // expected-error@+1 {{expected an array of 9 integers in range}}
  "headrace.publish"(%meta, %meta) <{step = array<i64: -1, 3, 0, 4, 0, 0, 0, 0, 0>}> : (!headrace.buffer<device, 512, bytes>, !headrace.buffer<device, 512, bytes>) -> ()
}) : () -> ()
