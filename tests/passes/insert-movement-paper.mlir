// Rule paper: whole layers. Each layer here has two units, in two steps.
// RUN: headrace-opt %s -split-input-file -headrace-insert-movement="residency={start=paper}" -headrace-verify-phase=phase=movement | FileCheck %s
// RUN: headrace-opt %s -split-input-file -headrace-insert-movement="residency={start=paper slots=2}" -headrace-verify-phase=phase=movement | FileCheck %s --check-prefix=TWO
// RUN: %not headrace-opt %s -split-input-file -headrace-insert-movement="residency={start=paper decode-cut=1}" 2>&1 | FileCheck %s --check-prefix=WRAP

// WRAP: error: states no cut under the rule paper: nothing wraps around

// Interval 2 of 5 layers: 1 and 3. A copy is eligible when the first layer of its interval starts: layer 0 (after the
// embedding) and layer 2 (after layer 1, which gives the one slot up at the same time).
// CHECK-LABEL: @interval_2
// CHECK: phase(movement)
headrace.iteration @interval_2 decode phase(homes) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %sampled = headrace.io sampled : <32, bytes>
  %history = headrace.io history : <64, bytes>
  %e = headrace.weight 0 "e" embedding : <2000, bf16>
  %q1 = headrace.weight 1 "q1" qkv layer 1 : <host, 1000, bf16>
  %u1 = headrace.weight 2 "u1" up layer 1 : <host, 600, bf16>
  %q3 = headrace.weight 3 "q3" qkv layer 3 : <host, 1000, bf16>
  %u3 = headrace.weight 4 "u3" up layer 3 : <host, 600, bf16>
  // 1024 for q, 768 for u: places in a slot are multiples of 256.
  // CHECK: %slot.0 = headrace.slot 0 : slot<1792>
  // CHECK-NOT: headrace.slot
  // CHECK: headrace.embed
  // CHECK-NEXT: headrace.wait pacing %x on h2d
  // CHECK-NEXT: %[[Q1:.*]], %[[TQ1:.*]] = headrace.prefetch %q1[0 for 1000] into %slot.0[0] step<movement 1, device_bytes 1000, link_bytes 1000>
  // CHECK-NEXT: %[[U1:.*]], %[[TU1:.*]] = headrace.prefetch %u1[0 for 600] into %slot.0[1024] step<movement 1, device_bytes 600, link_bytes 600>
  %x, %ids = headrace.embed tokens(%meta) %e[0 for 2000], %sampled, %history step<embedding> : <512, bytes>, <2000, bf16>, <32, bytes>, <64, bytes> -> <400, f32>
  // CHECK-NEXT: %[[X0:.*]] = headrace.norm qkv tokens(%meta) %x, %e
  %x0 = headrace.norm qkv tokens(%meta) %x, %e[0 for 100] step<attention 0> : <512, bytes>, <400, f32>, <2000, bf16> -> <400, f32>
  // The layer's first step waits for all of its units, its last gives all of them up.
  // CHECK-NEXT: headrace.wait %[[TQ1]] : token
  // CHECK-NEXT: headrace.wait %[[TU1]] : token
  // CHECK-NEXT: headrace.norm qkv tokens(%meta) %[[X0]], %[[Q1]][0 for 100]
  // CHECK-NEXT: %[[X1:.*]] = headrace.norm up tokens(%meta) %{{.*}}, %[[U1]][0 for 100]
  // CHECK-NEXT: headrace.release %[[Q1]]
  // CHECK-NEXT: headrace.release %[[U1]]
  // CHECK-NEXT: headrace.wait pacing %[[X1]] on h2d
  // CHECK-NEXT: %[[Q3:.*]], %{{.*}} = headrace.prefetch %q3[0 for 1000] into %slot.0[0]
  // CHECK-NEXT: %[[U3:.*]], %{{.*}} = headrace.prefetch %u3[0 for 600] into %slot.0[1024]
  // TWO-LABEL: @interval_2
  // TWO: %slot.0 = headrace.slot 0 : slot<1792>
  // TWO: %slot.1 = headrace.slot 1 : slot<1792>
  // TWO: headrace.prefetch %u1[0 for 600] into %slot.0[1024]
  // Still when its interval starts, though the second slot is free earlier.
  // TWO: headrace.release
  // TWO: headrace.release
  // TWO-NEXT: headrace.wait pacing
  // TWO-NEXT: headrace.prefetch %q3[0 for 1000] into %slot.1[0]
  %dq1 = headrace.on_device %q1 : <host, 1000, bf16> -> <1000, bf16>
  %y1 = headrace.norm qkv tokens(%meta) %x0, %dq1[0 for 100] step<attention 1> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
  %du1 = headrace.on_device %u1 : <host, 600, bf16> -> <600, bf16>
  %x1 = headrace.norm up tokens(%meta) %y1, %du1[0 for 100] step<mlp 1> : <512, bytes>, <400, f32>, <600, bf16> -> <400, f32>
  // CHECK-NEXT: %[[X2:.*]] = headrace.norm qkv tokens(%meta) %[[X1]], %e
  %x2 = headrace.norm qkv tokens(%meta) %x1, %e[0 for 100] step<attention 2> : <512, bytes>, <400, f32>, <2000, bf16> -> <400, f32>
  // CHECK-NEXT: headrace.wait
  // CHECK-NEXT: headrace.wait
  // CHECK-NEXT: headrace.norm qkv tokens(%meta) %[[X2]], %[[Q3]]
  // CHECK-NEXT: headrace.norm up tokens(%meta) %{{.*}}, %[[U3]]
  // CHECK-NEXT: headrace.release %[[Q3]]
  // CHECK-NEXT: headrace.release %[[U3]]
  %dq3 = headrace.on_device %q3 : <host, 1000, bf16> -> <1000, bf16>
  %y3 = headrace.norm qkv tokens(%meta) %x2, %dq3[0 for 100] step<attention 3> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
  %du3 = headrace.on_device %u3 : <host, 600, bf16> -> <600, bf16>
  %x3 = headrace.norm up tokens(%meta) %y3, %du3[0 for 100] step<mlp 3> : <512, bytes>, <400, f32>, <600, bf16> -> <400, f32>
  // CHECK-NEXT: headrace.norm
  // CHECK-NOT: headrace.prefetch
  // CHECK-NOT: headrace.carry_out
  %x4 = headrace.norm qkv tokens(%meta) %x3, %e[0 for 100] step<attention 4> : <512, bytes>, <400, f32>, <2000, bf16> -> <400, f32>
}

// -----

// Interval 1: each copy is eligible when the layer before starts (the first at once), in two slots.
// CHECK-LABEL: @interval_1
headrace.iteration @interval_1 decode phase(homes) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %sampled = headrace.io sampled : <32, bytes>
  %history = headrace.io history : <64, bytes>
  %e = headrace.weight 0 "e" embedding : <2000, bf16>
  %q0 = headrace.weight 1 "q0" qkv layer 0 : <host, 1000, bf16>
  %q1 = headrace.weight 2 "q1" qkv layer 1 : <host, 1000, bf16>
  %q2 = headrace.weight 3 "q2" qkv layer 2 : <host, 1000, bf16>
  // CHECK: %slot.0 = headrace.slot 0 : slot<1024>
  // CHECK-NEXT: %slot.1 = headrace.slot 1 : slot<1024>
  // CHECK-NEXT: headrace.prefetch %q0[0 for 1000] into %slot.0[0]
  // CHECK-NEXT: headrace.embed
  // CHECK-NEXT: headrace.wait pacing %x on h2d
  // CHECK-NEXT: headrace.prefetch %q1[0 for 1000] into %slot.1[0]
  %x, %ids = headrace.embed tokens(%meta) %e[0 for 2000], %sampled, %history step<embedding> : <512, bytes>, <2000, bf16>, <32, bytes>, <64, bytes> -> <400, f32>
  // CHECK-NEXT: headrace.wait
  // CHECK-NEXT: %[[X0:.*]] = headrace.norm
  // CHECK-NEXT: headrace.release
  // CHECK-NEXT: headrace.wait pacing %[[X0]] on h2d
  // CHECK-NEXT: headrace.prefetch %q2[0 for 1000] into %slot.0[0]
  %d0 = headrace.on_device %q0 : <host, 1000, bf16> -> <1000, bf16>
  %x0 = headrace.norm qkv tokens(%meta) %x, %d0[0 for 100] step<attention 0> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
  // CHECK-NEXT: headrace.wait
  // CHECK-NEXT: headrace.norm
  // CHECK-NEXT: headrace.release
  %d1 = headrace.on_device %q1 : <host, 1000, bf16> -> <1000, bf16>
  %x1 = headrace.norm qkv tokens(%meta) %x0, %d1[0 for 100] step<attention 1> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
  // CHECK-NEXT: headrace.wait
  // CHECK-NEXT: headrace.norm
  // CHECK-NEXT: headrace.release
  %d2 = headrace.on_device %q2 : <host, 1000, bf16> -> <1000, bf16>
  %x2 = headrace.norm qkv tokens(%meta) %x1, %d2[0 for 100] step<attention 2> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
}

// -----

// Only the head: its interval is the whole model.
// CHECK-LABEL: @head
headrace.iteration @head decode phase(homes) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %sampled = headrace.io sampled : <32, bytes>
  %history = headrace.io history : <64, bytes>
  %e = headrace.weight 0 "e" embedding : <2000, bf16>
  %h = headrace.weight 1 "h" head : <host, 1000, bf16>
  // CHECK: headrace.embed
  // CHECK-NEXT: headrace.wait pacing %x on h2d
  // CHECK-NEXT: headrace.prefetch %h[0 for 1000] into %slot.0[0] step<movement, device_bytes 1000, link_bytes 1000>
  %x, %ids = headrace.embed tokens(%meta) %e[0 for 2000], %sampled, %history step<embedding> : <512, bytes>, <2000, bf16>, <32, bytes>, <64, bytes> -> <400, f32>
  // CHECK-NEXT: headrace.norm qkv
  // CHECK-NEXT: headrace.norm qkv
  // The head begins with the rows that are sampled.
  // CHECK-NEXT: headrace.wait
  // CHECK-NEXT: headrace.gather_rows
  // CHECK-NEXT: headrace.linear head
  // CHECK-NEXT: headrace.release
  %x0 = headrace.norm qkv tokens(%meta) %x, %e[0 for 100] step<attention 0> : <512, bytes>, <400, f32>, <2000, bf16> -> <400, f32>
  %x1 = headrace.norm qkv tokens(%meta) %x0, %e[0 for 100] step<attention 1> : <512, bytes>, <400, f32>, <2000, bf16> -> <400, f32>
  %g = headrace.gather_rows sampled(%meta) %x1 step<head> : <512, bytes>, <400, f32> -> <400, f32>
  %d = headrace.on_device %h : <host, 1000, bf16> -> <1000, bf16>
  %l = headrace.linear head sampled(%meta) %g, %d[0 for 1000] step<head> : <512, bytes>, <400, f32>, <1000, bf16> -> <2000, f32>
}
