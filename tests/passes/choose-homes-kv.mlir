// Caches that are split, of 4 blocks of 256 bytes: blocks from 2 on are at home on the host, from block 1 on rows are
// written there.
// RUN: headrace-opt %s -headrace-choose-homes="residency={kv=0@2} kv-blocks=4 kv-block-bytes=256 kv-mirror=1" -headrace-verify-phase=phase=homes | FileCheck %s
// RUN: headrace-opt %s -headrace-choose-homes="residency={kv=0@2} kv-blocks=4 kv-block-bytes=256 kv-mirror=2" | FileCheck %s --check-prefix=TAIL
// RUN: headrace-opt %s -headrace-choose-homes="kv-blocks=4 kv-block-bytes=256 kv-mirror=1" | FileCheck %s --check-prefix=ALL
// RUN: sed 's/limits(8, 8, 64)/limits(8, 8, 64) kv(2)/' %s | headrace-opt -headrace-choose-homes="residency={kv=0@2} kv-blocks=4 kv-block-bytes=256 kv-mirror=1" | FileCheck %s --check-prefix=FEW
// RUN: headrace-opt %s -headrace-choose-homes="residency={kv=0@2} kv-blocks=4 kv-block-bytes=256 kv-mirror=1" -headrace-insert-movement -headrace-verify-phase=phase=movement -headrace-assign-lanes -headrace-insert-waits -headrace-elide-waits -headrace-verify-phase=phase=lanes -headrace-place-on-host -headrace-place-buffers -headrace-verify-phase=phase=offsets | FileCheck %s --check-prefix=PLACED
// RUN: headrace-opt %s -headrace-choose-homes="residency={kv=0@2} kv-blocks=4 kv-block-bytes=256 kv-mirror=2" -headrace-insert-movement="residency={decode-cut=1}" -headrace-verify-phase=phase=movement -headrace-assign-lanes -headrace-insert-waits -headrace-elide-waits -headrace-verify-phase=phase=lanes | FileCheck %s --check-prefix=WRAP
// RUN: headrace-opt %s -headrace-choose-homes="residency={kv=0@2 decode-write-back=all} kv-blocks=4 kv-block-bytes=256 kv-mirror=1" -headrace-verify-phase=phase=homes | FileCheck %s --check-prefix=BACK
// RUN: headrace-opt %s -headrace-choose-homes="residency={kv=0@2 decode-write-back=dirty} kv-blocks=4 kv-block-bytes=256 kv-mirror=2" -headrace-verify-phase=phase=homes | FileCheck %s --check-prefix=ALONE
// RUN: headrace-opt %s -headrace-choose-homes="residency={kv=0@2 mixed-write-back=all} kv-blocks=4 kv-block-bytes=256 kv-mirror=1" -headrace-verify-phase=phase=homes | FileCheck %s
// RUN: headrace-opt %s -headrace-choose-homes="residency={kv=0@0} kv-blocks=4 kv-block-bytes=256 kv-mirror=0" -headrace-verify-phase=phase=homes | FileCheck %s --check-prefix=WHOLE
// RUN: headrace-opt %s -headrace-choose-homes="residency={kv=0@2} kv-blocks=4 kv-block-bytes=256 kv-mirror=0" -headrace-verify-phase=phase=homes | FileCheck %s --check-prefix=FROM0
// RUN: headrace-opt %s -headrace-choose-homes="residency={kv=0@0 decode-write-back=all} kv-blocks=4 kv-block-bytes=256 kv-mirror=0" -headrace-insert-movement="residency={decode-write-back=all}" -headrace-verify-phase=phase=movement -headrace-assign-lanes -headrace-insert-waits -headrace-elide-waits -headrace-verify-phase=phase=lanes -headrace-place-on-host -headrace-place-buffers -headrace-verify-phase=phase=offsets | FileCheck %s --check-prefix=ALLBACK
// RUN: sed 's/limits(8, 8, 64)/limits(8, 8, 64) kv(2)/' %s | %not headrace-opt -headrace-choose-homes="residency={kv=0@0} kv-blocks=4 kv-block-bytes=256 kv-mirror=0" 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: headrace-opt %s -headrace-choose-homes="residency={kv=0@0} kv-blocks-here=3 kv-blocks=4 kv-block-bytes=256 kv-mirror=0" -headrace-verify-phase=phase=homes | FileCheck %s --check-prefix=THREE
// RUN: headrace-opt %s -headrace-choose-homes="kv-blocks-here=3 kv-blocks=4 kv-block-bytes=256 kv-mirror=0" -headrace-verify-phase=phase=homes | FileCheck %s --check-prefix=THREEHERE
// RUN: %not headrace-opt %s -headrace-choose-homes="residency={kv=0@0} kv-blocks-here=5 kv-blocks=4 kv-block-bytes=256" 2>&1 | FileCheck %s --check-prefix=FIVE
// RUN: %not headrace-opt %s -headrace-choose-homes="residency={kv=0@4} kv-blocks=4 kv-block-bytes=256" 2>&1 | FileCheck %s --check-prefix=BEYOND
// RUN: %not headrace-opt %s -headrace-choose-homes="residency={kv=0@2 start=paper} kv-blocks=4 kv-block-bytes=256" -headrace-insert-movement="residency={kv=0@2 start=paper}" 2>&1 | FileCheck %s --check-prefix=PAPER
// RUN: %not headrace-opt %s -headrace-choose-homes="residency={kv=0@2} kv-blocks=4 kv-block-bytes=256 kv-mirror=2" -headrace-insert-movement="residency={decode-cut=0+256}" 2>&1 | FileCheck %s --check-prefix=PART

// FIVE: error: has 5 blocks of each cache, there are 4
// BEYOND: error: kv 0 cannot be split at block 4: there are 4
// PAPER: error: moves tails of caches under the rule eager only, not under paper
// PART: error: cannot wrap a part of 'kv.0.tail' around: how much of it is in use is not known before

// The blocks that stay, the tail and the mirror; the tail is brought to where append and attention use it.
// CHECK: %kv.0 = headrace.kv 0 : <512, f32>
// CHECK: %kv.0.mirror = headrace.kv 0 mirror : <host, 256, f32>
// CHECK: %kv.0.tail = headrace.kv 0 tail : <host, 512, f32>
// CHECK: %d.kv.0.tail = headrace.on_device %kv.0.tail : <host, 512, f32> -> <512, f32>
// CHECK: %rotated, %appended:4 = headrace.rope_append tokens(%meta) %output, %kv.0, %d.kv.0.tail home %kv.0.tail, %kv.0.mirror step<attention 0, direct> : <512, bytes>, <600, f32>, <512, f32>, <512, f32>, <host, 512, f32>, <host, 256, f32>
// CHECK: headrace.attention tokens(%meta) %rotated, %appended#0, %appended#1 step<attention 0>

// Nothing in front of the tail is mirrored.
// TAIL-NOT: mirror
// TAIL: headrace.rope_append tokens(%meta) %output, %kv.0, %d.kv.0.tail home %kv.0.tail step<attention 0, direct>

// All blocks are on the device, and other placements have them elsewhere.
// ALL: %kv.0 = headrace.kv 0 : <1024, f32>
// ALL-NOT: tail
// ALL: headrace.kv 0 mirror : <host, 768, f32>
// ALL: headrace.rope_append tokens(%meta) %output, %kv.0 home %kv.0.mirror step<attention 0, direct>

// Of 4 blocks this placement has 3: all of them on the host, or all on the device and mirrored.
// THREE: %kv.0.tail = headrace.kv 0 tail : <host, 768, f32>
// THREE: headrace.on_device %kv.0.tail : <host, 768, f32> -> <768, f32>
// THREEHERE: %kv.0 = headrace.kv 0 : <768, f32>
// THREEHERE-NOT: tail
// THREEHERE: headrace.kv 0 mirror : <host, 768, f32>

// With blocks below 2 in use, no tail is brought, and block 1 is still mirrored.
// FEW: limits(8, 8, 64) kv(2)
// FEW-NOT: on_device
// FEW: headrace.rope_append tokens(%meta) %output, %kv.0 home %kv.0.mirror step<attention 0, direct>
// FEW: headrace.attention tokens(%meta) %rotated, %appended#0 step<attention 0>

// A launch may bring what is in use of it, into a slot of its own; on the host the tail lies behind the mirror.
// PLACED: headrace.kv 0 mirror at 0 : <host, 256, f32>
// PLACED: headrace.kv 0 tail at 256 : <host, 512, f32>
// PLACED: headrace.slot 0 at {{[0-9]+}} : slot<512>
// PLACED: headrace.prefetch %kv.0.tail[0 for 512] into %slot.0[0] step<movement 0 on h2d, resizable, device_bytes 512, link_bytes 512>
// PLACED: headrace.wait raw %t.kv.0.tail on compute
// PLACED: headrace.rope_append

// Carried from one iteration to the next: the tail for the next one is copied once this one's rows are at home.
// WRAP: headrace.carry %kv.0.tail[0 for 512] in %slot.0[0]
// WRAP: %[[ROTATED:.*]], %[[APPENDED:.*]]:3 = headrace.rope_append
// WRAP: headrace.attention
// WRAP: headrace.release %[[APPENDED]]#1
// WRAP: headrace.wait war
// WRAP: headrace.prefetch %[[APPENDED]]#2[0 for 512] into %slot.0[0]
// WRAP: headrace.carry_out

// NONE: error: brings no tail, and no block of kv 0 is at home on the device

// What is written back is appended to where it was brought; the mirror is still written directly.
// BACK: %kv.0.mirror = headrace.kv 0 mirror : <host, 256, f32>
// BACK: %rotated, %appended:3 = headrace.rope_append tokens(%meta) %output, %kv.0, %d.kv.0.tail home %kv.0.mirror step<attention 0, direct> : <512, bytes>, <600, f32>, <512, f32>, <512, f32>, <host, 256, f32>
// BACK: headrace.attention tokens(%meta) %rotated, %appended#0, %appended#1 step<attention 0>

// Without one the step writes nothing on the host.
// ALONE: %rotated, %appended:2 = headrace.rope_append tokens(%meta) %output, %kv.0, %d.kv.0.tail step<attention 0> : <512, bytes>, <600, f32>, <512, f32>, <512, f32>
// ALONE: headrace.attention tokens(%meta) %rotated, %appended#0, %appended#1 step<attention 0>

// From block 0 on: the tail is all there is.
// WHOLE-NOT: headrace.kv 0 :
// WHOLE: %kv.0.tail = headrace.kv 0 tail : <host, 1024, f32>
// WHOLE: %rotated, %appended:2 = headrace.rope_append tokens(%meta) %output, %d.kv.0.tail home %kv.0.tail step<attention 0, direct> : <512, bytes>, <600, f32>, <1024, f32>, <host, 1024, f32>
// WHOLE: headrace.attention tokens(%meta) %rotated, %appended#0 step<attention 0>

// Where another placement has it so, all of these are mirrored, the scratch block as well.
// FROM0: %kv.0 = headrace.kv 0 : <512, f32>
// FROM0: %kv.0.mirror = headrace.kv 0 mirror : <host, 512, f32>

// ALLBACK: %kv.0.tail = headrace.kv 0 tail at 0 : <host, 1024, f32>
// ALLBACK: %[[T:.*]], %{{.*}} = headrace.prefetch %kv.0.tail[0 for 1024]
// ALLBACK: %rotated, %appended = headrace.rope_append tokens(%meta) %output, %[[T]] step<attention 0 on compute>
// ALLBACK: headrace.wait raw %rotated on d2h
// ALLBACK: headrace.evict all %appended[0 for 1024] to %kv.0.tail step<movement 0 on d2h, resizable, device_bytes 1024, link_bytes 1024>
// ALLBACK-NOT: headrace.release
headrace.iteration @decode decode phase(model) limits(8, 8, 64) {
  %meta = headrace.io meta : <512, bytes>
  %qkv = headrace.io output : <600, f32>
  %kv = headrace.kv 0 : <1024, f32>
  %r, %k = headrace.rope_append tokens(%meta) %qkv, %kv step<attention 0> : <512, bytes>, <600, f32>, <1024, f32>
  %a = headrace.attention tokens(%meta) %r, %k step<attention 0> : <512, bytes>, <600, f32>, <1024, f32> -> <400, f32>
}
