// All waits that correctness needs, before any is removed.
// RUN: headrace-opt %s -split-input-file -headrace-insert-waits | FileCheck %s

// CHECK-LABEL: @raw_and_war
headrace.iteration @raw_and_war decode phase(movement) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %x = headrace.io sampled : <400, f32>
  %q0 = headrace.weight 0 "q0" qkv layer 0 : <host, 1000, bf16>
  %q1 = headrace.weight 1 "q1" qkv layer 1 : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<1024>
  // CHECK: %[[D0:.*]], %[[T0:.*]] = headrace.prefetch %q0
  %d0, %t0 = headrace.prefetch %q0[0 for 1000] into %slot[0] step<movement 0 on h2d> : <host, 1000, bf16>, slot<1024> -> <1000, bf16>
  // A program wait becomes the wait of the lane that reads; it stays where it is, before the step that does not read.
  // CHECK-NEXT: headrace.wait raw %[[T0]] on compute : token
  // CHECK-NEXT: headrace.activate
  headrace.wait %t0 : token
  %a = headrace.activate tokens(%meta) %x step<mlp 0 on compute> : <512, bytes>, <400, f32> -> <200, f32>
  // CHECK-NEXT: headrace.norm
  // Two reads by one lane need one wait.
  // CHECK-NEXT: %[[QKV:.*]] = headrace.linear
  // CHECK-NEXT: %[[LAST:.*]] = headrace.activate
  %x0 = headrace.norm qkv tokens(%meta) %x, %d0[0 for 100] step<attention 0 on compute> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
  %y0 = headrace.linear qkv tokens(%meta) %x0, %d0[100 for 900] step<attention 0 on compute> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
  %z0 = headrace.activate tokens(%meta) %y0 step<mlp 0 on compute> : <512, bytes>, <400, f32> -> <200, f32>
  // CHECK-NEXT: headrace.release %[[D0]]
  headrace.release %d0 : <1000, bf16>
  // The copy waits for the step before the release: giving a range up is a point in the program.
  // CHECK-NEXT: headrace.wait war %[[LAST]] on h2d : <200, f32>
  // CHECK-NEXT: %[[D1:.*]], %[[T1:.*]] = headrace.prefetch %q1
  %d1, %t1 = headrace.prefetch %q1[0 for 1000] into %slot[0] step<movement 1 on h2d> : <host, 1000, bf16>, slot<1024> -> <1000, bf16>
  // Without a program wait the first reader has it.
  // CHECK-NEXT: headrace.wait raw %[[T1]] on compute : token
  // CHECK-NEXT: headrace.norm
  %x1 = headrace.norm qkv tokens(%meta) %y0, %d1[0 for 100] step<attention 1 on compute> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
  headrace.release %d1 : <1000, bf16>
}

// -----

// Ranges of one slot that do not touch do not wait for each other; one that covers two waits for both.
// CHECK-LABEL: @ranges
headrace.iteration @ranges decode phase(movement) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %x = headrace.io sampled : <400, f32>
  %a = headrace.weight 0 "a" qkv layer 0 : <host, 1000, bf16>
  %b = headrace.weight 1 "b" out layer 0 : <host, 1000, bf16>
  %c = headrace.weight 2 "c" up layer 0 : <host, 500, bf16>
  %e = headrace.weight 3 "e" down layer 0 : <host, 1800, bf16>
  %slot = headrace.slot 0 : slot<2048>
  %da = headrace.carry %a[0 for 1000] in %slot[0] : <host, 1000, bf16>, slot<2048> -> <1000, bf16>
  %db = headrace.carry %b[0 for 1000] in %slot[1024] : <host, 1000, bf16>, slot<2048> -> <1000, bf16>
  // CHECK: %[[XA:.*]] = headrace.norm
  %xa = headrace.norm qkv tokens(%meta) %x, %da[0 for 100] step<attention 0 on compute> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
  headrace.release %da : <1000, bf16>
  // CHECK: %[[XB:.*]] = headrace.norm
  %xb = headrace.norm out tokens(%meta) %xa, %db[0 for 100] step<attention 0 on compute> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
  headrace.release %db : <1000, bf16>
  // CHECK: headrace.release
  // CHECK-NEXT: headrace.wait war %[[XA]] on h2d
  // CHECK-NEXT: headrace.prefetch %c
  %dc, %tc = headrace.prefetch %c[0 for 500] into %slot[0] step<movement 0 on h2d> : <host, 500, bf16>, slot<2048> -> <500, bf16>
  headrace.wait %tc : token
  // CHECK: %[[XC:.*]] = headrace.norm up
  %xc = headrace.norm up tokens(%meta) %xb, %dc[0 for 100] step<mlp 0 on compute> : <512, bytes>, <400, f32>, <500, bf16> -> <400, f32>
  headrace.release %dc : <500, bf16>
  // Bytes [0, 500) were c's, [500, 1000) a's, [1024, 1800) b's.
  // CHECK-NEXT: headrace.release
  // CHECK-NEXT: headrace.wait war %[[XC]] on h2d
  // CHECK-NEXT: headrace.wait war %[[XA]] on h2d
  // CHECK-NEXT: headrace.wait war %[[XB]] on h2d
  // CHECK-NEXT: headrace.prefetch %e
  %de, %te = headrace.prefetch %e[0 for 1800] into %slot[0] step<movement 0 on h2d> : <host, 1800, bf16>, slot<2048> -> <1800, bf16>
  headrace.carry_out %de : <1800, bf16>
}

// -----

// Lanes beside compute and h2d: a range that another lane brought and nobody used (waw), one that is written back (war),
// and its home, which is read again (raw).
// CHECK-LABEL: @other_lanes
headrace.iteration @other_lanes decode phase(movement) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %q = headrace.io sampled : <400, f32>
  %a = headrace.weight 0 "a" qkv layer 0 : <host, 1000, bf16>
  %kv = headrace.kv 0 : <host, 4096, bf16>
  %slot = headrace.slot 0 : slot<4096>
  // CHECK: %{{.*}}, %[[TA:.*]] = headrace.prefetch %a
  %da, %ta = headrace.prefetch %a[0 for 1000] into %slot[0] step<movement 0 on d2h> : <host, 1000, bf16>, slot<4096> -> <1000, bf16>
  headrace.release %da : <1000, bf16>
  // CHECK-NEXT: headrace.release
  // CHECK-NEXT: headrace.wait waw %[[TA]] on h2d : token
  // CHECK-NEXT: %[[K:.*]], %[[TK:.*]] = headrace.prefetch %kv.0
  %k, %tk = headrace.prefetch %kv[0 for 4096] into %slot[0] step<movement 0 on h2d> : <host, 4096, bf16>, slot<4096> -> <4096, bf16>
  headrace.wait %tk : token
  // Attention on the cpu lane reads the version that rope_append wrote.
  // CHECK-NEXT: headrace.wait raw %[[TK]] on compute : token
  // CHECK-NEXT: %[[R:.*]], %[[APPENDED:.*]] = headrace.rope_append
  // CHECK-NEXT: headrace.wait raw %[[R]] on cpu
  // CHECK-NEXT: %[[OUT:.*]] = headrace.attention
  %r, %appended = headrace.rope_append tokens(%meta) %q, %k step<attention 0 on compute> : <512, bytes>, <400, f32>, <4096, bf16>
  %o = headrace.attention tokens(%meta) %r, %appended step<attention 0 on cpu> : <512, bytes>, <400, f32>, <4096, bf16> -> <400, f32>
  // CHECK-NEXT: headrace.wait raw %[[R]] on d2h
  // CHECK-NEXT: headrace.wait war %[[TK]] on d2h
  // CHECK-NEXT: %[[HE:.*]], %[[TE:.*]] = headrace.evict
  %hte, %te = headrace.evict dirty %appended[0 for 64] to %kv step<movement 0 on d2h> : <4096, bf16>, <host, 4096, bf16>
  // The range was used by three lanes.
  // CHECK-NEXT: headrace.wait raw %[[TE]] on h2d
  // CHECK-NEXT: headrace.wait war %[[R]] on h2d
  // CHECK-NEXT: headrace.wait war %[[TE]] on h2d
  // CHECK-NEXT: headrace.wait war %[[OUT]] on h2d
  // CHECK-NEXT: headrace.prefetch %[[HE]]
  %k2, %tk2 = headrace.prefetch %hte[0 for 4096] into %slot[0] step<movement 0 on h2d> : <host, 4096, bf16>, slot<4096> -> <4096, bf16>
  headrace.wait %tk2 : token
  // An update in place comes after the readers of the version before, in whatever lane they are.
  // CHECK: headrace.wait raw %{{.*}} on compute
  // CHECK-NEXT: headrace.wait war %[[OUT]] on compute
  // CHECK-NEXT: headrace.rope_append
  %r2, %appended2 = headrace.rope_append tokens(%meta) %r, %k2 step<attention 0 on compute> : <512, bytes>, <400, f32>, <4096, bf16>
  headrace.release %appended2 : <4096, bf16>
}

// -----

// Pacing waits stay as they are.
// CHECK-LABEL: @pacing
headrace.iteration @pacing decode phase(movement) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %x = headrace.io sampled : <400, f32>
  %a = headrace.weight 0 "a" qkv layer 0 : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<1024>
  // CHECK: %[[Y:.*]] = headrace.activate
  // CHECK-NEXT: headrace.wait pacing %[[Y]] on h2d
  // CHECK-NEXT: headrace.prefetch
  %y = headrace.activate tokens(%meta) %x step<mlp 0 on compute> : <512, bytes>, <400, f32> -> <200, f32>
  headrace.wait pacing %y on h2d : <200, f32>
  %d, %t = headrace.prefetch %a[0 for 1000] into %slot[0] step<movement 0 on h2d> : <host, 1000, bf16>, slot<1024> -> <1000, bf16>
  // A wait for what nobody uses says nothing.
  // CHECK-NEXT: headrace.release
  headrace.wait %t : token
  headrace.release %d : <1000, bf16>
}
