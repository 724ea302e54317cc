// Two caches of three blocks of 256 bytes in one range, block by block: 1,536 bytes; what persists above begins there.
// RUN: headrace-opt %s -headrace-choose-homes="kv-blocks=3 kv-block-bytes=256 kv-interleaved=true" -headrace-insert-movement -headrace-assign-lanes -headrace-insert-waits -headrace-elide-waits -headrace-place-on-host -headrace-place-buffers -headrace-verify-phase=phase=offsets | FileCheck %s
// Of four that another placement has the last is not here.
// RUN: headrace-opt %s -headrace-choose-homes="kv-blocks=4 kv-blocks-here=2 kv-block-bytes=256 kv-interleaved=true" | FileCheck %s --check-prefix=FEWER
// The first two stay, the third is at home on the host, one behind the other as any tail.
// RUN: headrace-opt %s -headrace-choose-homes="residency={kv=0-1@2} kv-blocks=3 kv-block-bytes=256 kv-mirror=2 kv-interleaved=true" -headrace-insert-movement="residency={kv=0-1@2}" -headrace-assign-lanes -headrace-insert-waits -headrace-elide-waits -headrace-place-on-host -headrace-place-buffers -headrace-verify-phase=phase=offsets | FileCheck %s --check-prefix=SPLIT
// None is on the device: nothing is interleaved.
// RUN: headrace-opt %s -headrace-choose-homes="residency={kv=0-1@0} kv-blocks=3 kv-block-bytes=256 kv-mirror=0 kv-interleaved=true" | FileCheck %s --check-prefix=NONE

// CHECK: arena(
// CHECK: %kv.0 = headrace.kv 0 interleaved(256 by 512) at 768 : <768, f32>
// CHECK-NEXT: %kv.1 = headrace.kv 1 interleaved(256 by 512) at 1024 : <768, f32>
// CHECK: headrace.linear {{.*}} at 2304
// FEWER: %kv.0 = headrace.kv 0 interleaved(256 by 512) : <512, f32>
// FEWER-NEXT: %kv.1 = headrace.kv 1 interleaved(256 by 512) : <512, f32>
// SPLIT: %kv.0 = headrace.kv 0 interleaved(256 by 512) at 768 : <512, f32>
// SPLIT-NEXT: %kv.0.tail = headrace.kv 0 tail at 0 : <host, 256, f32>
// SPLIT: %kv.1 = headrace.kv 1 interleaved(256 by 512) at 1024 : <512, f32>
// SPLIT-NEXT: %kv.1.tail = headrace.kv 1 tail at 256 : <host, 256, f32>
// NONE-NOT: interleaved
headrace.iteration @decode decode phase(model) limits(8, 8, 64) {
  %kv = headrace.kv 0 : <768, f32>
  %kv1 = headrace.kv 1 : <768, f32>
  %meta = headrace.io meta : <512, bytes>
  %u = headrace.weight 0 "layers.0.qkv" qkv layer 0 : <1024, f32>
  %u1 = headrace.weight 1 "layers.1.qkv" qkv layer 1 : <1024, f32>
  %x = headrace.io sampled : <256, f32>
  %q = headrace.linear qkv tokens(%meta) %x, %u[0 for 1024] step<attention 0> : <512, bytes>, <256, f32>, <1024, f32> -> <256, f32>
  %r, %a = headrace.rope_append tokens(%meta) %q, %kv step<attention 0> : <512, bytes>, <256, f32>, <768, f32>
  %o = headrace.attention tokens(%meta) %r, %a step<attention 0> : <512, bytes>, <256, f32>, <768, f32> -> <256, f32>
  %q1 = headrace.linear qkv tokens(%meta) %o, %u1[0 for 1024] step<attention 1> : <512, bytes>, <256, f32>, <1024, f32> -> <256, f32>
  %r1, %a1 = headrace.rope_append tokens(%meta) %q1, %kv1 step<attention 1> : <512, bytes>, <256, f32>, <768, f32>
  %o1 = headrace.attention tokens(%meta) %r1, %a1 step<attention 1> : <512, bytes>, <256, f32>, <768, f32> -> <256, f32>
}
