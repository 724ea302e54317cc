// Attention in the cpu lane, of two mini-batches: caches stay where they are at home, rows go down and come up again,
// and the scheduled order of waits is that of the data alone.
// RUN: headrace-opt %s -headrace-choose-homes="residency={kv=0@0} kv-blocks=4 kv-block-bytes=256" -headrace-price-direct="device-bytes=1 link-bytes=1" -headrace-verify-phase=phase=homes | FileCheck %s
// RUN: headrace-opt %s -headrace-choose-homes="residency={kv=0@0} kv-blocks=4 kv-block-bytes=256" -headrace-insert-movement -headrace-verify-phase=phase=movement -headrace-assign-lanes -headrace-insert-waits -headrace-elide-waits -headrace-verify-phase=phase=lanes | FileCheck %s --check-prefix=LANES
// RUN: headrace-opt %s -headrace-choose-homes="residency={kv=0@0} kv-blocks=4 kv-block-bytes=256" -headrace-insert-movement -headrace-assign-lanes -headrace-insert-waits -headrace-elide-waits -headrace-place-on-host -headrace-place-buffers -headrace-verify-phase=phase=offsets | FileCheck %s --check-prefix=PLACED
// RUN: headrace-opt %s -headrace-choose-homes="residency={kv=0@0} kv-blocks=4 kv-block-bytes=256" -headrace-insert-movement -headrace-assign-lanes -headrace-insert-waits -headrace-elide-waits -headrace-place-on-host="at={kv:0@0 kv:0.1@1024} staging=4096" -headrace-place-buffers -headrace-verify-phase=phase=offsets | FileCheck %s --check-prefix=GIVEN
// RUN: %not headrace-opt %s -headrace-choose-homes="residency={kv=0@2} kv-blocks=4 kv-block-bytes=256" 2>&1 | FileCheck %s --check-prefix=SPLIT
// RUN: %not headrace-opt %s -headrace-choose-homes 2>&1 | FileCheck %s --check-prefix=SPLIT
// RUN: sed 's/step<attention 0, flops 7>/step<attention 0 on compute, flops 7>/' %s | %not headrace-opt -headrace-choose-homes="residency={kv=0@0} kv-blocks=4 kv-block-bytes=256" -headrace-insert-movement -headrace-assign-lanes -headrace-insert-waits -headrace-elide-waits -headrace-verify-phase=phase=lanes 2>&1 | FileCheck %s --check-prefix=LANE

// SPLIT: error: appends by the CPU to a cache of which not all is at home on the host
// LANE: error: cannot run on lane compute

// The cache has no slot and nothing brings it; what reads rows over the link keeps its own amounts.
// CHECK: %kv.0.tail = headrace.kv 0 tail : <host, 1024, f32>
// CHECK: %kv.0.1.tail = headrace.kv 0 mini_batch(1) tail : <host, 1024, f32>
// CHECK-NOT: on_device
// CHECK: headrace.append tokens(%staged) %{{.*}}, %kv.0.tail step<attention 0> : <host, 1024, bytes>, <host, 600, f32>, <host, 1024, f32>
// CHECK: headrace.fetch_rows {{.*}} step<attention 0, direct, device_bytes 200, link_bytes 200>

// Rows go down as soon as they are rotated; the CPU waits for them, and the device for the CPU; the second mini-batch's
// first half stands before the first one's second. The iteration buffer of both goes down once, and nothing waits for it
// but the first that uses it.
// LANES: headrace.stage %meta into %staging.meta step<movement on d2h>
// LANES-NOT: headrace.stage %meta
// LANES: headrace.rotate tokens(%meta) {{.*}} step<attention 0 on compute>
// LANES-NEXT: headrace.wait raw %rotated on d2h
// LANES-NEXT: %[[S0:.*]] = headrace.stage %rotated into %staging.qkv step<movement 0 on d2h, resizable>
// LANES-NEXT: headrace.wait raw %[[S0]] on cpu
// LANES-NEXT: %appended = headrace.append tokens(%staged) %[[S0]], %kv.0.tail step<attention 0 on cpu>
// LANES-NEXT: %attended = headrace.host_attention tokens(%staged) %[[S0]], %appended into %staging.attended scratch %staging.scratch step<attention 0 on cpu, flops 7>
// LANES-NEXT: headrace.linear qkv tokens(%meta) {{.*}} step<attention 0 on compute, mini_batch 1>
// LANES: headrace.host_attention {{.*}} into %staging.attended.1
// LANES-NEXT: headrace.wait raw %attended on compute
// LANES-NEXT: headrace.fetch_rows tokens(%meta) %attended step<attention 0 on compute, direct
// LANES: headrace.fetch_rows tokens(%meta) {{.*}} step<attention 0 on compute, direct, mini_batch 1,

// One behind the other, behind what is at home on the host.
// PLACED: %kv.0.1.tail = headrace.kv 0 mini_batch(1) tail at 1024 :
// PLACED: headrace.staging meta at 2048 : <host, 1024, bytes>
// PLACED: headrace.staging qkv at 3072 : <host, 600, f32>
// PLACED: headrace.staging attended at 3840 : <host, 200, f32>
// PLACED: headrace.staging scratch at 4096 : <host, 64, bytes>

// GIVEN: headrace.staging meta at 4096 :
// GIVEN: headrace.staging qkv at 5120 :
headrace.iteration @decode decode phase(model) limits(8, 8, 64) {
  %unit = headrace.weight 0 "q" qkv layer 0 : <1000, f32>
  %kv = headrace.kv 0 : <1024, f32>
  %kv1 = headrace.kv 0 mini_batch(1) : <1024, f32>
  %meta = headrace.io meta : <1024, bytes>
  %output = headrace.io output : <200, f32>
  %down = headrace.staging meta : <host, 1024, bytes>
  %q_down = headrace.staging qkv : <host, 600, f32>
  %a_down = headrace.staging attended : <host, 200, f32>
  %s_down = headrace.staging scratch : <host, 64, bytes>
  %q_down1 = headrace.staging qkv mini_batch(1) : <host, 600, f32>
  %a_down1 = headrace.staging attended mini_batch(1) : <host, 200, f32>
  %m = headrace.stage %meta into %down step<movement> : <1024, bytes>, <host, 1024, bytes>
  %q = headrace.linear qkv tokens(%meta) %output, %unit[0 for 1000] step<attention 0> : <1024, bytes>, <200, f32>, <1000, f32> -> <600, f32>
  %r = headrace.rotate tokens(%meta) %q step<attention 0> : <1024, bytes>, <600, f32>
  %s = headrace.stage %r into %q_down step<movement 0, resizable> : <600, f32>, <host, 600, f32>
  %k = headrace.append tokens(%m) %s, %kv step<attention 0> : <host, 1024, bytes>, <host, 600, f32>, <1024, f32>
  %a = headrace.host_attention tokens(%m) %s, %k into %a_down scratch %s_down step<attention 0, flops 7> : <host, 1024, bytes>, <host, 600, f32>, <1024, f32>, <host, 200, f32>, <host, 64, bytes>
  %q1 = headrace.linear qkv tokens(%meta) %output, %unit[0 for 1000] step<attention 0, mini_batch 1> : <1024, bytes>, <200, f32>, <1000, f32> -> <600, f32>
  %s1 = headrace.stage %q1 into %q_down1 step<movement 0, resizable, mini_batch 1> : <600, f32>, <host, 600, f32>
  %k1 = headrace.append tokens(%m) %s1, %kv1 step<attention 0, mini_batch 1> : <host, 1024, bytes>, <host, 600, f32>, <1024, f32>
  %a1 = headrace.host_attention tokens(%m) %s1, %k1 into %a_down1 step<attention 0, mini_batch 1> : <host, 1024, bytes>, <host, 600, f32>, <1024, f32>, <host, 200, f32>
  %f = headrace.fetch_rows tokens(%meta) %a step<attention 0, direct, device_bytes 200, link_bytes 200> : <1024, bytes>, <host, 200, f32> -> <200, f32>
  %f1 = headrace.fetch_rows tokens(%meta) %a1 step<attention 0, direct, mini_batch 1, device_bytes 200, link_bytes 200> : <1024, bytes>, <host, 200, f32> -> <200, f32>
  headrace.publish sampled(%meta) %output step<head> : <1024, bytes>, <200, f32>
}
