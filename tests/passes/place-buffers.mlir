// RUN: headrace-opt %s -headrace-place-on-host -headrace-place-buffers -headrace-verify-phase=phase=offsets | FileCheck %s

// Two iterations of one placement. Multiples of 256 throughout:
//   io       meta 0, sampled 512, output 768, history 1024
//   KV       kv.0 1280 .. 5376, kv.1 .. 9472
//   then transients, slot and the resident unit, the last two at the same addresses in both iterations.
// Decode's transients: x 512 and y 512 while both live, 1024 in all; mixed needs twice that. So the slot begins at
// 9472 + 2048 = 11520, the resident unit at 11520 + 1024 = 12544, and the arena ends at 12544 + 2048 = 14592.

// CHECK-LABEL: headrace.iteration @decode decode phase(offsets) limits(8, 8, 2048) arena(14592) {
headrace.iteration @decode decode phase(lanes) limits(8, 8, 2048) {
  // CHECK-NEXT: headrace.io meta at 0 : <512, bytes>
  // CHECK-NEXT: headrace.io sampled at 512 : <32, bytes>
  // CHECK-NEXT: headrace.io output at 768 : <32, bytes>
  // CHECK-NEXT: headrace.io history at 1024 : <64, bytes>
  %meta = headrace.io meta : <512, bytes>
  %sampled = headrace.io sampled : <32, bytes>
  %output = headrace.io output : <32, bytes>
  %history = headrace.io history : <64, bytes>
  // CHECK-NEXT: headrace.weight 0 "embedding" embedding at 12544 : <2000, bf16>
  %embedding = headrace.weight 0 "embedding" embedding : <2000, bf16>
  // Host addresses are in the slab: 0, and 1000 rounded up.
  // CHECK-NEXT: headrace.weight 1 "layers.0.qkv" qkv layer 0 at 0 : <host, 1000, bf16>
  // CHECK-NEXT: headrace.weight 2 "layers.1.qkv" qkv layer 1 at 1024 : <host, 1000, bf16>
  %q0 = headrace.weight 1 "layers.0.qkv" qkv layer 0 : <host, 1000, bf16>
  %q1 = headrace.weight 2 "layers.1.qkv" qkv layer 1 : <host, 1000, bf16>
  // CHECK-NEXT: headrace.kv 0 at 1280 : <4096, bf16>
  // CHECK-NEXT: headrace.kv 1 at 5376 : <4096, bf16>
  %kv0 = headrace.kv 0 : <4096, bf16>
  %kv1 = headrace.kv 1 : <4096, bf16>
  // CHECK-NEXT: headrace.slot 0 at 11520 : slot<1024>
  %slot = headrace.slot 0 : slot<1024>
  %d0, %t0 = headrace.prefetch %q0[0 for 1000] into %slot[0] step<movement 0 on h2d> : <host, 1000, bf16>, slot<1024> -> <1000, bf16>
  // CHECK: headrace.embed {{.*}} at [[X:[0-9]+]] :
  %x, %ids = headrace.embed tokens(%meta) %embedding[0 for 2000], %sampled, %history step<embedding on compute> : <512, bytes>, <2000, bf16>, <32, bytes>, <64, bytes> -> <512, f32>
  headrace.wait raw %t0 on compute : token
  // CHECK: headrace.norm {{.*}} at [[Y:[0-9]+]] :
  %y = headrace.norm qkv tokens(%meta) %x, %d0[0 for 100] step<attention 0 on compute> : <512, bytes>, <512, f32>, <1000, bf16> -> <512, f32>
  headrace.release %d0 : <1000, bf16>
  headrace.wait war %y on h2d : <512, f32>
  %d1, %t1 = headrace.prefetch %q1[0 for 1000] into %slot[0] step<movement 1 on h2d> : <host, 1000, bf16>, slot<1024> -> <1000, bf16>
  headrace.wait raw %t1 on compute : token
  // x is dead here.
  // CHECK: headrace.norm {{.*}} at [[X]] :
  %z = headrace.norm qkv tokens(%meta) %y, %d1[0 for 100] step<attention 1 on compute> : <512, bytes>, <512, f32>, <1000, bf16> -> <512, f32>
  headrace.release %d1 : <1000, bf16>
  headrace.publish sampled(%meta) %z step<head on compute> : <512, bytes>, <512, f32>
}

// CHECK-LABEL: headrace.iteration @mixed mixed phase(offsets) limits(16, 8, 2048) arena(14592) {
headrace.iteration @mixed mixed phase(lanes) limits(16, 8, 2048) {
  // CHECK-NEXT: headrace.io meta at 0
  // CHECK-NEXT: headrace.io sampled at 512
  // CHECK-NEXT: headrace.io output at 768
  // CHECK-NEXT: headrace.io history at 1024
  // CHECK-NEXT: headrace.weight 0 "embedding" embedding at 12544
  // CHECK-NEXT: headrace.weight 1 "layers.0.qkv" qkv layer 0 at 0
  // CHECK-NEXT: headrace.weight 2 "layers.1.qkv" qkv layer 1 at 1024
  // CHECK-NEXT: headrace.kv 0 at 1280
  // CHECK-NEXT: headrace.kv 1 at 5376
  // CHECK-NEXT: headrace.slot 0 at 11520
  %meta = headrace.io meta : <512, bytes>
  %sampled = headrace.io sampled : <32, bytes>
  %output = headrace.io output : <32, bytes>
  %history = headrace.io history : <64, bytes>
  %embedding = headrace.weight 0 "embedding" embedding : <2000, bf16>
  %q0 = headrace.weight 1 "layers.0.qkv" qkv layer 0 : <host, 1000, bf16>
  %q1 = headrace.weight 2 "layers.1.qkv" qkv layer 1 : <host, 1000, bf16>
  %kv0 = headrace.kv 0 : <4096, bf16>
  %kv1 = headrace.kv 1 : <4096, bf16>
  %slot = headrace.slot 0 : slot<1024>
  %d0, %t0 = headrace.prefetch %q0[0 for 1000] into %slot[0] step<movement 0 on h2d> : <host, 1000, bf16>, slot<1024> -> <1000, bf16>
  %x, %ids = headrace.embed tokens(%meta) %embedding[0 for 2000], %sampled, %history step<embedding on compute> : <512, bytes>, <2000, bf16>, <32, bytes>, <64, bytes> -> <1024, f32>
  headrace.wait raw %t0 on compute : token
  %y = headrace.norm qkv tokens(%meta) %x, %d0[0 for 100] step<attention 0 on compute> : <512, bytes>, <1024, f32>, <1000, bf16> -> <1024, f32>
  headrace.release %d0 : <1000, bf16>
  headrace.wait war %y on h2d : <1024, f32>
  %d1, %t1 = headrace.prefetch %q1[0 for 1000] into %slot[0] step<movement 1 on h2d> : <host, 1000, bf16>, slot<1024> -> <1000, bf16>
  headrace.wait raw %t1 on compute : token
  %z = headrace.norm qkv tokens(%meta) %y, %d1[0 for 100] step<attention 1 on compute> : <512, bytes>, <1024, f32>, <1000, bf16> -> <1024, f32>
  headrace.release %d1 : <1000, bf16>
  headrace.publish sampled(%meta) %z step<head on compute> : <512, bytes>, <1024, f32>
}
