// A layer that is passed for two mini-batches, its weight and caches of 4 blocks of 256 bytes away: the weight is brought
// once and given up behind the second's use, each mini-batch's tail is a movable of its own.
// RUN: headrace-opt %s -headrace-choose-homes="residency={weights=0 kv=0@2} kv-blocks=4 kv-block-bytes=256 kv-mirror=1" -headrace-verify-phase=phase=homes | FileCheck %s
// RUN: headrace-opt %s -headrace-choose-homes="residency={weights=0 kv=0@1 decode-write-back=all} kv-blocks=4 kv-block-bytes=256 kv-mirror=1" -headrace-insert-movement="residency={decode-write-back=all kv-slots=2}" -headrace-verify-phase=phase=movement | FileCheck %s --check-prefix=MOVED
// RUN: headrace-opt %s -headrace-choose-homes="residency={weights=0 kv=0@1 decode-write-back=dirty} kv-blocks=4 kv-block-bytes=256 kv-mirror=1" -headrace-insert-movement="residency={decode-write-back=dirty kv-slots=1}" -headrace-verify-phase=phase=movement -headrace-assign-lanes -headrace-insert-waits -headrace-elide-waits -headrace-verify-phase=phase=lanes | FileCheck %s --check-prefix=ONE
// RUN: headrace-opt %s -headrace-choose-homes="residency={weights=0 kv=0@2} kv-blocks=4 kv-block-bytes=256 kv-mirror=1" -headrace-insert-movement -headrace-assign-lanes -headrace-insert-waits -headrace-elide-waits -headrace-place-on-host -headrace-place-buffers -headrace-verify-phase=phase=offsets | FileCheck %s --check-prefix=PLACED
// RUN: headrace-opt %s -headrace-choose-homes="residency={weights=0 kv=0@2} kv-blocks=4 kv-block-bytes=256 kv-mirror=1" -headrace-insert-movement -headrace-assign-lanes -headrace-insert-waits -headrace-elide-waits -headrace-place-on-host="at={weight:0@8192 kv:0@1024 kv:0.1@4096}" | FileCheck %s --check-prefix=STATED
// RUN: %not headrace-opt %s -headrace-choose-homes="residency={weights=0 kv=0@2} kv-blocks=4 kv-block-bytes=256 kv-mirror=1" -headrace-insert-movement -headrace-assign-lanes -headrace-insert-waits -headrace-elide-waits -headrace-place-on-host="at={weight:0@8192 kv:0@1024}" 2>&1 | FileCheck %s --check-prefix=FEW

// Caches of a layer are split alike.
// CHECK: %kv.0 = headrace.kv 0 : <512, f32>
// CHECK: %kv.0.mirror = headrace.kv 0 mirror : <host, 256, f32>
// CHECK: %kv.0.tail = headrace.kv 0 tail : <host, 512, f32>
// CHECK: %kv.0.1 = headrace.kv 0 mini_batch(1) : <512, f32>
// CHECK: %kv.0.1.mirror = headrace.kv 0 mini_batch(1) mirror : <host, 256, f32>
// CHECK: %kv.0.1.tail = headrace.kv 0 mini_batch(1) tail : <host, 512, f32>
// CHECK: headrace.rope_append tokens(%meta) %output, %kv.0, %d.kv.0.tail home %kv.0.tail, %kv.0.mirror
// CHECK: %d.layers.0.out = headrace.on_device %layers.0.out
// CHECK: headrace.linear out tokens(%meta) %attended, %d.layers.0.out
// CHECK: headrace.rope_append tokens(%meta) %sampled, %kv.0.1, %d.kv.0.1.tail home %kv.0.1.tail, %kv.0.1.mirror
// CHECK-NOT: headrace.on_device %layers.0.out
// CHECK: headrace.linear out tokens(%meta) %{{.*}}, %d.layers.0.out[0 for 1000] step<attention 0, mini_batch 1>

// One copy of the weight; one of each tail, there and back, which says whose it is.
// MOVED: %slot.0 = headrace.slot 0 : slot<1024>
// MOVED: %slot.1 = headrace.slot 1 : slot<768>
// MOVED: %slot.2 = headrace.slot 2 : slot<768>
// MOVED-NOT: headrace.slot
// MOVED: headrace.prefetch %kv.0.tail[0 for 768] into %slot.1[0] step<movement 0, resizable, device_bytes 768, link_bytes 768>
// MOVED: headrace.prefetch %layers.0.out[0 for 1000] into %slot.0[0] step<movement 0, device_bytes 1000, link_bytes 1000>
// MOVED: headrace.prefetch %kv.0.1.tail[0 for 768] into %slot.2[0] step<movement 0, resizable, mini_batch 1, device_bytes 768, link_bytes 768>
// MOVED: headrace.evict all %{{.*}}#1[0 for 768] to %kv.0.tail step<movement 0, resizable, device_bytes 768, link_bytes 768>
// MOVED-NOT: headrace.prefetch
// MOVED-NOT: headrace.release
// MOVED: headrace.evict all %{{.*}}#1[0 for 768] to %kv.0.1.tail step<movement 0, resizable, mini_batch 1, device_bytes 768, link_bytes 768>
// MOVED: headrace.linear out tokens(%meta) {{.*}} step<attention 0, mini_batch 1>
// MOVED-NEXT: headrace.release %d.layers.0.out

// Through one slot the second tail comes once the first has been used and is home.
// ONE: %[[R:.*]], %[[A:.*]]:2 = headrace.rope_append tokens(%meta) %output
// ONE: %[[O:.*]] = headrace.attention tokens(%meta)
// ONE: %{{.*}}, %[[T:.*]] = headrace.evict dirty %[[A]]#1[0 for 768] to %kv.0.tail
// ONE: headrace.wait war %[[O]] on h2d
// ONE: headrace.wait war %[[T]] on h2d
// ONE: headrace.prefetch %kv.0.1.tail[0 for 768] into %slot.1[0] step<movement 0 on h2d, resizable, mini_batch 1
// ONE: headrace.evict dirty %{{.*}}#1[0 for 768] to %kv.0.1.tail step<movement 0 on d2h, resizable, mini_batch 1

// The ranges of a role lie one behind the other; each tail behind its mirror, the mini-batches of a layer in order.
// PLACED: %meta = headrace.io meta at 0 : <1024, bytes>
// PLACED: %history = headrace.io history at 1024 : <512, bytes>
// PLACED: %history.1 = headrace.io history mini_batch(1) at 1536 : <512, bytes>
// PLACED: headrace.weight 0 "layers.0.out" out layer 0 at 0 : <host
// PLACED: headrace.kv 0 mirror at 1024 : <host, 256, f32>
// PLACED: headrace.kv 0 tail at 1280 : <host, 512, f32>
// PLACED: headrace.kv 0 mini_batch(1) mirror at 1792 : <host, 256, f32>
// PLACED: headrace.kv 0 mini_batch(1) tail at 2048 : <host, 512, f32>

// STATED: headrace.kv 0 mirror at 1024 : <host, 256, f32>
// STATED: headrace.kv 0 tail at 1280 : <host, 512, f32>
// STATED: headrace.kv 0 mini_batch(1) mirror at 4096 : <host, 256, f32>
// STATED: headrace.kv 0 mini_batch(1) tail at 4352 : <host, 512, f32>

// FEW: error: 'kv.0.1.mirror' has no address in the host slab
headrace.iteration @decode decode phase(model) limits(8, 8, 64) {
  %meta = headrace.io meta : <1024, bytes>
  %history0 = headrace.io history : <512, bytes>
  %history1 = headrace.io history mini_batch(1) : <512, bytes>
  %qkv0 = headrace.io output : <600, f32>
  %qkv1 = headrace.io sampled : <600, f32>
  %out = headrace.weight 0 "layers.0.out" out layer 0 : <1000, f32>
  %kv0 = headrace.kv 0 : <1024, f32>
  %kv1 = headrace.kv 0 mini_batch(1) : <1024, f32>
  %r0, %k0 = headrace.rope_append tokens(%meta) %qkv0, %kv0 step<attention 0> : <1024, bytes>, <600, f32>, <1024, f32>
  %a0 = headrace.attention tokens(%meta) %r0, %k0 step<attention 0> : <1024, bytes>, <600, f32>, <1024, f32> -> <400, f32>
  %x0 = headrace.linear out tokens(%meta) %a0, %out[0 for 1000] step<attention 0> : <1024, bytes>, <400, f32>, <1000, f32> -> <400, f32>
  %r1, %k1 = headrace.rope_append tokens(%meta) %qkv1, %kv1 step<attention 0, mini_batch 1> : <1024, bytes>, <600, f32>, <1024, f32>
  %a1 = headrace.attention tokens(%meta) %r1, %k1 step<attention 0, mini_batch 1> : <1024, bytes>, <600, f32>, <1024, f32> -> <400, f32>
  %x1 = headrace.linear out tokens(%meta) %a1, %out[0 for 1000] step<attention 0, mini_batch 1> : <1024, bytes>, <400, f32>, <1000, f32> -> <400, f32>
}
