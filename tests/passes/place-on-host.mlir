// RUN: headrace-opt %s -headrace-place-on-host="at={weight:1@4096 weight:2@8192}" -headrace-place-buffers | FileCheck %s
// RUN: headrace-opt %s -headrace-place-on-host -headrace-place-buffers | FileCheck %s --check-prefix=PLAIN
// RUN: %not headrace-opt %s -headrace-place-buffers 2>&1 | FileCheck %s --check-prefix=FIRST
// RUN: %not headrace-opt %s -headrace-place-on-host="at={weight:1@4096}" 2>&1 | FileCheck %s --check-prefix=FEW
// RUN: %not headrace-opt %s -headrace-place-on-host="at={unit:1@0}" 2>&1 | FileCheck %s --check-prefix=TEXT
// RUN: %not headrace-opt %s -headrace-place-on-host -headrace-place-buffers -headrace-place-on-host="at={weight:1@0}" 2>&1 | FileCheck %s --check-prefix=PHASE

// FIRST: error: has no address in the host slab: place-on-host comes first
// FEW: error: 'b' has no address in the host slab
// TEXT: addresses have 'unit:1@0', expected such as weight:3@4096
// PHASE: error: the host slab is laid out in the lanes phase, not in phase offsets

headrace.iteration @decode decode phase(lanes) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  // A unit on the device has an address there; the others lie where the plan says, or one behind the other.
  // CHECK: headrace.weight 0 "w" qkv layer 0 at 512
  %w = headrace.weight 0 "w" qkv layer 0 : <1000, bf16>
  // CHECK: headrace.weight 1 "a" out layer 0 at 4096 : <host
  // PLAIN: headrace.weight 1 "a" out layer 0 at 0 : <host
  %a = headrace.weight 1 "a" out layer 0 : <host, 1000, bf16>
  // CHECK: headrace.weight 2 "b" up layer 0 at 8192 : <host
  // PLAIN: headrace.weight 2 "b" up layer 0 at 1024 : <host
  %b = headrace.weight 2 "b" up layer 0 : <host, 600, bf16>
}
