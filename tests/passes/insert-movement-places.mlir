// Tails of caches that cycle through places. Five layers in four places: the first iteration of a cycle of 12.
// RUN: %python %S/Inputs/model.py --layers 5 > %t.mlir
// RUN: headrace-opt %t.mlir -headrace-choose-homes="residency={kv=0-4@2} kv-blocks=4 kv-block-bytes=2048 kv-mirror=2" -headrace-insert-movement="residency={kv=0-4@2 kv-places=4} phase=0" -headrace-verify-phase=phase=movement | FileCheck %s
// RUN: headrace-opt %t.mlir -headrace-choose-homes="residency={kv=0-4@2 decode-write-back=all} kv-blocks=4 kv-block-bytes=2048 kv-mirror=2" -headrace-insert-movement="residency={kv=0-4@2 kv-places=4 decode-write-back=all mixed-write-back=all} phase=0" -headrace-verify-phase=phase=movement | FileCheck %s --check-prefix=WHOLE
// RUN: headrace-opt %t.mlir -headrace-choose-homes="residency={kv=0-4@2 decode-write-back=dirty} kv-blocks=4 kv-block-bytes=2048 kv-mirror=2" -headrace-insert-movement="residency={kv=0-4@2 kv-places=4 decode-write-back=dirty} phase=2" -headrace-verify-phase=phase=movement | FileCheck %s --check-prefix=DIRTY
// RUN: headrace-opt %t.mlir -headrace-choose-homes="residency={weights=5-8,13-16 kv=0-4@2} kv-blocks=4 kv-block-bytes=2048 kv-mirror=2" -headrace-insert-movement="residency={weights=5-8,13-16 slots=1 kv=0-4@2 kv-places=4 decode-cut=1} phase=0" -headrace-verify-phase=phase=movement | FileCheck %s --check-prefix=WEIGHTS
// RUN: %not headrace-opt %t.mlir -headrace-choose-homes="residency={kv=0-4@2} kv-blocks=4 kv-block-bytes=2048 kv-mirror=2" -headrace-insert-movement="residency={kv=0-4@2 kv-places=4} phase=12" 2>&1 | FileCheck %s --check-prefix=BEYOND
// RUN: %not headrace-opt %t.mlir -headrace-choose-homes="residency={kv=0-4@2} kv-blocks=4 kv-block-bytes=2048 kv-mirror=2" -headrace-insert-movement="residency={kv=0-4@2 kv-places=4}" 2>&1 | FileCheck %s --check-prefix=UNSAID
// RUN: %not headrace-opt %t.mlir -headrace-choose-homes="residency={kv=0-4@2} kv-blocks=4 kv-block-bytes=2048 kv-mirror=2" -headrace-insert-movement="residency={kv=0-4@2} phase=0" 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: %not headrace-opt %t.mlir -headrace-choose-homes="residency={kv=0-4@2} kv-blocks=4 kv-block-bytes=2048 kv-mirror=2" -headrace-insert-movement="residency={kv=0-4@2 kv-places=5} phase=0" 2>&1 | FileCheck %s --check-prefix=ALL
// RUN: %not headrace-opt %t.mlir -headrace-choose-homes="residency={weights=5-8 kv=0-4@2} kv-blocks=4 kv-block-bytes=2048 kv-mirror=2" -headrace-insert-movement="residency={weights=5-8 slots=1 kv=0-4@2 kv-places=4 decode-cut=5} phase=0" 2>&1 | FileCheck %s --check-prefix=CUT
// RUN: %not headrace-opt %t.mlir -headrace-insert-movement="residency={kv=0-4@2 kv-places=4} phase=0" 2>&1 | FileCheck %s --check-prefix=EARLY

// BEYOND: error: is number 12 of 12, but 5 tails in 4 places take a cycle of 12
// UNSAID: error: is number 0 of 1, but 5 tails in 4 places take a cycle of 12
// NONE: error: has no places that cycle: the residency names none (kv-places)
// ALL: error: needs fewer places than the 5 tails of caches that cycle through them, got 5: nothing would move
// CUT: error: cannot wrap 5 movables and 0 bytes around: there are 4 weights that are moved
// EARLY: error: movement is inserted in the homes phase, not in phase model

// A place each, with what the iteration before has left there.
// CHECK: headrace.iteration @decode decode phase(movement) limits(8, 8, 2048) cycle(0 of 12)
// CHECK: headrace.slot 3 : slot<4096>
// CHECK-NOT: headrace.slot 4
// CHECK: %[[D0:.*]] = headrace.carry %kv.0.tail[0 for 4096] in %slot.0[0] :
// CHECK-NEXT: %[[D1:.*]] = headrace.carry %kv.1.tail[0 for 4096] in %slot.1[0] :
// CHECK-NEXT: %[[D3:.*]] = headrace.carry %kv.3.tail[0 for 4096] in %slot.2[0] :
// CHECK-NEXT: %[[D4:.*]] = headrace.carry %kv.4.tail[0 for 4096] in %slot.3[0] :
// Layer 2 comes into the place of 0 while 1 is visited.
// CHECK: %{{.*}}, %[[A0:.*]]:3 = headrace.rope_append {{.*}} %[[D0]] home %kv.0.tail
// CHECK: headrace.attention
// CHECK-NEXT: headrace.release %[[A0]]#1
// CHECK-NEXT: %[[D2:.*]], %[[T2:.*]] = headrace.prefetch %kv.2.tail[0 for 4096] into %slot.0[0] step<movement 2, resizable
// CHECK: %{{.*}}, %[[A1:.*]]:3 = headrace.rope_append {{.*}} %[[D1]] home
// CHECK-NOT: headrace.release
// CHECK: headrace.wait %[[T2]]
// CHECK-NEXT: %{{.*}}, %[[A2:.*]]:3 = headrace.rope_append {{.*}} %[[D2]] home
// CHECK: %{{.*}}, %[[A3:.*]]:3 = headrace.rope_append {{.*}} %[[D3]] home
// Layer 0 comes for the next iteration, with what this one has appended.
// CHECK: headrace.release %[[A3]]#1
// CHECK-NEXT: %[[N0:.*]], %{{.*}} = headrace.prefetch %[[A0]]#2[0 for 4096] into %slot.2[0]
// CHECK: %{{.*}}, %[[A4:.*]]:3 = headrace.rope_append {{.*}} %[[D4]] home
// CHECK: headrace.carry_out %[[A2]]#1 :
// CHECK-NEXT: headrace.carry_out %[[A1]]#1 :
// CHECK-NEXT: headrace.carry_out %[[N0]] :
// CHECK-NEXT: headrace.carry_out %[[A4]]#1 :

// Written back whole where a place is given up, dirty over the edge until then.
// WHOLE: headrace.carry %kv.0.tail[0 for 4096] in %slot.0[0] dirty :
// WHOLE: headrace.rope_append {{.*}} step<attention 0
// WHOLE: %[[H0:.*]], %{{.*}} = headrace.evict all %{{.*}}[0 for 4096] to %kv.0.tail step<movement 0, resizable
// WHOLE-NEXT: headrace.prefetch %kv.2.tail[0 for 4096] into %slot.0[0]
// WHOLE: headrace.evict all %{{.*}}[0 for 4096] to %kv.3.tail
// WHOLE-NEXT: %[[N0:.*]], %{{.*}} = headrace.prefetch %[[H0]][0 for 4096] into %slot.2[0]
// WHOLE-NOT: headrace.evict
// WHOLE: headrace.carry_out %{{.*}} dirty :
// WHOLE-NEXT: headrace.carry_out %{{.*}} dirty :
// WHOLE-NEXT: headrace.carry_out %[[N0]] :
// WHOLE-NEXT: headrace.carry_out %{{.*}} dirty :

// What an iteration writes goes home in it, of every layer: nothing is dirty at its edges. Phase 2 moves one tail.
// DIRTY: headrace.carry %kv.2.tail[0 for 4096] in %slot.0[0] :
// DIRTY-COUNT-2: headrace.evict dirty keeping
// DIRTY-NOT: headrace.prefetch
// DIRTY: headrace.evict dirty keeping %[[A2:.*]][0 for 4096] to %kv.2.tail
// DIRTY-NEXT: headrace.release %[[A2]]
// DIRTY-NEXT: headrace.prefetch %kv.4.tail[0 for 4096] into %slot.0[0]
// DIRTY-COUNT-2: headrace.evict dirty keeping
// DIRTY-NOT: dirty :

// Weights in a slot of their own, around the edge by the cut; copies stand in the order of what they are for.
// WEIGHTS: headrace.slot 4 : slot<4096>
// WEIGHTS: headrace.carry %layers.1.qkv[0 for 4096] in %slot.0[0]
// WEIGHTS-NEXT: headrace.carry %kv.0.tail[0 for 4096] in %slot.1[0]
// WEIGHTS: headrace.prefetch %layers.1.down
// WEIGHTS: headrace.prefetch %kv.2.tail[0 for 4096] into %slot.1[0]
// WEIGHTS: headrace.prefetch %layers.3.qkv
// WEIGHTS: headrace.prefetch %layers.3.down
// WEIGHTS: headrace.prefetch %{{.*}}[0 for 4096] into %slot.3[0] step<movement 0
// WEIGHTS: headrace.prefetch %layers.1.qkv[0 for 4096] into %slot.0[0]
