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
  %ht2, %t2 = headrace.evict all %d[0 for 4096] to %kv step<movement 0> : <4096, bf16>, <host, 4096, bf16>
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

// -----

// Rows that an append has written to what was brought only are not to be lost.
headrace.iteration @release_ahead decode phase(movement) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %q = headrace.io sampled : <400, f32>
  %kv = headrace.kv 0 tail : <host, 4096, bf16>
  %slot = headrace.slot 0 : slot<4096>
  %d, %t = headrace.prefetch %kv[0 for 4096] into %slot[0] step<movement 0> : <host, 4096, bf16>, slot<4096> -> <4096, bf16>
  headrace.wait %t : token
  %r, %k = headrace.rope_append tokens(%meta) %q, %d step<attention 0> : <512, bytes>, <400, f32>, <4096, bf16>
  // expected-error@+1 {{gives up kv.0.tail, which is ahead of its home}}
  headrace.release %k : <4096, bf16>
}

// -----

// Written to the home as well, or written back, they are not.
headrace.iteration @not_ahead decode phase(movement) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %q = headrace.io sampled : <400, f32>
  %kv = headrace.kv 0 tail : <host, 4096, bf16>
  %slot = headrace.slot 0 : slot<4096>
  %d, %t = headrace.prefetch %kv[0 for 4096] into %slot[0] step<movement 0> : <host, 4096, bf16>, slot<4096> -> <4096, bf16>
  headrace.wait %t : token
  %r, %k, %h = headrace.rope_append tokens(%meta) %q, %d home %kv step<attention 0, direct> : <512, bytes>, <400, f32>, <4096, bf16>, <host, 4096, bf16>
  headrace.release %k : <4096, bf16>
  %d2, %t2 = headrace.prefetch %h[0 for 4096] into %slot[0] step<movement 0> : <host, 4096, bf16>, slot<4096> -> <4096, bf16>
  headrace.wait %t2 : token
  %r2, %k2 = headrace.rope_append tokens(%meta) %r, %d2 step<attention 0> : <512, bytes>, <400, f32>, <4096, bf16>
  %h2, %t3 = headrace.evict dirty keeping %k2[0 for 4096] to %h step<movement 0, resizable> : <4096, bf16>, <host, 4096, bf16>
  headrace.release %k2 : <4096, bf16>
}

// -----

headrace.iteration @keep_ahead decode phase(movement) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %q = headrace.io sampled : <400, f32>
  %kv = headrace.kv 0 tail : <host, 4096, bf16>
  %slot = headrace.slot 0 : slot<4096>
  %d = headrace.carry %kv[0 for 4096] in %slot[0] : <host, 4096, bf16>, slot<4096> -> <4096, bf16>
  %r, %k = headrace.rope_append tokens(%meta) %q, %d step<attention 0> : <512, bytes>, <400, f32>, <4096, bf16>
  // expected-error@+1 {{leaves kv.0.tail ahead of its home, and is not dirty}}
  headrace.carry_out %k : <4096, bf16>
}

// -----

headrace.iteration @bring_behind decode phase(movement) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %q = headrace.io sampled : <400, f32>
  %kv = headrace.kv 0 tail : <host, 4096, bf16>
  %slot = headrace.slot 0 : slot<8192>
  %d, %t = headrace.prefetch %kv[0 for 4096] into %slot[0] step<movement 0> : <host, 4096, bf16>, slot<8192> -> <4096, bf16>
  headrace.wait %t : token
  %r, %k = headrace.rope_append tokens(%meta) %q, %d step<attention 0> : <512, bytes>, <400, f32>, <4096, bf16>
  // expected-error@+1 {{brings kv.0.tail, whose home is behind what is on the device}}
  %e, %t2 = headrace.prefetch %kv[0 for 4096] into %slot[4096] step<movement 0> : <host, 4096, bf16>, slot<8192> -> <4096, bf16>
  %h, %t3 = headrace.evict all %k[0 for 4096] to %kv step<movement 0> : <4096, bf16>, <host, 4096, bf16>
  headrace.release %e : <4096, bf16>
}

// -----

// The run that this iteration has written says nothing of what was behind on entry.
headrace.iteration @dirty_on_entry decode phase(movement) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %q = headrace.io sampled : <400, f32>
  %kv = headrace.kv 0 tail : <host, 4096, bf16>
  %slot = headrace.slot 0 : slot<4096>
  %d = headrace.carry %kv[0 for 4096] in %slot[0] dirty : <host, 4096, bf16>, slot<4096> -> <4096, bf16>
  %r, %k = headrace.rope_append tokens(%meta) %q, %d step<attention 0> : <512, bytes>, <400, f32>, <4096, bf16>
  // expected-error@+1 {{gives up kv.0.tail, which is ahead of its home}}
  %h, %t = headrace.evict dirty %k[0 for 4096] to %kv step<movement 0, resizable> : <4096, bf16>, <host, 4096, bf16>
}

// -----

// What is left clean is not dirty on entry.
// expected-error@+1 {{finds on entry what it does not leave on exit: 4096 bytes of kv.0.tail}}
headrace.iteration @entry_dirty decode phase(movement) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %q = headrace.io sampled : <400, f32>
  %kv = headrace.kv 0 tail : <host, 4096, bf16>
  %slot = headrace.slot 0 : slot<4096>
  %d = headrace.carry %kv[0 for 4096] in %slot[0] dirty : <host, 4096, bf16>, slot<4096> -> <4096, bf16>
  %r, %k = headrace.rope_append tokens(%meta) %q, %d step<attention 0> : <512, bytes>, <400, f32>, <4096, bf16>
  %h, %t = headrace.evict all keeping %k[0 for 4096] to %kv step<movement 0> : <4096, bf16>, <host, 4096, bf16>
  headrace.carry_out %k : <4096, bf16>
}

// -----

// Kept from iteration to iteration, and what was behind is written back when it is given up.
headrace.iteration @carried_dirty decode phase(movement) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %q = headrace.io sampled : <400, f32>
  %kv = headrace.kv 0 tail : <host, 4096, bf16>
  %slot = headrace.slot 0 : slot<4096>
  %d = headrace.carry %kv[0 for 4096] in %slot[0] dirty : <host, 4096, bf16>, slot<4096> -> <4096, bf16>
  %r, %k = headrace.rope_append tokens(%meta) %q, %d step<attention 0> : <512, bytes>, <400, f32>, <4096, bf16>
  headrace.carry_out %k dirty : <4096, bf16>
}

// -----

headrace.iteration @flush transition phase(movement) limits(0, 0, 0) {
  %kv = headrace.kv 0 tail : <host, 4096, bf16>
  %slot = headrace.slot 0 : slot<4096>
  %d = headrace.carry %kv[0 for 4096] in %slot[0] dirty : <host, 4096, bf16>, slot<4096> -> <4096, bf16>
  %h, %t = headrace.evict all %d[0 for 4096] to %kv step<movement 0> : <4096, bf16>, <host, 4096, bf16>
}
