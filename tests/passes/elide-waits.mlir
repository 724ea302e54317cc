// RUN: headrace-opt %s -split-input-file -headrace-elide-waits | FileCheck %s

// Copies of a lane run one after another: whoever waits for the last has waited for all (rule paper: a layer's first step).
// CHECK-LABEL: @same_source_lane
// CHECK-SAME: phase(lanes)
headrace.iteration @same_source_lane decode phase(movement) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %x = headrace.io sampled : <400, f32>
  %a = headrace.weight 0 "a" qkv layer 0 : <host, 1000, bf16>
  %b = headrace.weight 1 "b" out layer 0 : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<2048>
  %da, %ta = headrace.prefetch %a[0 for 1000] into %slot[0] step<movement 0 on h2d> : <host, 1000, bf16>, slot<2048> -> <1000, bf16>
  %db, %tb = headrace.prefetch %b[0 for 1000] into %slot[1024] step<movement 0 on h2d> : <host, 1000, bf16>, slot<2048> -> <1000, bf16>
  // CHECK: headrace.prefetch %b
  // CHECK-NEXT: headrace.wait raw %t.b on compute
  // CHECK-NEXT: headrace.norm
  headrace.wait raw %ta on compute : token
  headrace.wait raw %tb on compute : token
  %xa = headrace.norm qkv tokens(%meta) %x, %da[0 for 100] step<attention 0 on compute> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
  // What the lane's step before has waited for needs no second wait.
  // CHECK-NEXT: headrace.norm
  headrace.wait raw %tb on compute : token
  %xb = headrace.norm out tokens(%meta) %xa, %db[0 for 100] step<attention 0 on compute> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
}

// -----

// Through another lane: the copy of b started after xa had ended, so whoever has waited for b knows of xa.
// CHECK-LABEL: @through_another_lane
headrace.iteration @through_another_lane decode phase(movement) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %x = headrace.io sampled : <400, f32>
  %b = headrace.weight 1 "b" out layer 0 : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<1024>
  // CHECK: %[[Y:.*]] = headrace.activate
  %y = headrace.activate tokens(%meta) %x step<mlp 0 on compute> : <512, bytes>, <400, f32> -> <200, f32>
  // CHECK-NEXT: headrace.wait war %[[Y]] on h2d
  // CHECK-NEXT: headrace.prefetch
  headrace.wait war %y on h2d : <200, f32>
  %db, %tb = headrace.prefetch %b[0 for 1000] into %slot[0] step<movement 0 on h2d> : <host, 1000, bf16>, slot<1024> -> <1000, bf16>
  // CHECK-NEXT: headrace.wait raw %t.b on cpu
  // CHECK-NEXT: headrace.norm
  headrace.wait raw %y on cpu : <200, f32>
  headrace.wait raw %tb on cpu : token
  %xb = headrace.norm out tokens(%meta) %x, %db[0 for 100] step<attention 0 on cpu> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
  // Two waits that do not imply each other both stay.
  // CHECK-NEXT: %[[Z:.*]] = headrace.activate
  // CHECK-NEXT: headrace.wait war %{{.*}} on h2d
  // CHECK-NEXT: headrace.wait war %[[Z]] on h2d
  // CHECK-NEXT: headrace.prefetch
  %z = headrace.activate tokens(%meta) %x step<mlp 0 on compute> : <512, bytes>, <400, f32> -> <200, f32>
  headrace.wait war %xb on h2d : <400, f32>
  headrace.wait war %z on h2d : <200, f32>
  %dc, %tc = headrace.prefetch %b[0 for 1000] into %slot[0] step<movement 0 on h2d> : <host, 1000, bf16>, slot<1024> -> <1000, bf16>
  // Waits that no step of their lane follows hold nothing up.
  // CHECK-NOT: headrace.wait
  headrace.wait raw %tc on compute : token
  headrace.wait raw %tc on cpu : token
}

// -----

// One of two waits for the same step goes: the one of the weaker kind. A pacing wait that a dependence relies on takes
// its kind.
// CHECK-LABEL: @kinds
headrace.iteration @kinds decode phase(movement) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %x = headrace.io sampled : <400, f32>
  %b = headrace.weight 1 "b" out layer 0 : <host, 1000, bf16>
  %c = headrace.weight 2 "c" up layer 0 : <host, 1000, bf16>
  %e = headrace.weight 3 "e" down layer 0 : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<1024>
  // CHECK: %[[Y:.*]] = headrace.activate
  // CHECK-NEXT: headrace.wait war %[[Y]] on h2d
  // CHECK-NEXT: headrace.prefetch %b
  %y = headrace.activate tokens(%meta) %x step<mlp 0 on compute> : <512, bytes>, <400, f32> -> <200, f32>
  headrace.wait pacing %y on h2d : <200, f32>
  headrace.wait war %y on h2d : <200, f32>
  %db, %tb = headrace.prefetch %b[0 for 1000] into %slot[0] step<movement 0 on h2d> : <host, 1000, bf16>, slot<1024> -> <1000, bf16>
  // CHECK-NEXT: %[[Z:.*]] = headrace.activate
  // CHECK-NEXT: %[[W:.*]] = headrace.activate
  // CHECK-NEXT: headrace.wait war %[[W]] on h2d
  // CHECK-NEXT: headrace.prefetch %c
  %z = headrace.activate tokens(%meta) %x step<mlp 0 on compute> : <512, bytes>, <400, f32> -> <200, f32>
  %w = headrace.activate tokens(%meta) %x step<mlp 0 on compute> : <512, bytes>, <400, f32> -> <200, f32>
  headrace.wait war %z on h2d : <200, f32>
  headrace.wait pacing %w on h2d : <200, f32>
  %dc, %tc = headrace.prefetch %c[0 for 1000] into %slot[0] step<movement 0 on h2d> : <host, 1000, bf16>, slot<1024> -> <1000, bf16>
  // A pacing wait that only paces stays one; one that says nothing goes.
  // CHECK-NEXT: %[[V:.*]] = headrace.activate
  // CHECK-NEXT: headrace.wait pacing %[[V]] on h2d
  // CHECK-NEXT: headrace.prefetch %e
  %v = headrace.activate tokens(%meta) %x step<mlp 0 on compute> : <512, bytes>, <400, f32> -> <200, f32>
  headrace.wait pacing %w on h2d : <200, f32>
  headrace.wait pacing %v on h2d : <200, f32>
  %de, %te = headrace.prefetch %e[0 for 1000] into %slot[0] step<movement 0 on h2d> : <host, 1000, bf16>, slot<1024> -> <1000, bf16>
}
