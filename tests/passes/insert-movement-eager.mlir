// Rule eager: unit by unit, as soon as a range is free, around the end of the iteration.
// RUN: headrace-opt %s -split-input-file -headrace-insert-movement -headrace-verify-phase=phase=movement | FileCheck %s --check-prefix=PLAIN
// RUN: headrace-opt %s -split-input-file -headrace-insert-movement="residency={decode-cut=1+400}" -headrace-verify-phase=phase=movement | FileCheck %s --check-prefix=CUT
// RUN: headrace-opt %s -split-input-file -headrace-insert-movement="residency={slots=1}" -headrace-verify-phase=phase=movement | FileCheck %s --check-prefix=ONE
// RUN: headrace-opt %s -split-input-file -headrace-insert-movement="residency={slots=3 decode-cut=6}" -headrace-verify-phase=phase=movement | FileCheck %s --check-prefix=ALL

// Three offloaded layers of two units each.
// PLAIN-LABEL: @three
// CUT-LABEL: @three
// ONE-LABEL: @three
// ALL-LABEL: @three
headrace.iteration @three decode phase(homes) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %x = headrace.io sampled : <400, f32>
  %q0 = headrace.weight 0 "q0" qkv layer 0 : <host, 1000, bf16>
  %u0 = headrace.weight 1 "u0" up layer 0 : <host, 600, bf16>
  %q1 = headrace.weight 2 "q1" qkv layer 1 : <host, 1000, bf16>
  %u1 = headrace.weight 3 "u1" up layer 1 : <host, 600, bf16>
  %q2 = headrace.weight 4 "q2" qkv layer 2 : <host, 1000, bf16>
  %u2 = headrace.weight 5 "u2" up layer 2 : <host, 600, bf16>

  // Three items on a circle, any two neighbours apart: three slots.
  // PLAIN: %slot.0 = headrace.slot 0 : slot<1792>
  // PLAIN-NEXT: %slot.1 = headrace.slot 1
  // PLAIN-NEXT: %slot.2 = headrace.slot 2
  // So all ranges are free from the start.
  // PLAIN-NEXT: headrace.prefetch %q0[0 for 1000] into %slot.0[0]
  // PLAIN-NEXT: headrace.prefetch %u0[0 for 600] into %slot.0[1024]
  // PLAIN-NEXT: headrace.prefetch %q1[0 for 1000] into %slot.1[0]
  // PLAIN-NEXT: headrace.prefetch %u1[0 for 600] into %slot.1[1024]
  // PLAIN-NEXT: headrace.prefetch %q2[0 for 1000] into %slot.2[0]
  // PLAIN-NEXT: headrace.prefetch %u2[0 for 600] into %slot.2[1024]
  // A step waits for its own unit only, and gives it up at once.
  // PLAIN-NEXT: headrace.wait %t.q0 : token
  // PLAIN-NEXT: headrace.norm qkv tokens(%meta) %sampled, %d.q0[0 for 100]
  // PLAIN-NEXT: headrace.release %d.q0
  // PLAIN-NEXT: headrace.wait %t.u0 : token
  // PLAIN-NEXT: headrace.norm up
  // PLAIN-NOT: carry

  // One unit and 400 bytes of the next are there on entry; the rest of that unit comes first.
  // CUT: %[[Q0:.*]] = headrace.carry %q0[0 for 1000] in %slot.0[0] : <host, 1000, bf16>, slot<1792> -> <1000, bf16>
  // CUT-NEXT: %[[PART:.*]] = headrace.carry %u0[0 for 400] in %slot.0[1024] : <host, 600, bf16>, slot<1792> -> <400 of 600, bf16>
  // CUT-NEXT: %[[U0:.*]], %[[TU0:.*]] = headrace.prefetch %u0[400 for 200] onto %[[PART]] step<movement 0, device_bytes 200, link_bytes 200>
  // CUT-NEXT: headrace.prefetch %q1
  // CUT-NEXT: headrace.prefetch %u1
  // CUT-NEXT: headrace.prefetch %q2
  // CUT-NEXT: headrace.prefetch %u2
  // What was carried needs no wait; behind its release stands its copy for the next iteration.
  // CUT-NEXT: headrace.norm qkv tokens(%meta) %sampled, %[[Q0]]
  // CUT-NEXT: headrace.release %[[Q0]]
  // CUT-NEXT: %[[NEXTQ0:.*]], %{{.*}} = headrace.prefetch %q0[0 for 1000] into %slot.0[0]
  // CUT-NEXT: headrace.wait %[[TU0]]
  // CUT-NEXT: headrace.norm up tokens(%meta) %{{.*}}, %[[U0]]
  // CUT-NEXT: headrace.release %[[U0]]
  // CUT-NEXT: %[[NEXTU0:.*]], %{{.*}} = headrace.prefetch %u0[0 for 400] into %slot.0[1024] step<movement 0, device_bytes 400, link_bytes 400> : <host, 600, bf16>, slot<1792> -> <400 of 600, bf16>
  // CUT: headrace.carry_out %[[NEXTQ0]] : <1000, bf16>
  // CUT-NEXT: headrace.carry_out %[[NEXTU0]] : <400 of 600, bf16>

  // One slot: the next item's unit stands behind the release of the unit that lies where it goes.
  // ONE: headrace.prefetch %q0[0 for 1000] into %slot.0[0]
  // ONE-NEXT: headrace.prefetch %u0[0 for 600] into %slot.0[1024]
  // ONE-NEXT: headrace.wait
  // ONE-NEXT: headrace.norm qkv
  // ONE-NEXT: headrace.release
  // ONE-NEXT: headrace.prefetch %q1[0 for 1000] into %slot.0[0]
  // ONE-NEXT: headrace.wait
  // ONE-NEXT: headrace.norm up
  // ONE-NEXT: headrace.release
  // ONE-NEXT: headrace.prefetch %u1[0 for 600] into %slot.0[1024]
  // ONE-NEXT: headrace.wait
  // ONE-NEXT: headrace.norm qkv
  // ONE-NEXT: headrace.release
  // ONE-NEXT: headrace.prefetch %q2[0 for 1000] into %slot.0[0]

  // All of it carried: every copy is for the next iteration.
  // ALL-COUNT-6: headrace.carry %
  // ALL-NOT: headrace.wait
  // ALL: headrace.norm qkv
  // ALL-NEXT: headrace.release
  // ALL-NEXT: headrace.prefetch %q0
  // ALL-NEXT: headrace.norm up
  // ALL-NEXT: headrace.release
  // ALL-NEXT: headrace.prefetch %u0
  // ALL-COUNT-6: headrace.carry_out
  %dq0 = headrace.on_device %q0 : <host, 1000, bf16> -> <1000, bf16>
  %y0 = headrace.norm qkv tokens(%meta) %x, %dq0[0 for 100] step<attention 0> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
  %du0 = headrace.on_device %u0 : <host, 600, bf16> -> <600, bf16>
  %x0 = headrace.norm up tokens(%meta) %y0, %du0[0 for 100] step<mlp 0> : <512, bytes>, <400, f32>, <600, bf16> -> <400, f32>
  %dq1 = headrace.on_device %q1 : <host, 1000, bf16> -> <1000, bf16>
  %y1 = headrace.norm qkv tokens(%meta) %x0, %dq1[0 for 100] step<attention 1> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
  %du1 = headrace.on_device %u1 : <host, 600, bf16> -> <600, bf16>
  %x1 = headrace.norm up tokens(%meta) %y1, %du1[0 for 100] step<mlp 1> : <512, bytes>, <400, f32>, <600, bf16> -> <400, f32>
  %dq2 = headrace.on_device %q2 : <host, 1000, bf16> -> <1000, bf16>
  %y2 = headrace.norm qkv tokens(%meta) %x1, %dq2[0 for 100] step<attention 2> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
  %du2 = headrace.on_device %u2 : <host, 600, bf16> -> <600, bf16>
  %x2 = headrace.norm up tokens(%meta) %y2, %du2[0 for 100] step<mlp 2> : <512, bytes>, <400, f32>, <600, bf16> -> <400, f32>
}
