// One program for each rule of the lanes phase.
// RUN: headrace-opt %s -split-input-file -verify-diagnostics -headrace-verify-phase

headrace.iteration @no_lane decode phase(lanes) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  // expected-error@+1 {{has no lane, in phase lanes}}
  headrace.publish sampled(%meta) %meta step<head> : <512, bytes>, <512, bytes>
}

// -----

headrace.iteration @compute_on_copy_lane decode phase(lanes) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  // expected-error@+1 {{cannot run on lane h2d}}
  headrace.publish sampled(%meta) %meta step<head on h2d> : <512, bytes>, <512, bytes>
}

// -----

headrace.iteration @prefetch_on_d2h decode phase(lanes) limits(8, 8, 2048) {
  %a = headrace.weight 0 "a" qkv layer 0 : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<1024>
  // expected-error@+1 {{cannot run on lane d2h}}
  %d, %t = headrace.prefetch %a[0 for 1000] into %slot[0] step<movement 0 on d2h> : <host, 1000, bf16>, slot<1024> -> <1000, bf16>
  headrace.release %d : <1000, bf16>
}

// -----

headrace.iteration @evict_on_h2d decode phase(lanes) limits(8, 8, 2048) {
  %kv = headrace.kv 0 : <host, 4096, bf16>
  %slot = headrace.slot 0 : slot<4096>
  %d, %t = headrace.prefetch %kv[0 for 4096] into %slot[0] step<movement 0 on h2d> : <host, 4096, bf16>, slot<4096> -> <4096, bf16>
  // expected-error@+1 {{cannot run on lane h2d}}
  %hu, %u = headrace.evict all %d[0 for 4096] to %kv step<movement 0 on h2d> : <4096, bf16>, <host, 4096, bf16>
}

// -----

headrace.iteration @program_wait decode phase(lanes) limits(8, 8, 2048) {
  %a = headrace.weight 0 "a" qkv layer 0 : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<1024>
  %d, %t = headrace.prefetch %a[0 for 1000] into %slot[0] step<movement 0 on h2d> : <host, 1000, bf16>, slot<1024> -> <1000, bf16>
  // expected-error@+1 {{is in program order, in phase lanes}}
  headrace.wait %t : token
  headrace.release %d : <1000, bf16>
}

// -----

headrace.iteration @own_lane decode phase(lanes) limits(8, 8, 2048) {
  %a = headrace.weight 0 "a" qkv layer 0 : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<1024>
  %d, %t = headrace.prefetch %a[0 for 1000] into %slot[0] step<movement 0 on h2d> : <host, 1000, bf16>, slot<1024> -> <1000, bf16>
  // expected-error@+1 {{is for a step of the same lane, whose order says it already}}
  headrace.wait waw %t on h2d : token
  headrace.release %d : <1000, bf16>
}

// -----

headrace.iteration @dangling decode phase(lanes) limits(8, 8, 2048) {
  %a = headrace.weight 0 "a" qkv layer 0 : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<1024>
  %d, %t = headrace.prefetch %a[0 for 1000] into %slot[0] step<movement 0 on h2d> : <host, 1000, bf16>, slot<1024> -> <1000, bf16>
  headrace.release %d : <1000, bf16>
  // expected-error@+1 {{is followed by no step of its lane}}
  headrace.wait raw %t on compute : token
}

// -----

headrace.iteration @implied decode phase(lanes) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %x = headrace.io sampled : <400, f32>
  %a = headrace.weight 0 "a" qkv layer 0 : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<1024>
  %d, %t = headrace.prefetch %a[0 for 1000] into %slot[0] step<movement 0 on h2d> : <host, 1000, bf16>, slot<1024> -> <1000, bf16>
  headrace.wait raw %t on compute : token
  %y = headrace.norm qkv tokens(%meta) %x, %d[0 for 100] step<attention 0 on compute> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
  // expected-error@+1 {{is implied by the order of lanes and other waits}}
  headrace.wait raw %t on compute : token
  %z = headrace.norm qkv tokens(%meta) %y, %d[0 for 100] step<attention 0 on compute> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
  headrace.release %d : <1000, bf16>
}

// -----

headrace.iteration @raw decode phase(lanes) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %x = headrace.io sampled : <400, f32>
  %a = headrace.weight 0 "a" qkv layer 0 : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<1024>
  // expected-note@+1 {{written here}}
  %d, %t = headrace.prefetch %a[0 for 1000] into %slot[0] step<movement 0 on h2d> : <host, 1000, bf16>, slot<1024> -> <1000, bf16>
  // expected-error@+1 {{reads what another lane may still be writing: no wait orders them}}
  %y = headrace.norm qkv tokens(%meta) %x, %d[0 for 100] step<attention 0 on compute> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
  headrace.release %d : <1000, bf16>
}

// -----

headrace.iteration @war decode phase(lanes) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %x = headrace.io sampled : <400, f32>
  %a = headrace.weight 0 "a" qkv layer 0 : <host, 1000, bf16>
  %b = headrace.weight 1 "b" qkv layer 1 : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<1024>
  // expected-note@+1 {{first used here}}
  %d, %t = headrace.prefetch %a[0 for 1000] into %slot[0] step<movement 0 on h2d> : <host, 1000, bf16>, slot<1024> -> <1000, bf16>
  headrace.wait raw %t on compute : token
  %y = headrace.norm qkv tokens(%meta) %x, %d[0 for 100] step<attention 0 on compute> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
  headrace.release %d : <1000, bf16>
  // expected-error@+1 {{overwrites bytes that an earlier step may still be using: no wait orders them}}
  %e, %u = headrace.prefetch %b[0 for 1000] into %slot[0] step<movement 1 on h2d> : <host, 1000, bf16>, slot<1024> -> <1000, bf16>
  headrace.release %e : <1000, bf16>
}

// -----

// Waiting for the first of two readers is not enough.
headrace.iteration @war_last_reader decode phase(lanes) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %x = headrace.io sampled : <400, f32>
  %a = headrace.weight 0 "a" qkv layer 0 : <host, 1000, bf16>
  %b = headrace.weight 1 "b" qkv layer 1 : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<1024>
  %d = headrace.carry %a[0 for 1000] in %slot[0] : <host, 1000, bf16>, slot<1024> -> <1000, bf16>
  // expected-note@+1 {{first used here}}
  %y = headrace.norm qkv tokens(%meta) %x, %d[0 for 100] step<attention 0 on compute> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
  %z = headrace.norm qkv tokens(%meta) %y, %d[0 for 100] step<attention 0 on compute> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
  headrace.release %d : <1000, bf16>
  headrace.wait war %y on h2d : <400, f32>
  // expected-error@+1 {{overwrites bytes that an earlier step may still be using: no wait orders them}}
  %e, %u = headrace.prefetch %b[0 for 1000] into %slot[0] step<movement 1 on h2d> : <host, 1000, bf16>, slot<1024> -> <1000, bf16>
  headrace.release %e : <1000, bf16>
  %f, %v = headrace.prefetch %a[0 for 1000] into %slot[0] step<movement 0 on h2d> : <host, 1000, bf16>, slot<1024> -> <1000, bf16>
  headrace.carry_out %f : <1000, bf16>
}

// -----

// An update in place while another lane reads the version before.
headrace.iteration @in_place decode phase(lanes) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %q = headrace.io sampled : <400, f32>
  %kv = headrace.kv 0 : <4096, bf16>
  %down = headrace.staging qkv : <host, 400, f32>
  // expected-note@+1 {{first used here}}
  %s = headrace.stage %q into %down step<movement 0 on d2h> : <400, f32>, <host, 400, f32>
  // expected-error@+1 {{overwrites bytes that an earlier step may still be using: no wait orders them}}
  %r, %k = headrace.rope_append tokens(%meta) %q, %kv step<attention 0 on compute> : <512, bytes>, <400, f32>, <4096, bf16>
}

// -----

// An evict reads what the append writes.
headrace.iteration @evict_beside_append decode phase(lanes) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %q = headrace.io sampled : <400, f32>
  %kv = headrace.kv 0 tail : <host, 4096, bf16>
  %slot = headrace.slot 0 : slot<4096>
  %d, %t = headrace.prefetch %kv[0 for 4096] into %slot[0] step<movement 0 on h2d> : <host, 4096, bf16>, slot<4096> -> <4096, bf16>
  headrace.wait raw %t on compute : token
  // expected-note@+1 {{written here}}
  %r, %k = headrace.rope_append tokens(%meta) %q, %d step<attention 0 on compute> : <512, bytes>, <400, f32>, <4096, bf16>
  // expected-error@+1 {{reads what another lane may still be writing: no wait orders them}}
  %h, %t2 = headrace.evict all %k[0 for 4096] to %kv step<movement 0 on d2h> : <4096, bf16>, <host, 4096, bf16>
}

// -----

// A prefetch reads what is written back.
headrace.iteration @prefetch_beside_evict decode phase(lanes) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %q = headrace.io sampled : <400, f32>
  %kv = headrace.kv 0 tail : <host, 4096, bf16>
  %slot = headrace.slot 0 : slot<8192>
  %d, %t = headrace.prefetch %kv[0 for 4096] into %slot[0] step<movement 0 on h2d> : <host, 4096, bf16>, slot<8192> -> <4096, bf16>
  headrace.wait raw %t on compute : token
  %r, %k = headrace.rope_append tokens(%meta) %q, %d step<attention 0 on compute> : <512, bytes>, <400, f32>, <4096, bf16>
  headrace.wait raw %r on d2h : <400, f32>
  // expected-note@+1 {{written here}}
  %h, %t2 = headrace.evict all %k[0 for 4096] to %kv step<movement 0 on d2h> : <4096, bf16>, <host, 4096, bf16>
  // expected-error@+1 {{reads what another lane may still be writing: no wait orders them}}
  %e, %t3 = headrace.prefetch %h[0 for 4096] into %slot[4096] step<movement 0 on h2d> : <host, 4096, bf16>, slot<8192> -> <4096, bf16>
  headrace.release %e : <4096, bf16>
}

// -----

// A slot that is written back is not overwritten meanwhile.
headrace.iteration @overwrite_beside_evict decode phase(lanes) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %q = headrace.io sampled : <400, f32>
  %kv = headrace.kv 0 tail : <host, 4096, bf16>
  %a = headrace.weight 0 "a" qkv layer 0 : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<4096>
  // expected-note@+1 {{first used here}}
  %d, %t = headrace.prefetch %kv[0 for 4096] into %slot[0] step<movement 0 on h2d> : <host, 4096, bf16>, slot<4096> -> <4096, bf16>
  headrace.wait raw %t on compute : token
  %r, %k = headrace.rope_append tokens(%meta) %q, %d step<attention 0 on compute> : <512, bytes>, <400, f32>, <4096, bf16>
  headrace.wait raw %r on d2h : <400, f32>
  %h, %t2 = headrace.evict all %k[0 for 4096] to %kv step<movement 0 on d2h> : <4096, bf16>, <host, 4096, bf16>
  headrace.wait war %r on h2d : <400, f32>
  // expected-error@+1 {{overwrites bytes that an earlier step may still be using: no wait orders them}}
  %e, %t3 = headrace.prefetch %a[0 for 1000] into %slot[0] step<movement 0 on h2d> : <host, 1000, bf16>, slot<4096> -> <1000, bf16>
  headrace.release %e : <1000, bf16>
}

// -----

// A home is not written while it is read.
headrace.iteration @evict_beside_prefetch decode phase(lanes) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %q = headrace.io sampled : <400, f32>
  %kv = headrace.kv 0 tail : <host, 4096, bf16>
  %slot = headrace.slot 0 : slot<8192>
  %d = headrace.carry %kv[0 for 4096] in %slot[0] : <host, 4096, bf16>, slot<8192> -> <4096, bf16>
  // expected-note@+1 {{first used here}}
  %e, %t = headrace.prefetch %kv[0 for 4096] into %slot[4096] step<movement 0 on h2d> : <host, 4096, bf16>, slot<8192> -> <4096, bf16>
  // expected-error@+1 {{overwrites bytes that an earlier step may still be using: no wait orders them}}
  %h, %t2 = headrace.evict all keeping %d[0 for 4096] to %kv step<movement 0 on d2h> : <4096, bf16>, <host, 4096, bf16>
  headrace.release %e : <4096, bf16>
  headrace.carry_out %d : <4096, bf16>
}
