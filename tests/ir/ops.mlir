// Every op and type, with and without its optional parts: what is printed reads back the same, in short form, in generic
// form and as bytecode.
// RUN: headrace-opt %s > %t.once
// RUN: FileCheck %s < %t.once
// RUN: headrace-opt %t.once | diff %t.once -
// RUN: headrace-opt %s -mlir-print-op-generic | headrace-opt | diff %t.once -
// RUN: headrace-opt %s --emit-bytecode -o %t.bytecode
// RUN: headrace-opt %t.bytecode | diff %t.once -

// CHECK-LABEL: headrace.iteration @compute decode phase(model) limits(8, 8, 2048) {
headrace.iteration @compute decode phase(model) limits(8, 8, 2048) {
  // CHECK-NEXT: %meta = headrace.io meta : <512, bytes>
  %meta = headrace.io meta : <512, bytes>
  // The long form of a type is accepted as well.
  // CHECK-NEXT: %sampled = headrace.io sampled : <32, bytes>
  %sampled = headrace.io sampled : <device, 32, bytes>
  // CHECK-NEXT: %output = headrace.io output : <32, bytes>
  %output = headrace.io output : <32, bytes>
  // CHECK-NEXT: %history = headrace.io history : <64, bytes>
  %history = headrace.io history : <64, bytes>
  // CHECK-NEXT: %embedding = headrace.weight 0 "embedding" embedding : <2000, bf16>
  %embedding = headrace.weight 0 "embedding" embedding : <2000, bf16>
  // CHECK-NEXT: %layers.0.qkv = headrace.weight 1 "layers.0.qkv" qkv layer 0 : <1000, f16>
  %qkv_unit = headrace.weight 1 "layers.0.qkv" qkv layer 0 : <1000, f16>
  // CHECK-NEXT: %layers.0.up = headrace.weight 3 "layers.0.up" up layer 0 : <1800, f32>
  %up_unit = headrace.weight 3 "layers.0.up" up layer 0 : <1800, f32>
  // CHECK-NEXT: %kv.0 = headrace.kv 0 : <4096, bf16>
  %kv = headrace.kv 0 : <4096, bf16>
  // CHECK-NEXT: headrace.kv 1 interleaved(1024 by 2048) at 512 : <4096, bf16>
  %kv_1 = headrace.kv 1 interleaved(1024 by 2048) at 512 : <4096, bf16>
  // CHECK-NEXT: %x, %next_history = headrace.embed tokens(%meta) %embedding[0 for 1600, 1600 for 400], %sampled, %history step<embedding> : <512, bytes>, <2000, bf16>, <32, bytes>, <64, bytes> -> <400, f32>
  %x, %ids = headrace.embed tokens(%meta) %embedding[0 for 1600, 1600 for 400], %sampled, %history step<embedding> : <512, bytes>, <2000, bf16>, <32, bytes>, <64, bytes> -> <400, f32>
  // CHECK-NEXT: %normed = headrace.norm qkv tokens(%meta) %x, %layers.0.qkv[0 for 100, 100 for 20] step<attention 0, flops 10, device_bytes 900> : <512, bytes>, <400, f32>, <1000, f16> -> <400, f32>
  %n = headrace.norm qkv tokens(%meta) %x, %qkv_unit[0 for 100, 100 for 20] step<attention 0, device_bytes 900, flops 10> : <512, bytes>, <400, f32>, <1000, f16> -> <400, f32>
  // CHECK-NEXT: %qkv = headrace.linear qkv tokens(%meta) %normed, %layers.0.qkv[120 for 880] step<attention 0> : <512, bytes>, <400, f32>, <1000, f16> -> <800, f32>
  %q = headrace.linear qkv tokens(%meta) %n, %qkv_unit[120 for 880] step<attention 0> : <512, bytes>, <400, f32>, <1000, f16> -> <800, f32>
  // CHECK-NEXT: %rotated, %appended = headrace.rope_append tokens(%meta) %qkv, %kv.0 step<attention 0> : <512, bytes>, <800, f32>, <4096, bf16>
  %r, %k = headrace.rope_append tokens(%meta) %q, %kv step<attention 0> : <512, bytes>, <800, f32>, <4096, bf16>
  // With norms of q's and k's heads.
  // CHECK-NEXT: %rotated_0, %appended_1 = headrace.rope_append tokens(%meta) %rotated, %appended norms %layers.0.qkv[900 for 64] step<attention 0> : <512, bytes>, <800, f32>, <4096, bf16>, <1000, f16>
  %r1, %k1 = headrace.rope_append tokens(%meta) %r, %k norms %qkv_unit[900 for 64] step<attention 0> : <512, bytes>, <800, f32>, <4096, bf16>, <1000, f16>
  // CHECK-NEXT: %attended = headrace.attention tokens(%meta) %rotated_0, %appended_1 step<attention 0> scratch 256 : <512, bytes>, <800, f32>, <4096, bf16> -> <400, f32>
  %a = headrace.attention tokens(%meta) %r1, %k1 step<attention 0> scratch 256 : <512, bytes>, <800, f32>, <4096, bf16> -> <400, f32>
  // Activation blocks: what was kept is rebuilt, and stands behind the cache where keys and values are used.
  // CHECK-NEXT: %act.0 = headrace.act 0 : <512, f32>
  %act = headrace.act 0 : <512, f32>
  // CHECK-NEXT: %act.0.1 = headrace.act 0 mini_batch(1) : <512, f32>
  %act1 = headrace.act 0 mini_batch(1) : <512, f32>
  // CHECK-NEXT: %[[KEPT:.*]] = headrace.act_append tokens(%meta) %normed, %act.0 step<attention 0> : <512, bytes>, <400, f32>, <512, f32>
  %kept = headrace.act_append tokens(%meta) %n, %act step<attention 0> : <512, bytes>, <400, f32>, <512, f32>
  // CHECK-NEXT: %rebuilt = headrace.rebuild_kv tokens(%meta) %[[KEPT]], %layers.0.qkv[120 for 380, 500 for 20] norms[900 for 64] step<attention 0> scratch 64 : <512, bytes>, <512, f32>, <1000, f16> -> <1024, bf16>
  %rec = headrace.rebuild_kv tokens(%meta) %kept, %qkv_unit[120 for 380, 500 for 20] norms[900 for 64] step<attention 0> scratch 64 : <512, bytes>, <512, f32>, <1000, f16> -> <1024, bf16>
  // CHECK-NEXT: %[[ROT:.*]], %[[APP:.*]]:2 = headrace.rope_append tokens(%meta) %rotated_0, %appended_1, %rebuilt step<attention 0> : <512, bytes>, <800, f32>, <4096, bf16>, <1024, bf16>
  %r2, %k2:2 = headrace.rope_append tokens(%meta) %r1, %k1, %rec step<attention 0> : <512, bytes>, <800, f32>, <4096, bf16>, <1024, bf16>
  // CHECK-NEXT: headrace.attention tokens(%meta) %[[ROT]], %[[APP]]#0, %[[APP]]#1 step<attention 0> scratch 256 : <512, bytes>, <800, f32>, <4096, bf16>, <1024, bf16> -> <400, f32>
  %a2 = headrace.attention tokens(%meta) %r2, %k2#0, %k2#1 step<attention 0> scratch 256 : <512, bytes>, <800, f32>, <4096, bf16>, <1024, bf16> -> <400, f32>
  // CHECK-NEXT: %up = headrace.linear up tokens(%meta) %attended, %layers.0.up[0 for 1700, 1700 for 100] then gelu_tanh step<mlp 0> : <512, bytes>, <400, f32>, <1800, f32> -> <1600, f32>
  %u = headrace.linear up tokens(%meta) %a, %up_unit[0 for 1700, 1700 for 100] then gelu_tanh step<mlp 0> : <512, bytes>, <400, f32>, <1800, f32> -> <1600, f32>
  // CHECK-NEXT: %activated = headrace.activate tokens(%meta) %up step<mlp 0> : <512, bytes>, <1600, f32> -> <800, f32>
  %s = headrace.activate tokens(%meta) %u step<mlp 0> : <512, bytes>, <1600, f32> -> <800, f32>
  // CHECK-NEXT: %x_5 = headrace.linear down tokens(%meta) %activated, %layers.0.up[0 for 4] then relu onto %x step<mlp 0> : <512, bytes>, <800, f32>, <1800, f32> -> <400, f32>
  %d = headrace.linear down tokens(%meta) %s, %up_unit[0 for 4] then relu onto %x step<mlp 0> : <512, bytes>, <800, f32>, <1800, f32> -> <400, f32>
  // CHECK-NEXT: %gathered = headrace.gather_rows sampled(%meta) %x_5 step<head> : <512, bytes>, <400, f32> -> <400, f32>
  %g = headrace.gather_rows sampled(%meta) %d step<head> : <512, bytes>, <400, f32> -> <400, f32>
  // The head's rows are those that are sampled; its matrix is the embedding.
  // CHECK-NEXT: %logits = headrace.linear head sampled(%meta) %gathered, %embedding[0 for 1600] then gelu step<head> : <512, bytes>, <400, f32>, <2000, bf16> -> <2000, f32>
  %l = headrace.linear head sampled(%meta) %g, %embedding[0 for 1600] then gelu step<head> : <512, bytes>, <400, f32>, <2000, bf16> -> <2000, f32>
  // CHECK-NEXT: %next_sampled, %next_output = headrace.sample sampled(%meta) %logits, %next_history, %sampled, %output step<head> scratch 128 : <512, bytes>, <2000, f32>, <64, bytes>, <32, bytes>, <32, bytes>
  %ns, %no = headrace.sample sampled(%meta) %l, %ids, %sampled, %output step<head> scratch 128 : <512, bytes>, <2000, f32>, <64, bytes>, <32, bytes>, <32, bytes>
  // CHECK-NEXT: headrace.publish sampled(%meta) %next_output step<head> : <512, bytes>, <32, bytes>
  headrace.publish sampled(%meta) %no step<head> : <512, bytes>, <32, bytes>
}

// CHECK-LABEL: headrace.iteration @homes mixed phase(homes) limits(512, 8, 2048) {
headrace.iteration @homes mixed phase(homes) limits(512, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %sampled = headrace.io sampled : <32, bytes>
  %history = headrace.io history : <64, bytes>
  // CHECK: %embedding = headrace.weight 0 "embedding" embedding : <host, 2000, bf16>
  %embedding = headrace.weight 0 "embedding" embedding : <host, 2000, bf16>
  // CHECK-NEXT: %head = headrace.weight 1 "head" head : <host, 2000, bf16>
  %head = headrace.weight 1 "head" head : <host, 2000, bf16>
  // CHECK-NEXT: %x, %next_history = headrace.embed tokens(%meta) %embedding[0 for 2000], %sampled, %history step<embedding, direct, link_bytes 64> : <512, bytes>, <host, 2000, bf16>, <32, bytes>, <64, bytes> -> <400, f32>
  %x, %ids = headrace.embed tokens(%meta) %embedding[0 for 2000], %sampled, %history step<embedding, direct, link_bytes 64> : <512, bytes>, <host, 2000, bf16>, <32, bytes>, <64, bytes> -> <400, f32>
  // CHECK-NEXT: %d.head = headrace.on_device %head : <host, 2000, bf16> -> <2000, bf16>
  %d = headrace.on_device %head : <host, 2000, bf16> -> <2000, bf16>
  // CHECK-NEXT: %logits = headrace.linear head sampled(%meta) %x, %d.head[0 for 2000] step<head> :
  %l = headrace.linear head sampled(%meta) %x, %d[0 for 2000] step<head> : <512, bytes>, <400, f32>, <2000, bf16> -> <2000, f32>
}

// A stage that samples and does not embed.
// CHECK-LABEL: headrace.iteration @last_stage decode phase(model) limits(8, 8, 2048) {
headrace.iteration @last_stage decode phase(model) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %sampled = headrace.io sampled mini_batch(1) : <32, bytes>
  %history = headrace.io history mini_batch(1) : <64, bytes>
  // CHECK: %next_history = headrace.keep_ids tokens(%meta) %sampled.1, %history.1 step<head, mini_batch 1> : <512, bytes>, <32, bytes>, <64, bytes>
  %ids = headrace.keep_ids tokens(%meta) %sampled, %history step<head, mini_batch 1> : <512, bytes>, <32, bytes>, <64, bytes>
}

// Each mini-batch has its own caches and its own sampled and history; meta and output are of all of them.
// CHECK-LABEL: headrace.iteration @mini_batches decode phase(model) limits(8, 8, 2048) {
headrace.iteration @mini_batches decode phase(model) limits(8, 8, 2048) {
  // CHECK-NEXT: %meta = headrace.io meta : <512, bytes>
  %meta = headrace.io meta mini_batch(0) : <512, bytes>
  // CHECK-NEXT: %history.1 = headrace.io history mini_batch(1) : <512, bytes>
  %history1 = headrace.io history mini_batch(1) : <512, bytes>
  // CHECK-NEXT: %sampled.63 = headrace.io sampled mini_batch(63) at 4096 : <32, bytes>
  %sampled = headrace.io sampled mini_batch(63) at 4096 : <32, bytes>
  // CHECK-NEXT: %output = headrace.io output : <64, bytes>
  %output = headrace.io output : <64, bytes>
  // CHECK-NEXT: %kv.0 = headrace.kv 0 : <4096, bf16>
  %kv = headrace.kv 0 : <4096, bf16>
  // CHECK-NEXT: %kv.0.1 = headrace.kv 0 mini_batch(1) : <4096, bf16>
  %kv1 = headrace.kv 0 mini_batch(1) : <4096, bf16>
  // CHECK-NEXT: %kv.0.1.tail = headrace.kv 0 mini_batch(1) tail at 512 : <host, 4096, bf16>
  %tail = headrace.kv 0 mini_batch(1) tail at 512 : <host, 4096, bf16>
  // CHECK-NEXT: %kv.0.1.mirror = headrace.kv 0 mini_batch(1) mirror : <host, 1024, bf16>
  %mirror = headrace.kv 0 mini_batch(1) mirror : <host, 1024, bf16>
  // CHECK-NEXT: headrace.publish sampled(%meta) %output step<head, mini_batch 1> : <512, bytes>, <64, bytes>
  headrace.publish sampled(%meta) %output step<head, mini_batch 1> : <512, bytes>, <64, bytes>
}

// CHECK-LABEL: headrace.iteration @movement decode phase(movement) limits(8, 8, 2048) {
headrace.iteration @movement decode phase(movement) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %unit = headrace.weight 1 "layers.0.out" out layer 0 : <host, 1000, bf16>
  %kv = headrace.kv 0 : <host, 4096, bf16>
  // CHECK: %slot.0 = headrace.slot 0 : slot<2000>
  %slot = headrace.slot 0 : slot<2000>
  // CHECK-NEXT: %slot.1 = headrace.slot 1 : slot<4096>
  %slot1 = headrace.slot 1 : slot<4096>
  // CHECK-NEXT: %d.layers.0.out = headrace.carry %layers.0.out[0 for 400] in %slot.0[256] : <host, 1000, bf16>, slot<2000> -> <400 of 1000, bf16>
  %part = headrace.carry %unit[0 for 400] in %slot[256] : <host, 1000, bf16>, slot<2000> -> <400 of 1000, bf16>
  // CHECK-NEXT: %d.layers.0.out_0, %t.layers.0.out = headrace.prefetch %layers.0.out[400 for 200] onto %d.layers.0.out step<movement 0> : <host, 1000, bf16>, <400 of 1000, bf16> -> <600 of 1000, bf16>
  %more, %t0 = headrace.prefetch %unit[400 for 200] onto %part step<movement 0> : <host, 1000, bf16>, <400 of 1000, bf16> -> <600 of 1000, bf16>
  // CHECK-NEXT: headrace.prefetch %layers.0.out[600 for 400] onto %d.layers.0.out_0 step<movement 0 on h2d, mini_batch 2, device_bytes 400, link_bytes 400> : <host, 1000, bf16>, <600 of 1000, bf16> -> <1000, bf16>
  %whole, %t1 = headrace.prefetch %unit[600 for 400] onto %more step<movement 0 on h2d, mini_batch 2, device_bytes 400, link_bytes 400> : <host, 1000, bf16>, <600 of 1000, bf16> -> <1000, bf16>
  // CHECK-NEXT: headrace.prefetch %kv.0[0 for 4096] into %slot.1[0] step<movement 0, resizable> : <host, 4096, bf16>, slot<4096> -> <4096, bf16>
  %cache, %t2 = headrace.prefetch %kv[0 for 4096] into %slot1[0] step<movement 0, resizable> : <host, 4096, bf16>, slot<4096> -> <4096, bf16>
  // CHECK-NEXT: headrace.wait %{{.*}} : token
  headrace.wait %t1 : token
  headrace.wait %t2 : token
  // CHECK: headrace.release %{{.*}} : <1000, bf16>
  headrace.release %whole : <1000, bf16>
  // CHECK-NEXT: %{{.*}}, %{{.*}} = headrace.evict dirty %d.kv.0[1024 for 64] to %kv.0 step<movement 0> : <4096, bf16>, <host, 4096, bf16>
  %ht3, %t3 = headrace.evict dirty %cache[1024 for 64] to %kv step<movement 0> : <4096, bf16>, <host, 4096, bf16>
  %again, %t4 = headrace.prefetch %unit[0 for 400] into %slot[256] step<movement 0> : <host, 1000, bf16>, slot<2000> -> <400 of 1000, bf16>
  // CHECK: headrace.carry_out %{{.*}} : <400 of 1000, bf16>
  headrace.carry_out %again : <400 of 1000, bf16>
}

// What is written back: all of it, or the run that was written, and whether it stays on the device; each makes the next
// version of the home. What is carried may be ahead of it.
// CHECK-LABEL: headrace.iteration @write_back decode
headrace.iteration @write_back decode phase(movement) limits(8, 8, 2048) {
  %kv = headrace.kv 0 tail : <host, 4096, bf16>
  %slot = headrace.slot 0 : slot<4096>
  // CHECK: %d.kv.0.tail = headrace.carry %kv.0.tail[0 for 4096] in %slot.0[0] dirty : <host, 4096, bf16>, slot<4096> -> <4096, bf16>
  %d = headrace.carry %kv[0 for 4096] in %slot[0] dirty : <host, 4096, bf16>, slot<4096> -> <4096, bf16>
  // CHECK-NEXT: %kv.0.tail_0, %t.kv.0.tail = headrace.evict all keeping %d.kv.0.tail[0 for 4096] to %kv.0.tail step<movement 0 on d2h, link_bytes 4096> : <4096, bf16>, <host, 4096, bf16>
  %h, %t = headrace.evict all keeping %d[0 for 4096] to %kv step<movement 0 on d2h, link_bytes 4096> : <4096, bf16>, <host, 4096, bf16>
  // CHECK-NEXT: %kv.0.tail_1, %t.kv.0.tail_2 = headrace.evict dirty %d.kv.0.tail[0 for 4096] to %kv.0.tail_0 step<movement 0, resizable> : <4096, bf16>, <host, 4096, bf16>
  %h2, %t2 = headrace.evict dirty %d[0 for 4096] to %h step<movement 0, resizable> : <4096, bf16>, <host, 4096, bf16>
  // CHECK-NEXT: %d.kv.0.tail_3, %t.kv.0.tail_4 = headrace.prefetch %kv.0.tail_1
  %e, %t3 = headrace.prefetch %h2[0 for 4096] into %slot[0] step<movement 0> : <host, 4096, bf16>, slot<4096> -> <4096, bf16>
  // CHECK-NEXT: headrace.carry_out %d.kv.0.tail_3 dirty : <4096, bf16>
  headrace.carry_out %e dirty : <4096, bf16>
}

// CHECK-LABEL: headrace.iteration @offsets decode phase(offsets) limits(8, 8, 2048) arena(65536) {
headrace.iteration @offsets decode phase(offsets) limits(8, 8, 2048) arena(65536) {
  // CHECK-NEXT: %meta = headrace.io meta at 0 : <512, bytes>
  %meta = headrace.io meta at 0 : <512, bytes>
  // CHECK-NEXT: %layers.0.out = headrace.weight 1 "layers.0.out" out layer 0 at 512 : <host, 1000, bf16>
  %unit = headrace.weight 1 "layers.0.out" out layer 0 at 512 : <host, 1000, bf16>
  // CHECK-NEXT: %kv.0 = headrace.kv 0 at 1024 : <4096, bf16>
  %kv = headrace.kv 0 at 1024 : <4096, bf16>
  // CHECK-NEXT: %slot.0 = headrace.slot 0 at 8192 : slot<1024>
  %slot = headrace.slot 0 at 8192 : slot<1024>
  %w, %t = headrace.prefetch %unit[0 for 1000] into %slot[0] step<movement 0 on h2d> : <host, 1000, bf16>, slot<1024> -> <1000, bf16>
  %q = headrace.weight 2 "layers.0.qkv" qkv layer 0 at 16384 : <800, f32>
  // CHECK: %attended = headrace.attention tokens(%meta) %layers.0.qkv, %kv.0 step<attention 0 on compute> at 20480 scratch 256 at 24576 :
  %a = headrace.attention tokens(%meta) %q, %kv step<attention 0 on compute> at 20480 scratch 256 at 24576 : <512, bytes>, <800, f32>, <4096, bf16> -> <400, f32>
  // CHECK-NEXT: headrace.wait raw %t.layers.0.out on compute : token
  headrace.wait raw %t on compute : token
  // CHECK-NEXT: %normed = headrace.norm out sampled(%meta) %attended, %d.layers.0.out[0 for 100] step<mlp 0 on compute> at 28672 :
  %n = headrace.norm out sampled(%meta) %a, %w[0 for 100] step<mlp 0 on compute> at 28672 : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
  // CHECK-NEXT: headrace.wait war %normed on h2d : <400, f32>
  headrace.wait war %n on h2d : <400, f32>
  // CHECK-NEXT: headrace.wait waw %attended on d2h : <400, f32>
  headrace.wait waw %a on d2h : <400, f32>
  // CHECK-NEXT: headrace.wait pacing %attended on d2h : <400, f32>
  headrace.wait pacing %a on d2h : <400, f32>
}

// CHECK-LABEL: headrace.iteration @transition transition phase(movement) limits(0, 0, 0) attributes {why = "room"} {
headrace.iteration @transition transition phase(movement) limits(0, 0, 0) attributes {why = "room"} {
}

// Attention in the cpu lane: what the device has rotated goes down, and comes back attended for.
// CHECK-LABEL: headrace.iteration @cpu decode phase(homes) limits(8, 8, 2048) {
headrace.iteration @cpu decode phase(homes) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %qkv_unit = headrace.weight 1 "layers.0.qkv" qkv layer 0 : <1000, f16>
  %kv = headrace.kv 0 tail : <host, 4096, bf16>
  %q = headrace.io output : <800, f32>
  // CHECK: %staging.meta = headrace.staging meta : <host, 512, bytes>
  %m = headrace.staging meta : <host, 512, bytes>
  // CHECK-NEXT: %staging.qkv.1 = headrace.staging qkv mini_batch(1) at 4096 : <host, 800, f32>
  %rows = headrace.staging qkv mini_batch(1) at 4096 : <host, 800, f32>
  // CHECK-NEXT: %staging.attended = headrace.staging attended : <host, 400, f32>
  %into = headrace.staging attended : <host, 400, f32>
  // CHECK-NEXT: %staging.scratch = headrace.staging scratch : <host, 256, bytes>
  %scratch = headrace.staging scratch : <host, 256, bytes>
  // CHECK-NEXT: %staged = headrace.stage %meta into %staging.meta step<movement> : <512, bytes>, <host, 512, bytes>
  %md = headrace.stage %meta into %m step<movement> : <512, bytes>, <host, 512, bytes>
  // CHECK-NEXT: %[[R:.*]] = headrace.rotate tokens(%meta) %output step<attention 0> : <512, bytes>, <800, f32>
  %r = headrace.rotate tokens(%meta) %q step<attention 0> : <512, bytes>, <800, f32>
  // CHECK-NEXT: %[[N:.*]] = headrace.rotate tokens(%meta) %[[R]] norms %layers.0.qkv[900 for 64] step<attention 0> : <512, bytes>, <800, f32>, <1000, f16>
  %n = headrace.rotate tokens(%meta) %r norms %qkv_unit[900 for 64] step<attention 0> : <512, bytes>, <800, f32>, <1000, f16>
  // CHECK-NEXT: %[[S:.*]] = headrace.stage %[[N]] into %staging.qkv.1 step<movement 0, resizable> : <800, f32>, <host, 800, f32>
  %s = headrace.stage %n into %rows step<movement 0, resizable> : <800, f32>, <host, 800, f32>
  // CHECK-NEXT: %[[K:.*]] = headrace.append tokens(%staged) %[[S]], %kv.0.tail step<attention 0> : <host, 512, bytes>, <host, 800, f32>, <host, 4096, bf16>
  %k = headrace.append tokens(%md) %s, %kv step<attention 0> : <host, 512, bytes>, <host, 800, f32>, <host, 4096, bf16>
  // CHECK-NEXT: %[[A:.*]] = headrace.host_attention tokens(%staged) %[[S]], %[[K]] into %staging.attended step<attention 0> : <host, 512, bytes>, <host, 800, f32>, <host, 4096, bf16>, <host, 400, f32>
  %a = headrace.host_attention tokens(%md) %s, %k into %into step<attention 0> : <host, 512, bytes>, <host, 800, f32>, <host, 4096, bf16>, <host, 400, f32>
  // CHECK-NEXT: %[[B:.*]] = headrace.host_attention tokens(%staged) %[[S]], %[[K]] into %[[A]] scratch %staging.scratch step<attention 0> : <host, 512, bytes>, <host, 800, f32>, <host, 4096, bf16>, <host, 400, f32>, <host, 256, bytes>
  %b = headrace.host_attention tokens(%md) %s, %k into %a scratch %scratch step<attention 0> : <host, 512, bytes>, <host, 800, f32>, <host, 4096, bf16>, <host, 400, f32>, <host, 256, bytes>
  // CHECK-NEXT: headrace.fetch_rows tokens(%meta) %[[B]] step<attention 0, direct> : <512, bytes>, <host, 400, f32> -> <400, f32>
  %f = headrace.fetch_rows tokens(%meta) %b step<attention 0, direct> : <512, bytes>, <host, 400, f32> -> <400, f32>
}
