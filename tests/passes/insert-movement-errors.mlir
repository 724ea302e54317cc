// What insert-movement refuses. Each run has its own options, so each error its own prefix.
// RUN: %not headrace-opt %s -headrace-insert-movement="residency={slots=-1}" 2>&1 | FileCheck %s --check-prefix=SLOTS
// RUN: %not headrace-opt %s -headrace-insert-movement="residency={ring=-1}" 2>&1 | FileCheck %s --check-prefix=NEGATIVE-RING
// RUN: %not headrace-opt %s -headrace-insert-movement="residency={ring=1023}" 2>&1 | FileCheck %s --check-prefix=SMALL-RING
// RUN: %not headrace-opt %s -headrace-insert-movement="residency={slots=1 ring=2048}" 2>&1 | FileCheck %s --check-prefix=RING-AND-SLOTS
// RUN: %not headrace-opt %s -headrace-insert-movement="residency={ring=2048 decode-cut=3}" 2>&1 | FileCheck %s --check-prefix=RING-HELD
// RUN: %not headrace-opt %s -headrace-insert-movement="residency={start=paper ring=2048}" 2>&1 | FileCheck %s --check-prefix=PAPER-RING
// RUN: %not headrace-opt %s -headrace-insert-movement="residency={decode-cut=-1}" 2>&1 | FileCheck %s --check-prefix=NEGATIVE
// RUN: %not headrace-opt %s -headrace-insert-movement="residency={decode-cut=0+-1}" 2>&1 | FileCheck %s --check-prefix=NEGATIVE-BYTES
// RUN: %not headrace-opt %s -headrace-insert-movement="residency={decode-cut=4}" 2>&1 | FileCheck %s --check-prefix=UNITS
// RUN: %not headrace-opt %s -headrace-insert-movement="residency={slots=3 decode-cut=3+256}" 2>&1 | FileCheck %s --check-prefix=BEYOND
// RUN: %not headrace-opt %s -headrace-insert-movement="residency={decode-cut=0+1000}" 2>&1 | FileCheck %s --check-prefix=BYTES
// RUN: %not headrace-opt %s -headrace-insert-movement="residency={slots=1 decode-cut=2}" 2>&1 | FileCheck %s --check-prefix=HELD
// RUN: %not headrace-opt %s -headrace-insert-movement -headrace-insert-movement 2>&1 | FileCheck %s --check-prefix=TWICE

// SLOTS: a residency has 'slots=-1', expected
// NEGATIVE-RING: a residency has 'ring=-1', expected
// SMALL-RING: error: '{{.*}}' brings 1000 bytes, more than the ring of 1023
// RING-AND-SLOTS: a residency has either item-sized slots or a ring, got 1 slots and a ring of 2048 bytes
// RING-HELD: error: 'q2' cannot be there on entry: an earlier one lies in its range of slot 0
// PAPER-RING: error: has item-sized slots under the rule paper, not a ring
// NEGATIVE: a residency has 'decode-cut=-1', expected
// NEGATIVE-BYTES: a residency has 'decode-cut=0+-1', expected
// UNITS: error: cannot wrap 4 movables and 0 bytes around: there are 3 that are moved
// BEYOND: error: cannot wrap 3 movables and 256 bytes around: there are 3 that are moved
// BYTES: error: cannot wrap 1000 bytes of 'q0' around: it has 1000, and part of it must be left
// HELD: error: 'q1' cannot be there on entry: an earlier one lies in its range of slot 0
// TWICE: error: movement is inserted in the homes phase, not in phase movement

headrace.iteration @three decode phase(homes) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %x = headrace.io sampled : <400, f32>
  %q0 = headrace.weight 0 "q0" qkv layer 0 : <host, 1000, bf16>
  %q1 = headrace.weight 1 "q1" qkv layer 1 : <host, 1000, bf16>
  %q2 = headrace.weight 2 "q2" qkv layer 2 : <host, 1000, bf16>
  %d0 = headrace.on_device %q0 : <host, 1000, bf16> -> <1000, bf16>
  %x0 = headrace.norm qkv tokens(%meta) %x, %d0[0 for 100] step<attention 0> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
  %d1 = headrace.on_device %q1 : <host, 1000, bf16> -> <1000, bf16>
  %x1 = headrace.norm qkv tokens(%meta) %x0, %d1[0 for 100] step<attention 1> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
  %d2 = headrace.on_device %q2 : <host, 1000, bf16> -> <1000, bf16>
  %x2 = headrace.norm qkv tokens(%meta) %x1, %d2[0 for 100] step<attention 2> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
}
