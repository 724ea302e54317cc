// One program for each rule of the movement phase.
// RUN: headrace-opt %s -split-input-file -verify-diagnostics -headrace-verify-phase

headrace.iteration @no_wait decode phase(movement) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %x = headrace.io sampled : <400, f32>
  %a = headrace.weight 0 "a" qkv layer 0 : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<1024>
  %d, %t = headrace.prefetch %a[0 for 1000] into %slot[0] step<movement 0> : <host, 1000, bf16>, slot<1024> -> <1000, bf16>
  // expected-error@+1 {{uses a before its prefetch has been waited for}}
  %y = headrace.norm qkv tokens(%meta) %x, %d[0 for 100] step<attention 0> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
  headrace.wait %t : token
  headrace.release %d : <1000, bf16>
}

// -----

// Waiting for the first part says nothing about the second.
headrace.iteration @half_a_wait decode phase(movement) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %x = headrace.io sampled : <400, f32>
  %a = headrace.weight 0 "a" qkv layer 0 : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<1024>
  %p, %t = headrace.prefetch %a[0 for 400] into %slot[0] step<movement 0> : <host, 1000, bf16>, slot<1024> -> <400 of 1000, bf16>
  %d, %t2 = headrace.prefetch %a[400 for 600] onto %p step<movement 0> : <host, 1000, bf16>, <400 of 1000, bf16> -> <1000, bf16>
  headrace.wait %t : token
  // expected-error@+1 {{uses a before its prefetch has been waited for}}
  %y = headrace.norm qkv tokens(%meta) %x, %d[0 for 100] step<attention 0> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
  headrace.release %d : <1000, bf16>
}

// -----

headrace.iteration @after_release decode phase(movement) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %x = headrace.io sampled : <400, f32>
  %a = headrace.weight 0 "a" qkv layer 0 : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<1024>
  %d, %t = headrace.prefetch %a[0 for 1000] into %slot[0] step<movement 0> : <host, 1000, bf16>, slot<1024> -> <1000, bf16>
  headrace.wait %t : token
  // expected-note@+1 {{given up here}}
  headrace.release %d : <1000, bf16>
  // expected-error@+1 {{uses a after it was given up}}
  %y = headrace.norm qkv tokens(%meta) %x, %d[0 for 100] step<attention 0> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
}

// -----

headrace.iteration @after_evict decode phase(movement) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %q = headrace.io sampled : <400, f32>
  %kv = headrace.kv 0 : <host, 4096, bf16>
  %slot = headrace.slot 0 : slot<4096>
  %d, %t = headrace.prefetch %kv[0 for 4096] into %slot[0] step<movement 0> : <host, 4096, bf16>, slot<4096> -> <4096, bf16>
  headrace.wait %t : token
  // expected-note@+1 {{given up here}}
  %t2 = headrace.evict all %d[0 for 4096] to %kv step<movement 0> : <4096, bf16>, <host, 4096, bf16>
  // expected-error@+1 {{uses kv.0 after it was given up}}
  %a = headrace.attention tokens(%meta) %q, %d step<attention 0> : <512, bytes>, <400, f32>, <4096, bf16> -> <400, f32>
}

// -----

headrace.iteration @twice decode phase(movement) limits(8, 8, 2048) {
  %a = headrace.weight 0 "a" qkv layer 0 : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<1024>
  %d = headrace.carry %a[0 for 1000] in %slot[0] : <host, 1000, bf16>, slot<1024> -> <1000, bf16>
  // expected-note@+1 {{given up here}}
  headrace.release %d : <1000, bf16>
  // expected-error@+1 {{uses a after it was given up}}
  headrace.carry_out %d : <1000, bf16>
}

// -----

headrace.iteration @leak decode phase(movement) limits(8, 8, 2048) {
  %a = headrace.weight 0 "a" qkv layer 0 : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<1024>
  // expected-error@+1 {{brings a to the device, where it is neither released nor carried out}}
  %d, %t = headrace.prefetch %a[0 for 1000] into %slot[0] step<movement 0> : <host, 1000, bf16>, slot<1024> -> <1000, bf16>
}

// -----

headrace.iteration @overwrite decode phase(movement) limits(8, 8, 2048) {
  %a = headrace.weight 0 "a" qkv layer 0 : <host, 1000, bf16>
  %b = headrace.weight 1 "b" qkv layer 1 : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<2048>
  // expected-note@+1 {{brought here}}
  %d, %t = headrace.prefetch %a[0 for 1000] into %slot[0] step<movement 0> : <host, 1000, bf16>, slot<2048> -> <1000, bf16>
  // The last byte of a is at 999.
  // expected-error@+1 {{overwrites a, which is still in use}}
  %e, %u = headrace.prefetch %b[0 for 1000] into %slot[999] step<movement 1> : <host, 1000, bf16>, slot<2048> -> <1000, bf16>
  headrace.release %d : <1000, bf16>
  headrace.release %e : <1000, bf16>
}

// -----

// The second half of a part that grows, over its neighbour.
headrace.iteration @overwrite_by_part decode phase(movement) limits(8, 8, 2048) {
  %a = headrace.weight 0 "a" qkv layer 0 : <host, 1000, bf16>
  %b = headrace.weight 1 "b" qkv layer 1 : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<2048>
  %p = headrace.carry %a[0 for 400] in %slot[0] : <host, 1000, bf16>, slot<2048> -> <400 of 1000, bf16>
  // expected-note@+1 {{brought here}}
  %e = headrace.carry %b[0 for 1000] in %slot[512] : <host, 1000, bf16>, slot<2048> -> <1000, bf16>
  // expected-error@+1 {{overwrites b, which is still in use}}
  %d, %t = headrace.prefetch %a[400 for 600] onto %p step<movement 0> : <host, 1000, bf16>, <400 of 1000, bf16> -> <1000, bf16>
  headrace.release %d : <1000, bf16>
  headrace.release %e : <1000, bf16>
}

// -----

// What is carried out stays.
headrace.iteration @overwrite_kept decode phase(movement) limits(8, 8, 2048) {
  %a = headrace.weight 0 "a" qkv layer 0 : <host, 1000, bf16>
  %b = headrace.weight 1 "b" qkv layer 1 : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<1024>
  // expected-note@+1 {{brought here}}
  %d = headrace.carry %a[0 for 1000] in %slot[0] : <host, 1000, bf16>, slot<1024> -> <1000, bf16>
  headrace.carry_out %d : <1000, bf16>
  // expected-error@+1 {{overwrites a, which is still in use}}
  %e, %u = headrace.prefetch %b[0 for 1000] into %slot[0] step<movement 1> : <host, 1000, bf16>, slot<1024> -> <1000, bf16>
  headrace.release %e : <1000, bf16>
}

// -----

headrace.iteration @late_carry decode phase(movement) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %a = headrace.weight 0 "a" qkv layer 0 : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<1024>
  headrace.publish sampled(%meta) %meta step<head> : <512, bytes>, <512, bytes>
  // expected-error@+1 {{says what is there on entry, behind a step}}
  %d = headrace.carry %a[0 for 1000] in %slot[0] : <host, 1000, bf16>, slot<1024> -> <1000, bf16>
  headrace.carry_out %d : <1000, bf16>
}

// -----

// expected-error@+1 {{finds on entry what it does not leave on exit: 1000 bytes of a}}
headrace.iteration @entry decode phase(movement) limits(8, 8, 2048) {
  %a = headrace.weight 0 "a" qkv layer 0 : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<1024>
  %d = headrace.carry %a[0 for 1000] in %slot[0] : <host, 1000, bf16>, slot<1024> -> <1000, bf16>
  headrace.release %d : <1000, bf16>
}

// -----

// Fewer bytes than expected are not what is expected.
// expected-error@+1 {{finds on entry what it does not leave on exit: 600 bytes of a}}
headrace.iteration @entry_bytes decode phase(movement) limits(8, 8, 2048) {
  %a = headrace.weight 0 "a" qkv layer 0 : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<1024>
  %d = headrace.carry %a[0 for 600] in %slot[0] : <host, 1000, bf16>, slot<1024> -> <600 of 1000, bf16>
  headrace.release %d : <600 of 1000, bf16>
  %e, %t = headrace.prefetch %a[0 for 400] into %slot[0] step<movement 0> : <host, 1000, bf16>, slot<1024> -> <400 of 1000, bf16>
  headrace.carry_out %e : <400 of 1000, bf16>
}

// -----

// expected-error@+1 {{leaves on exit what it does not expect on entry: 1000 bytes of a}}
headrace.iteration @exit decode phase(movement) limits(8, 8, 2048) {
  %a = headrace.weight 0 "a" qkv layer 0 : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<1024>
  %d, %t = headrace.prefetch %a[0 for 1000] into %slot[0] step<movement 0> : <host, 1000, bf16>, slot<1024> -> <1000, bf16>
  headrace.carry_out %d : <1000, bf16>
}

// -----

// A transition may leave other contents than it finds.
headrace.iteration @transition transition phase(movement) limits(0, 0, 0) {
  %a = headrace.weight 0 "a" qkv layer 0 : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<1024>
  %d, %t = headrace.prefetch %a[0 for 1000] into %slot[0] step<movement 0> : <host, 1000, bf16>, slot<1024> -> <1000, bf16>
  headrace.carry_out %d : <1000, bf16>
}

// -----

headrace.iteration @lane_wait decode phase(movement) limits(8, 8, 2048) {
  %a = headrace.weight 0 "a" qkv layer 0 : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<1024>
  %d, %t = headrace.prefetch %a[0 for 1000] into %slot[0] step<movement 0> : <host, 1000, bf16>, slot<1024> -> <1000, bf16>
  // expected-error@+1 {{is between lanes, in phase movement}}
  headrace.wait raw %t on compute : token
  headrace.release %d : <1000, bf16>
}
