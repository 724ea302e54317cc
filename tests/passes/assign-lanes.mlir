// RUN: headrace-opt %s -headrace-assign-lanes | FileCheck %s
// RUN: headrace-opt %s -headrace-assign-lanes | headrace-opt -headrace-assign-lanes | FileCheck %s


// CHECK-LABEL: @decode
// CHECK-SAME: phase(movement)
headrace.iteration @decode decode phase(movement) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %x = headrace.io sampled : <400, f32>
  %q0 = headrace.weight 0 "q0" qkv layer 0 : <host, 1000, bf16>
  %kv = headrace.kv 0 : <host, 4096, bf16>
  %slot = headrace.slot 0 : slot<1024>
  %slot1 = headrace.slot 1 : slot<4096>
  // CHECK: headrace.prefetch {{.*}} step<movement 0 on h2d, link_bytes 1000>
  %d0, %t0 = headrace.prefetch %q0[0 for 1000] into %slot[0] step<movement 0, link_bytes 1000> : <host, 1000, bf16>, slot<1024> -> <1000, bf16>
  // CHECK: headrace.prefetch {{.*}} step<movement 0 on h2d>
  %k0, %t1 = headrace.prefetch %kv[0 for 4096] into %slot1[0] step<movement 0> : <host, 4096, bf16>, slot<4096> -> <4096, bf16>
  headrace.wait %t0 : token
  headrace.wait %t1 : token
  // CHECK: headrace.norm {{.*}} step<attention 0 on compute>
  %x0 = headrace.norm qkv tokens(%meta) %x, %d0[0 for 100] step<attention 0> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
  headrace.release %d0 : <1000, bf16>
  // A lane that is there already stays.
  // CHECK: headrace.attention {{.*}} step<attention 0 on cpu>
  %a = headrace.attention tokens(%meta) %x0, %k0 step<attention 0 on cpu> : <512, bytes>, <400, f32>, <4096, bf16> -> <400, f32>
  // CHECK: headrace.evict {{.*}} step<movement 0 on d2h>
  %ht2, %t2 = headrace.evict dirty %k0[0 for 64] to %kv step<movement 0> : <4096, bf16>, <host, 4096, bf16>
  // CHECK: headrace.publish {{.*}} step<head on compute>
  headrace.publish sampled(%meta) %a step<head> : <512, bytes>, <400, f32>
}
