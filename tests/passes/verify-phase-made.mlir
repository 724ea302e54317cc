// What MLIR's verifier would refuse, and a pipeline that runs without it must not play: one program for each rule.
// RUN: headrace-opt %s -split-input-file -verify-diagnostics -mlir-very-unsafe-disable-verifier-on-parsing -verify-each=false -headrace-verify-phase

headrace.iteration @before_it_is_made decode phase(movement) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %x = headrace.io sampled : <400, f32>
  %a = headrace.weight 0 "a" qkv layer 0 : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<1024>
  // expected-error@+1 {{uses operand 2 before it is made}}
  %y = headrace.norm qkv tokens(%meta) %x, %d[0 for 100] step<attention 0> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
  // expected-note@+1 {{made here}}
  %d, %t = headrace.prefetch %a[0 for 1000] into %slot[0] step<movement 0> : <host, 1000, bf16>, slot<1024> -> <1000, bf16>
  headrace.wait %t : token
  headrace.release %d : <1000, bf16>
}

// -----

headrace.iteration @waits_before decode phase(lanes) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  // expected-error@+1 {{uses operand 0 before it is made}}
  headrace.wait raw %y on h2d : <512, bytes>
  // expected-note@+1 {{made here}}
  %y = headrace.gather_rows sampled(%meta) %meta step<head on compute> : <512, bytes>, <512, bytes> -> <512, bytes>
}

// -----

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

headrace.iteration @never_brought decode phase(movement) limits(8, 8, 2048) {
  %a = headrace.weight 0 "a" qkv layer 0 : <1000, bf16>
  // expected-error@+1 {{takes a range that prefetch or carry brought}}
  headrace.carry_out %a : <1000, bf16>
}

// -----

headrace.iteration @given_up_at_home decode phase(movement) limits(8, 8, 2048) {
  %a = headrace.weight 0 "a" qkv layer 0 : <1000, bf16>
  // expected-error@+1 {{takes a range that prefetch or carry brought}}
  headrace.release %a : <1000, bf16>
}

// -----

headrace.iteration @waits_for_no_step decode phase(lanes) limits(8, 8, 2048) {
  %a = headrace.weight 0 "a" qkv layer 0 : <1000, bf16>
  // expected-error@+1 {{waits for something that no step of this iteration makes}}
  headrace.wait raw %a on h2d : <1000, bf16>
}

// -----

headrace.iteration @beyond_the_slot decode phase(movement) limits(8, 8, 2048) {
  %a = headrace.weight 0 "a" qkv layer 0 : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<1024>
  // expected-error@+1 {{puts 1000 bytes at 512 of a slot of 1024}}
  %d, %t = headrace.prefetch %a[0 for 1000] into %slot[512] step<movement 0> : <host, 1000, bf16>, slot<1024> -> <1000, bf16>
  headrace.release %d : <1000, bf16>
}
