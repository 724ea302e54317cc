// RUN: headrace-opt %s -headrace-price-direct="device-bytes=512 link-bytes=64 append-device-bytes=96 append-link-bytes=48 keep-device-bytes=24 keep-link-bytes=12" | FileCheck %s
// RUN: %not headrace-opt %s -headrace-choose-homes 2>&1 | FileCheck %s --check-prefix=PHASE
// RUN: sed s/homes/lanes/ %s | %not headrace-opt -headrace-price-direct 2>&1 | FileCheck %s --check-prefix=LANES

// PHASE: homes are chosen in the model phase, not in phase homes
// LANES: direct steps are priced in the homes phase, not in phase lanes

headrace.iteration @decode decode phase(homes) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %sampled = headrace.io sampled : <32, bytes>
  %history = headrace.io history : <64, bytes>
  %e = headrace.weight 0 "e" embedding : <host, 2000, bf16>
  %w = headrace.weight 1 "w" qkv layer 0 : <1000, bf16>
  // What reads over the link has the amounts of that, and nothing else has.
  // CHECK: headrace.embed {{.*}} step<embedding, direct, device_bytes 512, link_bytes 64>
  %x, %ids = headrace.embed tokens(%meta) %e[0 for 2000], %sampled, %history step<embedding, direct, device_bytes 2000> : <512, bytes>, <host, 2000, bf16>, <32, bytes>, <64, bytes> -> <400, f32>
  %qkv = headrace.io output : <600, f32>
  %kv = headrace.kv 0 : <256, f32>
  %tail = headrace.kv 0 tail : <host, 512, f32>
  // CHECK: headrace.norm {{.*}} step<attention 0, device_bytes 300>
  %n = headrace.norm qkv tokens(%meta) %x, %w[0 for 100] step<attention 0, device_bytes 300> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
  // What writes over the link has the amounts of that.
  // CHECK: headrace.rope_append {{.*}} step<attention 0, direct, device_bytes 96, link_bytes 48>
  %r, %k, %h = headrace.rope_append tokens(%meta) %qkv, %kv home %tail step<attention 0, direct, device_bytes 90> : <512, bytes>, <600, f32>, <256, f32>, <host, 512, f32>
  // What keeps activations over the link has the amounts of that.
  // CHECK: headrace.act_append {{.*}} step<attention 0, direct, device_bytes 24, link_bytes 12>
  %act = headrace.act 0 : <host, 512, f32>
  %a = headrace.act_append tokens(%meta) %n, %act step<attention 0, direct, device_bytes 20> : <512, bytes>, <400, f32>, <host, 512, f32>
}
