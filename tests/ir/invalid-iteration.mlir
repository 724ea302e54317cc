// One program for each rule of an iteration as a whole.
// RUN: headrace-opt %s -split-input-file -verify-diagnostics

// expected-error@+1 {{has limits (0, 8, 2048): tokens, sequences and context must be at least 1}}
headrace.iteration @no_tokens decode phase(model) limits(0, 8, 2048) {
}

// -----

// expected-error@+1 {{has limits (0, 0, -1): tokens, sequences and context must be at least 0}}
headrace.iteration @negative transition phase(movement) limits(0, 0, -1) {
}

// -----

// expected-error@+1 {{has an arena of -256 bytes}}
headrace.iteration @arena decode phase(offsets) limits(8, 8, 2048) arena(-256) {
}

// -----

headrace.iteration @outer decode phase(model) limits(8, 8, 2048) {
  // expected-error@+1 {{expects parent op 'builtin.module'}}
  headrace.iteration @inner decode phase(model) limits(8, 8, 2048) {
  }
}

// -----

headrace.iteration @foreign decode phase(model) limits(8, 8, 2048) {
  // expected-error@+1 {{does not belong into a headrace.iteration}}
  builtin.module {
  }
}

// -----

headrace.iteration @same_unit decode phase(model) limits(8, 8, 2048) {
  // expected-note@+1 {{declared here}}
  %a = headrace.weight 3 "layers.0.up" up layer 0 : <1000, bf16>
  // expected-error@+1 {{declares a buffer that is there already}}
  %b = headrace.weight 3 "layers.0.down" down layer 0 : <1000, bf16>
}

// -----

headrace.iteration @same_kv decode phase(model) limits(8, 8, 2048) {
  // expected-note@+1 {{declared here}}
  %a = headrace.kv 3 : <1000, bf16>
  // expected-error@+1 {{declares a buffer that is there already}}
  %b = headrace.kv 3 : <1000, bf16>
}

// -----

headrace.iteration @same_io decode phase(model) limits(8, 8, 2048) {
  // expected-note@+1 {{declared here}}
  %a = headrace.io meta : <512, bytes>
  // expected-error@+1 {{declares a buffer that is there already}}
  %b = headrace.io meta : <512, bytes>
}

// -----

headrace.iteration @same_kv_of_a_mini_batch decode phase(model) limits(8, 8, 2048) {
  %other = headrace.kv 3 : <1000, bf16>
  // expected-note@+1 {{declared here}}
  %a = headrace.kv 3 mini_batch(1) : <1000, bf16>
  // expected-error@+1 {{declares a buffer that is there already}}
  %b = headrace.kv 3 mini_batch(1) : <1000, bf16>
}

// -----

headrace.iteration @same_io_of_a_mini_batch decode phase(model) limits(8, 8, 2048) {
  %other = headrace.io history : <512, bytes>
  // expected-note@+1 {{declared here}}
  %a = headrace.io history mini_batch(1) : <512, bytes>
  // expected-error@+1 {{declares a buffer that is there already}}
  %b = headrace.io history mini_batch(1) : <512, bytes>
}

// -----

headrace.iteration @same_slot decode phase(movement) limits(8, 8, 2048) {
  // expected-note@+1 {{declared here}}
  %a = headrace.slot 0 : slot<512>
  // expected-error@+1 {{declares a buffer that is there already}}
  %b = headrace.slot 0 : slot<1024>
}

// -----

// The residual stream is updated in place: its old version is gone.
headrace.iteration @old_version decode phase(model) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %sampled = headrace.io sampled : <32, bytes>
  %history = headrace.io history : <64, bytes>
  %unit = headrace.weight 0 "embedding" embedding : <1000, bf16>
  %x, %ids = headrace.embed tokens(%meta) %unit[0 for 1000], %sampled, %history step<embedding> : <512, bytes>, <1000, bf16>, <32, bytes>, <64, bytes> -> <400, f32>
  %n = headrace.norm head tokens(%meta) %x, %unit[0 for 100] step<head> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
  // expected-note@+1 {{updated here}}
  %y = headrace.linear head tokens(%meta) %n, %unit[0 for 100] onto %x step<head> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
  // expected-error@+1 {{uses a version of a buffer that 'headrace.linear' has updated in place}}
  %z = headrace.norm head tokens(%meta) %x, %unit[0 for 100] step<head> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
}

// -----

// An op cannot read what it updates through another operand.
headrace.iteration @read_and_updated decode phase(model) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %sampled = headrace.io sampled : <32, bytes>
  %history = headrace.io history : <64, bytes>
  %unit = headrace.weight 0 "embedding" embedding : <1000, bf16>
  %x, %ids = headrace.embed tokens(%meta) %unit[0 for 1000], %sampled, %history step<embedding> : <512, bytes>, <1000, bf16>, <32, bytes>, <64, bytes> -> <400, f32>
  // expected-error@+2 {{uses a version of a buffer that 'headrace.linear' has updated in place}}
  // expected-note@+1 {{updated here}}
  %y = headrace.linear head tokens(%meta) %x, %unit[0 for 100] onto %x step<head> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
}

// -----

headrace.iteration @computes transition phase(movement) limits(0, 0, 0) {
  %meta = headrace.io meta : <512, bytes>
  %x = headrace.weight 1 "embedding" embedding : <400, f32>
  // expected-error@+1 {{computes, in a transition, which only moves}}
  %y = headrace.gather_rows sampled(%meta) %x step<head> : <512, bytes>, <400, f32> -> <400, f32>
}
