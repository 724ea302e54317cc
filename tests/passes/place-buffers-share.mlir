// Transients and slots share bytes where their lives do not meet, as the order of lanes and waits says.
// RUN: headrace-opt %s -headrace-place-buffers -headrace-verify-phase=phase=offsets | FileCheck %s

// The slot (1024) is free once the norm has read it; the logits (1024) are made after that and go there. The arena is
// 512 (meta) + 512 (sampled, read as x) + 512 (the norm's result) + 1024 (the slot) = 2560, not 3584.
// CHECK-LABEL: @decode
// CHECK-SAME: arena(2560)
headrace.iteration @decode decode phase(lanes) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %x = headrace.io sampled : <512, f32>
  // A place in the host slab that is there already stays.
  // CHECK: headrace.weight 1 "layers.0.qkv" qkv layer 0 at 4096 : <host, 1000, bf16>
  %q0 = headrace.weight 1 "layers.0.qkv" qkv layer 0 at 4096 : <host, 1000, bf16>
  // CHECK: headrace.slot 0 at [[SLOT:[0-9]+]] : slot<1024>
  %slot = headrace.slot 0 : slot<1024>
  %d0, %t0 = headrace.prefetch %q0[0 for 1000] into %slot[0] step<movement 0 on h2d> : <host, 1000, bf16>, slot<1024> -> <1000, bf16>
  headrace.wait raw %t0 on compute : token
  %y = headrace.norm qkv tokens(%meta) %x, %d0[0 for 100] step<attention 0 on compute> : <512, bytes>, <512, f32>, <1000, bf16> -> <512, f32>
  headrace.release %d0 : <1000, bf16>
  // CHECK: headrace.gather_rows {{.*}} at [[SLOT]] :
  %l = headrace.gather_rows sampled(%meta) %y step<head on compute> : <512, bytes>, <512, f32> -> <1024, f32>
  headrace.publish sampled(%meta) %l step<head on compute> : <512, bytes>, <1024, f32>
}
