// Start ahead-N: whole items, each eligible when the item N before it has ended, around the end of the iteration.
// RUN: headrace-opt %s -headrace-insert-movement="residency={start=ahead-1}" -headrace-verify-phase=phase=movement | FileCheck %s --check-prefix=ONE
// RUN: headrace-opt %s -headrace-insert-movement="residency={start=ahead-0}" -headrace-verify-phase=phase=movement | FileCheck %s --check-prefix=NONE
// RUN: headrace-opt %s -headrace-insert-movement="residency={start=ahead-2}" -headrace-verify-phase=phase=movement | FileCheck %s --check-prefix=TWO
// RUN: headrace-opt %s -headrace-insert-movement="residency={start=ahead-9}" -headrace-verify-phase=phase=movement | FileCheck %s --check-prefix=ALL
// RUN: %not headrace-opt %s -headrace-insert-movement="residency={start=ahead-1 decode-cut=1}" 2>&1 | FileCheck %s --check-prefix=CUT
// RUN: %not headrace-opt %s -headrace-insert-movement="residency={start=ahead-1 ring=2048}" 2>&1 | FileCheck %s --check-prefix=RING
// RUN: %not headrace-opt %s -headrace-insert-movement="residency={start=ahead-2 slots=1}" 2>&1 | FileCheck %s --check-prefix=SLOTS

// CUT: error: states no cut under the rule ahead-1, which says itself what is there on entry
// RING: error: has item-sized slots under the rule ahead-1, not a ring
// SLOTS: error: 'q2' cannot be there on entry: an earlier one lies in its range of slot 0

// Layers 0 and 2 of three, two units each, the second in a step of its own.
headrace.iteration @three decode phase(homes) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %x = headrace.io sampled : <400, f32>
  %q0 = headrace.weight 0 "q0" qkv layer 0 : <host, 1000, bf16>
  %u0 = headrace.weight 1 "u0" up layer 0 : <host, 600, bf16>
  %w = headrace.weight 2 "w" qkv layer 1 : <1000, bf16>
  %q2 = headrace.weight 3 "q2" qkv layer 2 : <host, 1000, bf16>

  // One item ahead: layer 0 is there, layer 2 comes once layer 0 has ended, layer 0 again once layer 2 has.
  // ONE: %slot.0 = headrace.slot 0 : slot<1792>
  // ONE-NEXT: %[[Q0:.*]] = headrace.carry %q0[0 for 1000] in %slot.0[0]
  // ONE-NEXT: %[[U0:.*]] = headrace.carry %u0[0 for 600] in %slot.0[1024]
  // ONE-NEXT: headrace.norm qkv
  // ONE-NEXT: %[[X0:.*]] = headrace.norm up
  // ONE-NEXT: headrace.release %[[Q0]]
  // ONE-NEXT: headrace.release %[[U0]]
  // ONE-NEXT: headrace.wait pacing %[[X0]] on h2d
  // ONE-NEXT: %[[Q2:.*]], %[[T2:.*]] = headrace.prefetch %q2[0 for 1000] into %slot.0[0]
  // ONE-NEXT: headrace.norm qkv
  // ONE-NEXT: headrace.wait %[[T2]]
  // ONE-NEXT: %[[X2:.*]] = headrace.norm qkv
  // ONE-NEXT: headrace.release %[[Q2]]
  // ONE-NEXT: headrace.wait pacing %[[X2]] on h2d
  // ONE-NEXT: headrace.prefetch %q0[0 for 1000] into %slot.0[0]
  // ONE-NEXT: headrace.prefetch %u0[0 for 600] into %slot.0[1024]
  // ONE-NEXT: headrace.carry_out
  // ONE-NEXT: headrace.carry_out

  // None ahead: a layer's copies stand right before it, and its first step waits for all of them.
  // NONE: %slot.0 = headrace.slot 0 : slot<1792>
  // NONE-NOT: headrace.slot
  // NONE-NOT: carry
  // NONE: headrace.prefetch %q0[0 for 1000] into %slot.0[0]
  // NONE-NEXT: headrace.prefetch %u0[0 for 600] into %slot.0[1024]
  // NONE-NEXT: headrace.wait %t.q0
  // NONE-NEXT: headrace.wait %t.u0
  // NONE-NEXT: headrace.norm qkv
  // NONE-NEXT: headrace.norm up
  // NONE-NEXT: headrace.release
  // NONE-NEXT: headrace.release
  // NONE-NEXT: %[[X1:.*]] = headrace.norm qkv
  // NONE-NEXT: headrace.wait pacing %[[X1]] on h2d
  // NONE-NEXT: headrace.prefetch %q2[0 for 1000] into %slot.0[0]
  // NONE-NEXT: headrace.wait %t.q2
  // NONE-NEXT: headrace.norm qkv
  // NONE-NEXT: headrace.release
  // NONE-NOT: carry_out

  // As many as there are, or more: all are there on entry, and each comes again once it has ended.
  // TWO: %slot.0 = headrace.slot 0
  // TWO-NEXT: %slot.1 = headrace.slot 1
  // TWO: headrace.carry %q2[0 for 1000] in %slot.1[0]
  // TWO: headrace.release
  // TWO-NEXT: headrace.release
  // TWO-NEXT: headrace.wait pacing
  // TWO-NEXT: headrace.prefetch %q0[0 for 1000] into %slot.0[0]
  // TWO-COUNT-3: headrace.carry_out
  // ALL: headrace.carry %q2[0 for 1000] in %slot.1[0]
  // ALL-COUNT-3: headrace.carry_out
  %d0 = headrace.on_device %q0 : <host, 1000, bf16> -> <1000, bf16>
  %y0 = headrace.norm qkv tokens(%meta) %x, %d0[0 for 100] step<attention 0> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
  %e0 = headrace.on_device %u0 : <host, 600, bf16> -> <600, bf16>
  %x0 = headrace.norm up tokens(%meta) %y0, %e0[0 for 100] step<mlp 0> : <512, bytes>, <400, f32>, <600, bf16> -> <400, f32>
  %x1 = headrace.norm qkv tokens(%meta) %x0, %w[0 for 100] step<attention 1> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
  %d2 = headrace.on_device %q2 : <host, 1000, bf16> -> <1000, bf16>
  %x2 = headrace.norm qkv tokens(%meta) %x1, %d2[0 for 100] step<attention 2> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
}
