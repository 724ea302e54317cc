// Rule eager with a ring: units of any size go through one slot.
// RUN: headrace-opt %s -headrace-insert-movement="residency={ring=2000}" -headrace-verify-phase=phase=movement | FileCheck %s --check-prefix=PLAIN
// RUN: headrace-opt %s -headrace-insert-movement="residency={ring=1792 decode-cut=1+256}" -headrace-verify-phase=phase=movement | FileCheck %s --check-prefix=CUT

// Units of 768, 1024, 1280 and 512 bytes: 3584 in all, two laps of at most 1792. A ring of 2000 bytes holds no more, so
// that the slot is 1792 bytes large.
// PLAIN-LABEL: @ring
// CUT-LABEL: @ring
headrace.iteration @ring decode phase(homes) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %x = headrace.io sampled : <400, f32>
  %a = headrace.weight 0 "a" qkv layer 0 : <host, 768, bf16>
  %b = headrace.weight 1 "b" qkv layer 1 : <host, 1024, bf16>
  %c = headrace.weight 2 "c" qkv layer 2 : <host, 1280, bf16>
  %d = headrace.weight 3 "d" qkv layer 3 : <host, 512, bf16>

  // The first lap is free from the start.
  // PLAIN: %slot.0 = headrace.slot 0 : slot<1792>
  // PLAIN-NEXT: headrace.prefetch %a[0 for 768] into %slot.0[0]
  // PLAIN-NEXT: headrace.prefetch %b[0 for 1024] into %slot.0[768]
  // PLAIN-NEXT: headrace.wait %t.a
  // PLAIN-NEXT: headrace.norm
  // PLAIN-NEXT: headrace.release %d.a
  // PLAIN-NEXT: headrace.wait %t.b
  // PLAIN-NEXT: headrace.norm
  // PLAIN-NEXT: headrace.release %d.b
  // c lies over all of a and the first half of b: it stands behind the release of both. d lies over b only.
  // PLAIN-NEXT: headrace.prefetch %c[0 for 1280] into %slot.0[0]
  // PLAIN-NEXT: headrace.prefetch %d[0 for 512] into %slot.0[1280]
  // PLAIN-NEXT: headrace.wait %t.c
  // PLAIN-NEXT: headrace.norm
  // PLAIN-NEXT: headrace.release %d.c
  // PLAIN-NEXT: headrace.wait %t.d
  // PLAIN-NEXT: headrace.norm
  // PLAIN-NEXT: headrace.release %d.d
  // PLAIN-NOT: prefetch

  // Around the end: a lies over c, so its copy for the next iteration runs while d is used; b lies over c and d.
  // CUT: %[[A:.*]] = headrace.carry %a[0 for 768] in %slot.0[0]
  // CUT-NEXT: %[[B:.*]] = headrace.carry %b[0 for 256] in %slot.0[768]
  // CUT-NEXT: headrace.prefetch %b[256 for 768] onto %[[B]]
  // CUT-NEXT: headrace.norm
  // CUT: headrace.release %d.c
  // CUT-NEXT: headrace.prefetch %a[0 for 768] into %slot.0[0]
  // CUT-NEXT: headrace.wait
  // CUT-NEXT: headrace.norm
  // CUT-NEXT: headrace.release %d.d
  // CUT-NEXT: headrace.prefetch %b[0 for 256] into %slot.0[768]
  // CUT-NEXT: headrace.carry_out
  // CUT-NEXT: headrace.carry_out
  %da = headrace.on_device %a : <host, 768, bf16> -> <768, bf16>
  %x0 = headrace.norm qkv tokens(%meta) %x, %da[0 for 100] step<attention 0> : <512, bytes>, <400, f32>, <768, bf16> -> <400, f32>
  %db = headrace.on_device %b : <host, 1024, bf16> -> <1024, bf16>
  %x1 = headrace.norm qkv tokens(%meta) %x0, %db[0 for 100] step<attention 1> : <512, bytes>, <400, f32>, <1024, bf16> -> <400, f32>
  %dc = headrace.on_device %c : <host, 1280, bf16> -> <1280, bf16>
  %x2 = headrace.norm qkv tokens(%meta) %x1, %dc[0 for 100] step<attention 2> : <512, bytes>, <400, f32>, <1280, bf16> -> <400, f32>
  %dd = headrace.on_device %d : <host, 512, bf16> -> <512, bf16>
  %x3 = headrace.norm qkv tokens(%meta) %x2, %dd[0 for 100] step<attention 3> : <512, bytes>, <400, f32>, <512, bf16> -> <400, f32>
}
