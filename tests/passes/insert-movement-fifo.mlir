// Layers' caches that are swapped whole, first in, first out: Pie's Figure 4, nine layers in seven places, a swap takes two
// layers' compute; but no swap is under way over an iteration's edge. And where a swap takes six, so that four take turns.
// RUN: %python %S/Inputs/model.py --layers 9 > %t.mlir
// RUN: headrace-opt %t.mlir -headrace-choose-homes="residency={kv=0-8@0 decode-write-back=all} kv-blocks=4 kv-block-bytes=2048" -headrace-insert-movement="residency={kv=0-8@0 kv-places=7 kv-fifo=2/2 decode-write-back=all mixed-write-back=all} phase=0" -headrace-verify-phase=phase=movement | FileCheck %s
// RUN: headrace-opt %t.mlir -headrace-choose-homes="residency={kv=0-8@0 decode-write-back=all} kv-blocks=4 kv-block-bytes=2048" -headrace-insert-movement="residency={kv=0-8@0 kv-places=7 kv-fifo=2/2 decode-write-back=all mixed-write-back=all} phase=1" -headrace-verify-phase=phase=movement | FileCheck %s --check-prefix=NEXT
// RUN: headrace-opt %t.mlir -headrace-choose-homes="residency={kv=0-8@0 decode-write-back=all} kv-blocks=4 kv-block-bytes=2048" -headrace-insert-movement="residency={kv=0-8@0 kv-places=7 kv-fifo=6/6/841 decode-write-back=all mixed-write-back=all} phase=0" -headrace-verify-phase=phase=movement | FileCheck %s --check-prefix=TURNS
// RUN: %not headrace-opt %t.mlir -headrace-choose-homes="residency={kv=0-8@0} kv-blocks=4 kv-block-bytes=2048" -headrace-insert-movement="residency={kv=0-8@0} phase=0" 2>&1 | FileCheck %s --check-prefix=PLACES
// RUN: %not headrace-opt %t.mlir -headrace-choose-homes="residency={kv=0-8@0} kv-blocks=4 kv-block-bytes=2048" -headrace-insert-movement="residency={kv=0-8@0 kv-places=7 kv-fifo=0/2} phase=0" 2>&1 | FileCheck %s --check-prefix=TIMES
// RUN: %not headrace-opt %t.mlir -headrace-choose-homes="residency={kv=0-8@0} kv-blocks=4 kv-block-bytes=2048" -headrace-insert-movement="residency={kv=0-8@0 kv-places=7 kv-fifo=2} phase=0" 2>&1 | FileCheck %s --check-prefix=TEXT

// PLACES: error: has no places that cycle: the residency names none (kv-places)
// TIMES: error: swaps tails while one layer computes, or more, got 0 in and 2 out
// TEXT: has 'kv-fifo=2', expected weights=

// Six of seven places hold a layer on entry, dirty but for what was brought at the end of the iteration before.
// CHECK: headrace.iteration @decode decode phase(movement) limits(8, 8, 2048) cycle(0 of 10)
// CHECK: headrace.carry %kv.7.tail[0 for 8192] in %slot.0[0] dirty :
// CHECK-NEXT: headrace.carry %kv.1.tail[0 for 8192] in %slot.1[0] dirty :
// CHECK-NEXT: headrace.carry %kv.8.tail[0 for 8192] in %slot.2[0] dirty :
// CHECK-NEXT: headrace.carry %kv.3.tail[0 for 8192] in %slot.3[0] dirty :
// CHECK-NEXT: headrace.carry %kv.0.tail[0 for 8192] in %slot.4[0] :
// CHECK-NEXT: headrace.carry %kv.5.tail[0 for 8192] in %slot.5[0] dirty :
// When layer 0 starts: the coldest is 8, the hottest on the host 2, the place that is empty 6.
// CHECK-NEXT: %[[HOME8:.*]], %{{.*}} = headrace.evict all %{{.*}}[0 for 8192] to %kv.8.tail step<movement 8, resizable
// CHECK-NEXT: %{{.*}}, %[[T2:.*]] = headrace.prefetch %kv.2.tail[0 for 8192] into %slot.6[0] step<movement 2, resizable
// CHECK: %{{.*}}, %[[A0:.*]] = headrace.rope_append {{.*}} step<attention 0
// CHECK-NOT: headrace.evict
// Two layers on, both are done: 1 goes, 4 comes into the place of 8.
// CHECK: %{{.*}}, %[[A1:.*]] = headrace.rope_append {{.*}} step<attention 1
// CHECK: headrace.evict all %[[A1]][0 for 8192] to %kv.1.tail
// CHECK-NEXT: headrace.prefetch %kv.4.tail[0 for 8192] into %slot.2[0]
// CHECK: headrace.wait %[[T2]]
// CHECK: headrace.rope_append {{.*}} step<attention 2
// CHECK: headrace.evict all %{{.*}} to %kv.3.tail
// CHECK-NEXT: headrace.prefetch %kv.6.tail[0 for 8192] into %slot.1[0]
// What went home in this iteration comes back from there.
// CHECK: headrace.evict all %{{.*}} to %kv.5.tail
// CHECK-NEXT: headrace.prefetch %[[HOME8]][0 for 8192] into %slot.3[0]
// Nothing begins that would not be over by the end: 7 and 8 swap nothing.
// CHECK: headrace.rope_append {{.*}} step<attention 6
// CHECK-NOT: headrace.evict
// CHECK-NOT: headrace.prefetch
// CHECK-COUNT-6: headrace.carry_out %{{.*}} dirty :
// CHECK-NOT: headrace.carry_out

// NEXT: cycle(1 of 10)
// NEXT-COUNT-6: headrace.carry %
// NEXT-NOT: headrace.carry %
// NEXT: headrace.carry_out

// 1, 3, 5, 7 and 8 stay; 0 is there, and the last place is empty: 2 comes into it at once.
// TURNS-COUNT-5: headrace.carry %{{.*}} dirty :
// TURNS: headrace.carry %kv.0.tail[0 for 8192] in %slot.5[0] :
// TURNS-NEXT: %{{.*}}, %[[T2:.*]] = headrace.prefetch %kv.2.tail[0 for 8192] into %slot.6[0]
// TURNS: headrace.rope_append {{.*}} step<attention 0
// TURNS: %[[HOME0:.*]], %{{.*}} = headrace.evict all %{{.*}} to %kv.0.tail
// TURNS-NEXT: headrace.prefetch %kv.4.tail[0 for 8192] into %slot.5[0]
// TURNS: headrace.wait %[[T2]]
// TURNS: headrace.rope_append {{.*}} step<attention 2
// TURNS: headrace.evict all %{{.*}} to %kv.2.tail
// TURNS-NEXT: headrace.prefetch %kv.6.tail[0 for 8192] into %slot.6[0]
// TURNS: headrace.evict all %{{.*}} to %kv.4.tail
// TURNS-NEXT: %[[NEXT0:.*]], %{{.*}} = headrace.prefetch %[[HOME0]][0 for 8192] into %slot.5[0]
// TURNS: headrace.evict all %{{.*}} to %kv.6.tail
// TURNS-NOT: headrace.prefetch
// TURNS-COUNT-5: headrace.carry_out %{{.*}} dirty :
// TURNS-NEXT: headrace.carry_out %[[NEXT0]] :
