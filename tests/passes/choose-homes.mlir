// RUN: headrace-opt %s -headrace-choose-homes="residency={weights=2-3}" | FileCheck %s --check-prefix=LAYER
// RUN: headrace-opt %s -headrace-choose-homes="residency={weights=0,4}" | FileCheck %s --check-prefix=ENDS
// RUN: headrace-opt %s -headrace-choose-homes="residency={weights=1,3}" | FileCheck %s --check-prefix=UNITS
// RUN: headrace-opt %s -headrace-choose-homes="residency={weights=1-3}" | FileCheck %s --check-prefix=BOTH
// RUN: headrace-opt %s -headrace-choose-homes | FileCheck %s --check-prefix=NONE
// RUN: %not headrace-opt %s -headrace-choose-homes="residency={weights=1,5}" 2>&1 | FileCheck %s --check-prefix=NO-UNIT
// RUN: %not headrace-opt %s -headrace-choose-homes="residency={kv=0}" 2>&1 | FileCheck %s --check-prefix=KV
// RUN: %not headrace-opt %s -headrace-choose-homes="residency={act=1}" 2>&1 | FileCheck %s --check-prefix=ACT
// RUN: %not headrace-opt %s -headrace-choose-homes="residency={weights=-1}" 2>&1 | FileCheck %s --check-prefix=TEXT
// RUN: %not headrace-opt %s -headrace-choose-homes -headrace-choose-homes 2>&1 | FileCheck %s --check-prefix=TWICE

// NO-UNIT: error: weight 5 cannot be offloaded: the model has no such buffer
// KV: error: kv 0 cannot be split at block 0: there are 0
// ACT: error: act 1 cannot be offloaded: the model has no such buffer
// TEXT: a residency has 'weights=-1', expected weights=, kv= or act=
// TWICE: error: homes are chosen in the model phase, not in phase homes

// Single units by number, of any layer, and ranges of them.
// UNITS-LABEL: headrace.iteration @decode decode phase(homes)
// UNITS: headrace.weight 1 "layers.0.qkv" qkv layer 0 : <host, 1000, bf16>
// UNITS: headrace.weight 2 "layers.1.qkv" qkv layer 1 : <1000, bf16>
// UNITS: headrace.weight 3 "layers.1.out" out layer 1 : <host, 600, bf16>
// UNITS: headrace.on_device %layers.0.qkv
// UNITS: headrace.on_device %layers.1.out
// UNITS-NOT: on_device
// BOTH-LABEL: headrace.iteration @decode decode phase(homes)
// BOTH: headrace.weight 1 "layers.0.qkv" qkv layer 0 : <host, 1000, bf16>
// BOTH: headrace.weight 2 "layers.1.qkv" qkv layer 1 : <host, 1000, bf16>
// BOTH: headrace.weight 3 "layers.1.out" out layer 1 : <host, 600, bf16>
// BOTH-COUNT-3: headrace.on_device
// BOTH-NOT: on_device

// LAYER-LABEL: headrace.iteration @decode decode phase(homes)
// ENDS-LABEL: headrace.iteration @decode decode phase(homes)
// NONE-LABEL: headrace.iteration @decode decode phase(homes)
headrace.iteration @decode decode phase(model) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %sampled = headrace.io sampled : <32, bytes>
  %history = headrace.io history : <64, bytes>
  // The head is tied: its matrix is the embedding, its unit has the final norm.
  // LAYER: headrace.weight 0 "embedding" embedding : <2000, bf16>
  // ENDS: headrace.weight 0 "embedding" embedding : <host, 2000, bf16>
  %embedding = headrace.weight 0 "embedding" embedding : <2000, bf16>
  // LAYER: headrace.weight 1 "layers.0.qkv" qkv layer 0 : <1000, bf16>
  // ENDS: headrace.weight 1 "layers.0.qkv" qkv layer 0 : <1000, bf16>
  %qkv0 = headrace.weight 1 "layers.0.qkv" qkv layer 0 : <1000, bf16>
  // LAYER: headrace.weight 2 "layers.1.qkv" qkv layer 1 : <host, 1000, bf16>
  // LAYER: headrace.weight 3 "layers.1.out" out layer 1 : <host, 600, bf16>
  %qkv1 = headrace.weight 2 "layers.1.qkv" qkv layer 1 : <1000, bf16>
  %out1 = headrace.weight 3 "layers.1.out" out layer 1 : <600, bf16>
  // LAYER: headrace.weight 4 "head" head : <200, bf16>
  // ENDS: headrace.weight 4 "head" head : <host, 200, bf16>
  %head = headrace.weight 4 "head" head : <200, bf16>

  // An offloaded embedding is read where it is.
  // LAYER: headrace.embed tokens(%meta) %embedding[0 for 2000], %sampled, %history step<embedding> : <512, bytes>, <2000, bf16>,
  // ENDS: headrace.embed tokens(%meta) %embedding[0 for 2000], %sampled, %history step<embedding, direct> : <512, bytes>, <host, 2000, bf16>,
  // NONE-NOT: direct
  // NONE-NOT: on_device
  %x, %ids = headrace.embed tokens(%meta) %embedding[0 for 2000], %sampled, %history step<embedding> : <512, bytes>, <2000, bf16>, <32, bytes>, <64, bytes> -> <400, f32>
  // ENDS-NOT: on_device
  // LAYER-NEXT: headrace.norm qkv tokens(%meta) %x, %layers.0.qkv[0 for 100]
  %n0 = headrace.norm qkv tokens(%meta) %x, %qkv0[0 for 100] step<attention 0> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
  // One on_device a unit, before its first use.
  // LAYER-NEXT: %[[QKV:.*]] = headrace.on_device %layers.1.qkv : <host, 1000, bf16> -> <1000, bf16>
  // LAYER-NEXT: %[[N:.*]] = headrace.norm qkv tokens(%meta) %{{.*}}, %[[QKV]][0 for 100]
  // LAYER-NEXT: %[[Q:.*]] = headrace.linear qkv tokens(%meta) %[[N]], %[[QKV]][100 for 900]
  // LAYER-NEXT: %[[OUT:.*]] = headrace.on_device %layers.1.out : <host, 600, bf16> -> <600, bf16>
  // LAYER-NEXT: headrace.linear out tokens(%meta) %[[Q]], %[[OUT]][0 for 600] onto %x
  %n1 = headrace.norm qkv tokens(%meta) %n0, %qkv1[0 for 100] step<attention 1> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
  %q1 = headrace.linear qkv tokens(%meta) %n1, %qkv1[100 for 900] step<attention 1> : <512, bytes>, <400, f32>, <1000, bf16> -> <800, f32>
  %x1 = headrace.linear out tokens(%meta) %q1, %out1[0 for 600] onto %x step<attention 1> : <512, bytes>, <800, f32>, <600, bf16> -> <400, f32>
  // ENDS: %[[NORM:.*]] = headrace.on_device %head : <host, 200, bf16> -> <200, bf16>
  // ENDS-NEXT: %[[N:.*]] = headrace.norm head sampled(%meta) %{{.*}}, %[[NORM]][0 for 200]
  // ENDS-NEXT: %[[TABLE:.*]] = headrace.on_device %embedding : <host, 2000, bf16> -> <2000, bf16>
  // ENDS-NEXT: headrace.linear head sampled(%meta) %[[N]], %[[TABLE]][0 for 2000]
  %f = headrace.norm head sampled(%meta) %x1, %head[0 for 200] step<head> : <512, bytes>, <400, f32>, <200, bf16> -> <400, f32>
  %l = headrace.linear head sampled(%meta) %f, %embedding[0 for 2000] step<head> : <512, bytes>, <400, f32>, <2000, bf16> -> <2000, f32>
}
