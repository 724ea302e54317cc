// RUN: headrace-opt %s -headrace-place-on-host -headrace-place-buffers=kv-align=4096 | FileCheck %s
// RUN: not headrace-opt %s -headrace-place-on-host -headrace-place-buffers=kv-align=100 2>&1 | FileCheck %s --check-prefix=REFUSED

// Caches that are to grow begin and end with whole pages: io 0 .. 1024, kv.0 of 5000 bytes 4096 .. 12288, kv.1
// 12288 .. 20480; what comes then begins there.
// REFUSED: kv-align is 100, expected a multiple of 256

// CHECK-LABEL: headrace.iteration @decode
headrace.iteration @decode decode phase(lanes) limits(8, 8, 2048) {
  // CHECK: headrace.io meta at 0
  %meta = headrace.io meta : <512, bytes>
  %sampled = headrace.io sampled : <32, bytes>
  %output = headrace.io output : <32, bytes>
  // CHECK: headrace.weight 0 "embedding" embedding at 20480
  %embedding = headrace.weight 0 "embedding" embedding : <2000, bf16>
  // CHECK: headrace.kv 0 at 4096
  // CHECK: headrace.kv 1 at 12288
  %kv0 = headrace.kv 0 : <5000, bf16>
  %kv1 = headrace.kv 1 : <5000, bf16>
}
