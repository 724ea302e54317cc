// One program for each rule of an op's verifier.
// RUN: headrace-opt %s -split-input-file -verify-diagnostics

// A forgotten prefetch does not type-check.
headrace.iteration @forgotten_prefetch decode phase(movement) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %unit = headrace.weight 0 "head" head : <host, 1000, bf16>
  %x = headrace.weight 1 "embedding" embedding : <400, f32>
  // expected-error@+1 {{operand #2 must be whole buffer on the device}}
  %y = headrace.linear head tokens(%meta) %x, %unit[0 for 100] step<head> : <512, bytes>, <400, f32>, <host, 1000, bf16> -> <400, f32>
}

// -----

// Nor does the use of a unit of which only a part is there.
headrace.iteration @half_a_unit decode phase(movement) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %unit = headrace.weight 0 "head" head : <host, 1000, bf16>
  %x = headrace.weight 1 "embedding" embedding : <400, f32>
  %slot = headrace.slot 0 : slot<1000>
  %part = headrace.carry %unit[0 for 400] in %slot[0] : <host, 1000, bf16>, slot<1000> -> <400 of 1000, bf16>
  // expected-error@+1 {{operand #2 must be whole buffer on the device}}
  %y = headrace.linear head tokens(%meta) %x, %part[0 for 100] step<head> : <512, bytes>, <400, f32>, <400 of 1000, bf16> -> <400, f32>
}

// -----

headrace.iteration @kv_on_host decode phase(movement) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %kv = headrace.kv 0 : <host, 4096, bf16>
  %q = headrace.weight 0 "head" head : <800, f32>
  // expected-error@+1 {{operand #2 must be variadic of whole buffer on the device}}
  %a = headrace.attention tokens(%meta) %q, %kv step<attention 0> : <512, bytes>, <800, f32>, <host, 4096, bf16> -> <400, f32>
}

// -----

headrace.iteration @weight_unit decode phase(model) limits(8, 8, 2048) {
  // expected-error@+1 {{has unit -1, which must not be negative}}
  %unit = headrace.weight -1 "head" head : <1000, bf16>
}

// -----

headrace.iteration @weight_name decode phase(model) limits(8, 8, 2048) {
  // expected-error@+1 {{has no name}}
  %unit = headrace.weight 0 "" head : <1000, bf16>
}

// -----

headrace.iteration @weight_without_layer decode phase(model) limits(8, 8, 2048) {
  // expected-error@+1 {{is a unit of role qkv and needs a layer}}
  %unit = headrace.weight 0 "layers.0.qkv" qkv : <1000, bf16>
}

// -----

headrace.iteration @weight_with_layer decode phase(model) limits(8, 8, 2048) {
  // expected-error@+1 {{is a unit of role head and has no layer}}
  %unit = headrace.weight 0 "head" head layer 3 : <1000, bf16>
}

// -----

headrace.iteration @weight_part decode phase(model) limits(8, 8, 2048) {
  // expected-error@+1 {{result #0 must be whole buffer}}
  %unit = headrace.weight 0 "head" head : <500 of 1000, bf16>
}

// -----

headrace.iteration @kv_layer decode phase(model) limits(8, 8, 2048) {
  // expected-error@+1 {{has layer -1, which must not be negative}}
  %kv = headrace.kv -1 : <1000, bf16>
}

// -----

headrace.iteration @kv_stride decode phase(model) limits(8, 8, 2048) {
  // expected-error@+1 {{has blocks of 1000 bytes, one every 1500: expected as many bytes as some caches' blocks take}}
  %kv = headrace.kv 0 interleaved(1000 by 1500) : <1000, bf16>
}

// -----

headrace.iteration @kv_no_block decode phase(model) limits(8, 8, 2048) {
  // expected-error@+1 {{has blocks of 0 bytes, one every 1500}}
  %kv = headrace.kv 0 interleaved(0 by 1500) : <1000, bf16>
}

// -----

headrace.iteration @kv_part_of_a_block decode phase(model) limits(8, 8, 2048) {
  // expected-error@+1 {{1500, bf16>': expected whole blocks of 1000 bytes on the device, as it is interleaved}}
  %kv = headrace.kv 0 interleaved(1000 by 2000) : <1500, bf16>
}

// -----

headrace.iteration @kv_interleaved_on_host decode phase(model) limits(8, 8, 2048) {
  // expected-error@+1 {{expected whole blocks of 1000 bytes on the device, as it is interleaved}}
  %kv = headrace.kv 0 interleaved(1000 by 2000) : <host, 2000, bf16>
}

// -----

headrace.iteration @kv_mini_batch decode phase(model) limits(8, 8, 2048) {
  // expected-error@+1 {{has mini-batch 64, expected 0 to 63}}
  %kv = headrace.kv 0 mini_batch(64) : <1000, bf16>
}

// -----

headrace.iteration @kv_mini_batch_below_0 decode phase(model) limits(8, 8, 2048) {
  // expected-error@+1 {{has mini-batch -1, expected 0 to 63}}
  %kv = headrace.kv 0 mini_batch(-1) : <1000, bf16>
}

// -----

headrace.iteration @io_mini_batch decode phase(model) limits(8, 8, 2048) {
  // expected-error@+1 {{has mini-batch 64, expected 0 to 63}}
  %sampled = headrace.io sampled mini_batch(64) : <512, bytes>
}

// -----

headrace.iteration @output_mini_batch decode phase(model) limits(8, 8, 2048) {
  // expected-error@+1 {{has mini-batch 1, but output is of all of them}}
  %output = headrace.io output mini_batch(1) : <512, bytes>
}

// -----

headrace.iteration @meta_mini_batch decode phase(model) limits(8, 8, 2048) {
  // expected-error@+1 {{has mini-batch 1, but meta is of all of them}}
  %meta = headrace.io meta mini_batch(1) : <512, bytes>
}

// -----

headrace.iteration @staged_meta_mini_batch decode phase(model) limits(8, 8, 2048) {
  // expected-error@+1 {{has mini-batch 2, but meta is of all of them}}
  %meta = headrace.staging meta mini_batch(2) : <host, 512, bytes>
}

// -----

headrace.iteration @io_home decode phase(model) limits(8, 8, 2048) {
  // expected-error@+1 {{result #0 must be whole buffer on the device}}
  %meta = headrace.io meta : <host, 512, bytes>
}

// -----

headrace.iteration @slot_index decode phase(movement) limits(8, 8, 2048) {
  // expected-error@+1 {{has index -2, which must not be negative}}
  %slot = headrace.slot -2 : slot<1000>
}

// -----

headrace.iteration @embed_direct decode phase(homes) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %sampled = headrace.io sampled : <32, bytes>
  %history = headrace.io history : <64, bytes>
  %unit = headrace.weight 0 "embedding" embedding : <host, 1000, bf16>
  // expected-error@+1 {{reads a host buffer and must be marked direct}}
  %x, %ids = headrace.embed tokens(%meta) %unit[0 for 1000], %sampled, %history step<embedding> : <512, bytes>, <host, 1000, bf16>, <32, bytes>, <64, bytes> -> <400, f32>
}

// -----

headrace.iteration @embed_not_direct decode phase(homes) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %sampled = headrace.io sampled : <32, bytes>
  %history = headrace.io history : <64, bytes>
  %unit = headrace.weight 0 "embedding" embedding : <1000, bf16>
  // expected-error@+1 {{is marked direct but reads a device buffer}}
  %x, %ids = headrace.embed tokens(%meta) %unit[0 for 1000], %sampled, %history step<embedding, direct> : <512, bytes>, <1000, bf16>, <32, bytes>, <64, bytes> -> <400, f32>
}

// -----

headrace.iteration @embed_of_a_part decode phase(homes) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %sampled = headrace.io sampled : <32, bytes>
  %history = headrace.io history : <64, bytes>
  %unit = headrace.weight 0 "embedding" embedding : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<2000>
  %part = headrace.carry %unit[0 for 400] in %slot[256] : <host, 1000, bf16>, slot<2000> -> <400 of 1000, bf16>
  // expected-error@+1 {{operand #1 must be whole buffer on the device, or on the host for a direct step}}
  %x, %ids = headrace.embed tokens(%meta) %part[0 for 1000], %sampled, %history step<embedding, direct> : <512, bytes>, <400 of 1000, bf16>, <32, bytes>, <64, bytes> -> <400, f32>
}

// -----

headrace.iteration @embed_table decode phase(model) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %sampled = headrace.io sampled : <32, bytes>
  %history = headrace.io history : <64, bytes>
  %unit = headrace.weight 0 "embedding" embedding : <1000, bf16>
  // expected-error@+1 {{reads its table from bytes [200 for 1000] of a unit of 1000}}
  %x, %ids = headrace.embed tokens(%meta) %unit[200 for 1000], %sampled, %history step<embedding> : <512, bytes>, <1000, bf16>, <32, bytes>, <64, bytes> -> <400, f32>
}

// -----

headrace.iteration @embed_positions decode phase(model) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %sampled = headrace.io sampled : <32, bytes>
  %history = headrace.io history : <64, bytes>
  %unit = headrace.weight 0 "embedding" embedding : <1000, bf16>
  // expected-error@+1 {{reads its positions from bytes [2000 for 4] of a unit of 1000}}
  %x, %ids = headrace.embed tokens(%meta) %unit[0 for 800, 2000 for 4], %sampled, %history step<embedding> : <512, bytes>, <1000, bf16>, <32, bytes>, <64, bytes> -> <400, f32>
}

// -----

headrace.iteration @norm_weight decode phase(model) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %unit = headrace.weight 0 "head" head : <1000, bf16>
  %x = headrace.weight 1 "embedding" embedding : <400, f32>
  // expected-error@+1 {{reads its weight from bytes [0 for 0] of a unit of 1000}}
  %y = headrace.norm head tokens(%meta) %x, %unit[0 for 0] step<head> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
}

// -----

headrace.iteration @norm_bias decode phase(model) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %unit = headrace.weight 0 "head" head : <1000, bf16>
  %x = headrace.weight 1 "embedding" embedding : <400, f32>
  // expected-error@+1 {{reads its bias from bytes [900 for 101] of a unit of 1000}}
  %y = headrace.norm head tokens(%meta) %x, %unit[0 for 100, 900 for 101] step<head> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
}

// -----

headrace.iteration @norm_size decode phase(model) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %unit = headrace.weight 0 "head" head : <1000, bf16>
  %x = headrace.weight 1 "embedding" embedding : <400, f32>
  // expected-error@+1 {{makes '!headrace.buffer<device, 404, f32>' of '!headrace.buffer<device, 400, f32>', which is more than it reads}}
  %y = headrace.norm head tokens(%meta) %x, %unit[0 for 100] step<head> : <512, bytes>, <400, f32>, <1000, bf16> -> <404, f32>
}

// -----

headrace.iteration @linear_weight decode phase(model) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %unit = headrace.weight 0 "head" head : <1000, bf16>
  %x = headrace.weight 1 "embedding" embedding : <400, f32>
  // 2^62 + 2^62 does not overflow either.
  // expected-error@+1 {{reads its weight from bytes [4611686018427387904 for 4611686018427387904] of a unit of 1000}}
  %y = headrace.linear head tokens(%meta) %x, %unit[4611686018427387904 for 4611686018427387904] step<head> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
}

// -----

headrace.iteration @linear_bias decode phase(model) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %unit = headrace.weight 0 "head" head : <1000, bf16>
  %x = headrace.weight 1 "embedding" embedding : <400, f32>
  // expected-error@+1 {{reads its bias from bytes [1000 for 4] of a unit of 1000}}
  %y = headrace.linear head tokens(%meta) %x, %unit[0 for 1000, 1000 for 4] step<head> : <512, bytes>, <400, f32>, <1000, bf16> -> <400, f32>
}

// -----

"headrace.iteration"() <{sym_name = "linear_residual", iteration_class = 0 : i32, phase = 0 : i32, start_rule = 1 : i32, tokens = 8 : i64, sequences = 8 : i64, max_context = 8 : i64}> ({
  %meta = "headrace.io"() <{role = 0 : i32}> : () -> !headrace.buffer<device, 512, bytes>
  %x = "headrace.io"() <{role = 1 : i32}> : () -> !headrace.buffer<device, 400, f32>
  // expected-error@+1 {{updates '!headrace.buffer<device, 400, f32>' in place, but its result is '!headrace.buffer<device, 800, f32>'}}
  %y = "headrace.linear"(%meta, %x, %x, %x) <{role = 1 : i32, rows = 0 : i32, weight = array<i64: 0, 100>, step = array<i64: -1, 3, 0, -1, 0, 0, 0, 0, 0>}> : (!headrace.buffer<device, 512, bytes>, !headrace.buffer<device, 400, f32>, !headrace.buffer<device, 400, f32>, !headrace.buffer<device, 400, f32>) -> !headrace.buffer<device, 800, f32>
}) : () -> ()

// -----

headrace.iteration @activate_size decode phase(model) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %x = headrace.weight 1 "embedding" embedding : <400, f32>
  // expected-error@+1 {{makes 400 bytes of 400: gate and up are twice the result}}
  %y = headrace.activate tokens(%meta) %x step<mlp 0> : <512, bytes>, <400, f32> -> <400, f32>
}

// -----

headrace.iteration @gather_encoding decode phase(model) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %x = headrace.weight 1 "embedding" embedding : <400, f32>
  // expected-error@+1 {{gathers rows of '!headrace.buffer<device, 400, f32>' into '!headrace.buffer<device, 200, f16>': the encoding must be the same}}
  %y = headrace.gather_rows sampled(%meta) %x step<head> : <512, bytes>, <400, f32> -> <200, f16>
}

// -----

headrace.iteration @on_device_at_home decode phase(homes) limits(8, 8, 2048) {
  %unit = headrace.weight 0 "head" head : <1000, bf16>
  // expected-error@+1 {{operand #0 must be whole buffer off the device}}
  %d = headrace.on_device %unit : <1000, bf16> -> <1000, bf16>
}

// -----

headrace.iteration @on_device_size decode phase(homes) limits(8, 8, 2048) {
  %unit = headrace.weight 0 "head" head : <host, 1000, bf16>
  // expected-error@+1 {{makes '!headrace.buffer<device, 1000, f16>' of '!headrace.buffer<host, 1000, bf16>': size and encoding must be the same}}
  %d = headrace.on_device %unit : <host, 1000, bf16> -> <1000, f16>
}

// -----

headrace.iteration @carry_range decode phase(movement) limits(8, 8, 2048) {
  %unit = headrace.weight 0 "head" head : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<1000>
  // expected-error@+1 {{names bytes [0 for 1200] of a buffer of 1000}}
  %w = headrace.carry %unit[0 for 1200] in %slot[0] : <host, 1000, bf16>, slot<1000> -> <1000, bf16>
}

// -----

headrace.iteration @carry_prefix decode phase(movement) limits(8, 8, 2048) {
  %unit = headrace.weight 0 "head" head : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<1000>
  // expected-error@+1 {{holds a prefix on entry, so its range begins at 0, not at 200}}
  %w = headrace.carry %unit[200 for 400] in %slot[0] : <host, 1000, bf16>, slot<1000> -> <600 of 1000, bf16>
}

// -----

headrace.iteration @carry_held decode phase(movement) limits(8, 8, 2048) {
  %unit = headrace.weight 0 "head" head : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<1000>
  // expected-error@+1 {{makes a range that holds 1000 bytes, but brings those up to 400}}
  %w = headrace.carry %unit[0 for 400] in %slot[0] : <host, 1000, bf16>, slot<1000> -> <1000, bf16>
}

// -----

headrace.iteration @carry_slot decode phase(movement) limits(8, 8, 2048) {
  %unit = headrace.weight 0 "head" head : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<1000>
  // expected-error@+1 {{puts 400 bytes at 800 of a slot of 1000}}
  %w = headrace.carry %unit[0 for 400] in %slot[800] : <host, 1000, bf16>, slot<1000> -> <400 of 1000, bf16>
}

// -----

headrace.iteration @prefetch_from_device decode phase(movement) limits(8, 8, 2048) {
  %unit = headrace.weight 0 "head" head : <1000, bf16>
  %slot = headrace.slot 0 : slot<1000>
  // expected-error@+1 {{operand #0 must be whole buffer off the device}}
  %w, %t = headrace.prefetch %unit[0 for 1000] into %slot[0] step<movement> : <1000, bf16>, slot<1000> -> <1000, bf16>
}

// -----

headrace.iteration @prefetch_range decode phase(movement) limits(8, 8, 2048) {
  %unit = headrace.weight 0 "head" head : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<1000>
  // expected-error@+1 {{names bytes [0 for 0] of a buffer of 1000}}
  %w, %t = headrace.prefetch %unit[0 for 0] into %slot[0] step<movement> : <host, 1000, bf16>, slot<1000> -> <1000, bf16>
}

// -----

headrace.iteration @prefetch_held decode phase(movement) limits(8, 8, 2048) {
  %unit = headrace.weight 0 "head" head : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<1000>
  // expected-error@+1 {{makes a range that holds 1000 bytes, but brings those up to 600}}
  %w, %t = headrace.prefetch %unit[0 for 600] into %slot[0] step<movement> : <host, 1000, bf16>, slot<1000> -> <1000, bf16>
}

// -----

headrace.iteration @prefetch_encoding decode phase(movement) limits(8, 8, 2048) {
  %unit = headrace.weight 0 "head" head : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<1000>
  // expected-error@+1 {{makes '!headrace.buffer<device, 1000, f32>' of '!headrace.buffer<host, 1000, bf16>': size and encoding must be the same}}
  %w, %t = headrace.prefetch %unit[0 for 1000] into %slot[0] step<movement> : <host, 1000, bf16>, slot<1000> -> <1000, f32>
}

// -----

headrace.iteration @prefetch_begins_in_slot decode phase(movement) limits(8, 8, 2048) {
  %unit = headrace.weight 0 "head" head : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<1000>
  // expected-error@+1 {{into a slot begins at byte 0, not at 400}}
  %w, %t = headrace.prefetch %unit[400 for 600] into %slot[0] step<movement> : <host, 1000, bf16>, slot<1000> -> <1000, bf16>
}

// -----

headrace.iteration @prefetch_slot decode phase(movement) limits(8, 8, 2048) {
  %unit = headrace.weight 0 "head" head : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<999>
  // expected-error@+1 {{puts 1000 bytes at 0 of a slot of 999}}
  %w, %t = headrace.prefetch %unit[0 for 1000] into %slot[0] step<movement> : <host, 1000, bf16>, slot<999> -> <1000, bf16>
}

// -----

headrace.iteration @prefetch_before_slot decode phase(movement) limits(8, 8, 2048) {
  %unit = headrace.weight 0 "head" head : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<1000>
  // expected-error@+1 {{puts 1000 bytes at -8 of a slot of 1000}}
  %w, %t = headrace.prefetch %unit[0 for 1000] into %slot[-8] step<movement> : <host, 1000, bf16>, slot<1000> -> <1000, bf16>
}

// -----

headrace.iteration @prefetch_gap decode phase(movement) limits(8, 8, 2048) {
  %unit = headrace.weight 0 "head" head : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<1000>
  %part = headrace.carry %unit[0 for 400] in %slot[0] : <host, 1000, bf16>, slot<1000> -> <400 of 1000, bf16>
  // expected-error@+1 {{onto a part of 400 bytes begins where that ends, not at 500}}
  %w, %t = headrace.prefetch %unit[500 for 500] onto %part step<movement> : <host, 1000, bf16>, <400 of 1000, bf16> -> <1000, bf16>
}

// -----

headrace.iteration @prefetch_other decode phase(movement) limits(8, 8, 2048) {
  %unit = headrace.weight 0 "head" head : <host, 1000, bf16>
  %other = headrace.weight 1 "embedding" embedding : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<1000>
  %part = headrace.carry %unit[0 for 400] in %slot[0] : <host, 1000, bf16>, slot<1000> -> <400 of 1000, bf16>
  // expected-error@+1 {{completes a part of another buffer}}
  %w, %t = headrace.prefetch %other[400 for 600] onto %part step<movement> : <host, 1000, bf16>, <400 of 1000, bf16> -> <1000, bf16>
}

// -----

"headrace.iteration"() <{sym_name = "prefetch_offset_of_part", iteration_class = 0 : i32, phase = 2 : i32, start_rule = 1 : i32, tokens = 8 : i64, sequences = 8 : i64, max_context = 8 : i64}> ({
  %unit = "headrace.weight"() <{unit = 0 : i64, name = "head", role = 5 : i32}> : () -> !headrace.buffer<host, 1000, bf16>
  %slot = "headrace.slot"() <{index = 0 : i32}> : () -> !headrace.slot<1000>
  %part = "headrace.carry"(%unit, %slot) <{range = array<i64: 0, 400>, slot_offset = 0 : i64}> : (!headrace.buffer<host, 1000, bf16>, !headrace.slot<1000>) -> !headrace.buffer<device, 400 of 1000, bf16>
  // expected-error@+1 {{onto a part lies where that part does; it has no offset of its own}}
  %w, %t = "headrace.prefetch"(%unit, %part) <{range = array<i64: 400, 600>, slot_offset = 8 : i64, step = array<i64: -1, 4, 0, -1, 0, 0, 0, 0, 0>}> : (!headrace.buffer<host, 1000, bf16>, !headrace.buffer<device, 400 of 1000, bf16>) -> (!headrace.buffer<device, 1000, bf16>, !headrace.token)
}) : () -> ()

// -----

headrace.iteration @evict_type decode phase(movement) limits(8, 8, 2048) {
  %kv = headrace.kv 0 : <host, 4096, bf16>
  %other = headrace.kv 1 : <host, 2048, bf16>
  %slot = headrace.slot 0 : slot<4096>
  %d, %t = headrace.prefetch %kv[0 for 4096] into %slot[0] step<movement> : <host, 4096, bf16>, slot<4096> -> <4096, bf16>
  // expected-error@+1 {{writes '!headrace.buffer<device, 4096, bf16>' back to '!headrace.buffer<host, 2048, bf16>': size and encoding must be the same}}
  %ht2, %t2 = headrace.evict dirty %d[0 for 64] to %other step<movement> : <4096, bf16>, <host, 2048, bf16>
}

// -----

headrace.iteration @evict_range decode phase(movement) limits(8, 8, 2048) {
  %kv = headrace.kv 0 : <host, 4096, bf16>
  %slot = headrace.slot 0 : slot<4096>
  %d, %t = headrace.prefetch %kv[0 for 4096] into %slot[0] step<movement> : <host, 4096, bf16>, slot<4096> -> <4096, bf16>
  // expected-error@+1 {{names bytes [4096 for 64] of a buffer of 4096}}
  %ht2, %t2 = headrace.evict dirty %d[4096 for 64] to %kv step<movement> : <4096, bf16>, <host, 4096, bf16>
}

// -----

headrace.iteration @evict_all decode phase(movement) limits(8, 8, 2048) {
  %kv = headrace.kv 0 : <host, 4096, bf16>
  %slot = headrace.slot 0 : slot<4096>
  %d, %t = headrace.prefetch %kv[0 for 4096] into %slot[0] step<movement> : <host, 4096, bf16>, slot<4096> -> <4096, bf16>
  // expected-error@+1 {{all names the whole buffer, [0 for 4096]}}
  %ht2, %t2 = headrace.evict all %d[0 for 64] to %kv step<movement> : <4096, bf16>, <host, 4096, bf16>
}

// -----

headrace.iteration @evict_to_another decode phase(movement) limits(8, 8, 2048) {
  %kv = headrace.kv 0 : <host, 4096, bf16>
  %other = headrace.kv 1 : <host, 4096, bf16>
  %slot = headrace.slot 0 : slot<4096>
  %d, %t = headrace.prefetch %kv[0 for 4096] into %slot[0] step<movement> : <host, 4096, bf16>, slot<4096> -> <4096, bf16>
  // expected-error@+1 {{writes back to another buffer's home}}
  %h, %t2 = headrace.evict all %d[0 for 4096] to %other step<movement> : <4096, bf16>, <host, 4096, bf16>
}

// -----

headrace.iteration @evict_waited_by_home decode phase(movement) limits(8, 8, 2048) {
  %kv = headrace.kv 0 : <host, 4096, bf16>
  %slot = headrace.slot 0 : slot<4096>
  %d, %t = headrace.prefetch %kv[0 for 4096] into %slot[0] step<movement> : <host, 4096, bf16>, slot<4096> -> <4096, bf16>
  %h, %t2 = headrace.evict all %d[0 for 4096] to %kv step<movement> : <4096, bf16>, <host, 4096, bf16>
  // expected-error@+1 {{waits for a copy by its token, not by its buffer}}
  headrace.wait %h : <host, 4096, bf16>
}

// -----

// What is written back makes a version of its home: the one before is no longer there.
headrace.iteration @evict_old_home decode phase(movement) limits(8, 8, 2048) {
  %kv = headrace.kv 0 : <host, 4096, bf16>
  %slot = headrace.slot 0 : slot<4096>
  %d, %t = headrace.prefetch %kv[0 for 4096] into %slot[0] step<movement> : <host, 4096, bf16>, slot<4096> -> <4096, bf16>
  // expected-note@+1 {{updated here}}
  %h, %t2 = headrace.evict all %d[0 for 4096] to %kv step<movement> : <4096, bf16>, <host, 4096, bf16>
  // expected-error@+1 {{uses a version of a buffer that 'headrace.evict' has updated in place}}
  %e, %t3 = headrace.prefetch %kv[0 for 4096] into %slot[0] step<movement> : <host, 4096, bf16>, slot<4096> -> <4096, bf16>
}

// -----

headrace.iteration @dirty_weight_on_entry decode phase(movement) limits(8, 8, 2048) {
  %unit = headrace.weight 0 "q" qkv layer 0 : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<1024>
  // expected-error@+1 {{is dirty, but of no KV cache: its home is never behind}}
  %d = headrace.carry %unit[0 for 1000] in %slot[0] dirty : <host, 1000, bf16>, slot<1024> -> <1000, bf16>
}

// -----

headrace.iteration @dirty_weight_on_exit decode phase(movement) limits(8, 8, 2048) {
  %unit = headrace.weight 0 "q" qkv layer 0 : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<1024>
  %d = headrace.carry %unit[0 for 1000] in %slot[0] : <host, 1000, bf16>, slot<1024> -> <1000, bf16>
  // expected-error@+1 {{is dirty, but of no KV cache: its home is never behind}}
  headrace.carry_out %d dirty : <1000, bf16>
}

// -----

headrace.iteration @release_home decode phase(movement) limits(8, 8, 2048) {
  %unit = headrace.weight 0 "head" head : <1000, bf16>
  // expected-error@+1 {{takes a range that prefetch or carry brought}}
  headrace.release %unit : <1000, bf16>
}

// -----

headrace.iteration @carry_out_home decode phase(movement) limits(8, 8, 2048) {
  %unit = headrace.weight 0 "head" head : <1000, bf16>
  // expected-error@+1 {{takes a range that prefetch or carry brought}}
  headrace.carry_out %unit : <1000, bf16>
}

// -----

headrace.iteration @wait_for_home decode phase(movement) limits(8, 8, 2048) {
  %unit = headrace.weight 0 "head" head : <1000, bf16>
  // expected-error@+1 {{waits for something that no step of this iteration makes}}
  headrace.wait %unit : <1000, bf16>
}

// -----

headrace.iteration @wait_by_buffer decode phase(movement) limits(8, 8, 2048) {
  %unit = headrace.weight 0 "head" head : <host, 1000, bf16>
  %slot = headrace.slot 0 : slot<1000>
  %w, %t = headrace.prefetch %unit[0 for 1000] into %slot[0] step<movement> : <host, 1000, bf16>, slot<1000> -> <1000, bf16>
  // expected-error@+1 {{waits for a copy by its token, not by its buffer}}
  headrace.wait %w : <1000, bf16>
}

// -----

headrace.iteration @act_layer decode phase(model) limits(8, 8, 2048) {
  // expected-error@+1 {{has layer -1, which must not be negative}}
  %act = headrace.act -1 : <400, bf16>
}

// -----

headrace.iteration @act_mini_batch decode phase(model) limits(8, 8, 2048) {
  // expected-error@+1 {{has mini-batch 64, expected 0 to 63}}
  %act = headrace.act 0 mini_batch(64) : <400, bf16>
}

// -----

headrace.iteration @rebuild_weight decode phase(model) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %unit = headrace.weight 0 "layers.0.qkv" qkv layer 0 : <1000, bf16>
  %act = headrace.act 0 : <400, bf16>
  // expected-error@+1 {{reads its weight from bytes [600 for 500] of a unit of 1000}}
  %k = headrace.rebuild_kv tokens(%meta) %act, %unit[600 for 500] step<attention 0> : <512, bytes>, <400, bf16>, <1000, bf16> -> <800, bf16>
}

// -----

headrace.iteration @rebuild_norms decode phase(model) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %unit = headrace.weight 0 "layers.0.qkv" qkv layer 0 : <1000, bf16>
  %act = headrace.act 0 : <400, bf16>
  // expected-error@+1 {{reads its norms from bytes [990 for 64] of a unit of 1000}}
  %k = headrace.rebuild_kv tokens(%meta) %act, %unit[0 for 500, 500 for 20] norms[990 for 64] step<attention 0> : <512, bytes>, <400, bf16>, <1000, bf16> -> <800, bf16>
}

// -----

headrace.iteration @attention_of_rebuilt_alone decode phase(model) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %unit = headrace.weight 0 "layers.0.qkv" qkv layer 0 : <1000, bf16>
  %act = headrace.act 0 : <400, bf16>
  %k = headrace.rebuild_kv tokens(%meta) %act, %unit[0 for 500] step<attention 0> : <512, bytes>, <400, bf16>, <1000, bf16> -> <800, bf16>
  // expected-error@+1 {{takes a cache, and its tail if it is split, not 0 buffers}}
  %a = headrace.attention tokens(%meta) %unit, %k step<attention 0> : <512, bytes>, <1000, bf16>, <800, bf16> -> <400, bf16>
}

// -----

headrace.iteration @rebuilt_before_the_cache decode phase(model) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %unit = headrace.weight 0 "layers.0.qkv" qkv layer 0 : <1000, bf16>
  %act = headrace.act 0 : <400, bf16>
  %kv = headrace.kv 0 : <4096, bf16>
  %k = headrace.rebuild_kv tokens(%meta) %act, %unit[0 for 500] step<attention 0> : <512, bytes>, <400, bf16>, <1000, bf16> -> <800, bf16>
  // expected-error@+1 {{takes rebuilt keys and values once, behind the cache}}
  %a = headrace.attention tokens(%meta) %unit, %k, %kv step<attention 0> : <512, bytes>, <1000, bf16>, <800, bf16>, <4096, bf16> -> <400, bf16>
}

// -----

headrace.iteration @rope_norms decode phase(model) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %unit = headrace.weight 1 "layers.0.qkv" qkv layer 0 : <1000, f16>
  %kv = headrace.kv 0 : <4096, bf16>
  // expected-error@+1 {{reads its norms from bytes [960 for 64] of a unit of 1000}}
  %r, %k = headrace.rope_append tokens(%meta) %unit, %kv norms %unit[960 for 64] step<attention 0> : <512, bytes>, <1000, f16>, <4096, bf16>, <1000, f16>
}

// -----

headrace.iteration @rope_norms_of_no_unit decode phase(model) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %unit = headrace.weight 1 "layers.0.qkv" qkv layer 0 : <1000, f16>
  %kv = headrace.kv 0 : <4096, bf16>
  // expected-error@+1 {{has norms of no unit}}
  %r, %k = "headrace.rope_append"(%meta, %unit, %kv) <{head_norms = array<i64: 0, 64>, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>, step = array<i64: 0, 1, 0, -1, 0, 0, 0, 0, 0>}> : (!headrace.buffer<device, 512, bytes>, !headrace.buffer<device, 1000, f16>, !headrace.buffer<device, 4096, bf16>) -> (!headrace.buffer<device, 1000, f16>, !headrace.buffer<device, 4096, bf16>)
}

// -----

headrace.iteration @append_that_is_not_direct decode phase(homes) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %qkv = headrace.io output : <600, f32>
  %kv = headrace.kv 0 : <256, f32>
  %tail = headrace.kv 0 tail : <host, 512, f32>
  // expected-error@+1 {{writes host buffers and must be marked direct}}
  %r, %k, %h = headrace.rope_append tokens(%meta) %qkv, %kv home %tail step<attention 0> : <512, bytes>, <600, f32>, <256, f32>, <host, 512, f32>
}

// -----

headrace.iteration @direct_append_of_nothing decode phase(homes) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %qkv = headrace.io output : <600, f32>
  %kv = headrace.kv 0 : <256, f32>
  // expected-error@+1 {{is marked direct but writes device buffers}}
  %r, %k = headrace.rope_append tokens(%meta) %qkv, %kv step<attention 0, direct> : <512, bytes>, <600, f32>, <256, f32>
}

// -----

headrace.iteration @attention_over_three decode phase(homes) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %qkv = headrace.io output : <600, f32>
  %kv = headrace.kv 0 : <256, f32>
  // expected-error@+1 {{takes a cache, and its tail if it is split, not 3 buffers}}
  %a = headrace.attention tokens(%meta) %qkv, %kv, %kv, %kv step<attention 0> : <512, bytes>, <600, f32>, <256, f32>, <256, f32>, <256, f32> -> <400, f32>
}

// -----

// expected-error@+1 {{may use -1 KV blocks}}
headrace.iteration @fewer_than_no_blocks decode phase(model) limits(8, 8, 2048) kv(-1) {
}

// -----

// expected-error@+1 {{is number 3 of a cycle of 3: numbers go from 0 to one less than there are}}
headrace.iteration @beyond_the_cycle decode phase(model) limits(8, 8, 2048) cycle(3 of 3) {
}

// -----

// expected-error@+1 {{is a transition, of which there are no cycles}}
headrace.iteration @a_cycle_of_transitions transition phase(model) limits(0, 0, 0) cycle(0 of 2) {
}

// -----

// What the CPU works on is on the host.
headrace.iteration @append_of_rows_on_the_device decode phase(homes) limits(8, 8, 2048) {
  %meta = headrace.staging meta : <host, 512, bytes>
  %kv = headrace.kv 0 tail : <host, 4096, bf16>
  %q = headrace.io output : <800, f32>
  // expected-error@+1 {{operand #1 must be whole buffer on the host}}
  %k = headrace.append tokens(%meta) %q, %kv step<attention 0> : <host, 512, bytes>, <800, f32>, <host, 4096, bf16>
}

// -----

headrace.iteration @rotate_norms decode phase(model) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %unit = headrace.weight 0 "q" qkv layer 0 : <1000, f16>
  %q = headrace.io output : <800, f32>
  // expected-error@+1 {{reads its norms from bytes [960 for 64] of a unit of 1000}}
  %r = headrace.rotate tokens(%meta) %q norms %unit[960 for 64] step<attention 0> : <512, bytes>, <800, f32>, <1000, f16>
}

// -----

headrace.iteration @rotate_norms_of_nothing decode phase(model) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %q = headrace.io output : <800, f32>
  // expected-error@+1 {{has norms of no unit}}
  %r = "headrace.rotate"(%meta, %q) <{head_norms = array<i64: 0, 64>, step = array<i64: 0, 1, 0, -1, 0, 0, 0, 0, 0>}> : (!headrace.buffer<device, 512, bytes>, !headrace.buffer<device, 800, f32>) -> !headrace.buffer<device, 800, f32>
}

// -----

headrace.iteration @ids_of_another_size decode phase(model) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %sampled = headrace.io sampled : <32, bytes>
  %history = headrace.io history : <64, bytes>
  // expected-error@+1 {{failed to verify that all of {history, next_history} have same type}}
  %ids = "headrace.keep_ids"(%meta, %sampled, %history) <{step = array<i64: -1, 3, 0, -1, 0, 0, 0, 0, 0>}> : (!headrace.buffer<device, 512, bytes>, !headrace.buffer<device, 32, bytes>, !headrace.buffer<device, 64, bytes>) -> !headrace.buffer<device, 128, bytes>
}

// -----

headrace.iteration @fetch_not_direct decode phase(homes) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %a = headrace.staging attended : <host, 400, f32>
  // expected-error@+1 {{reads a host buffer and must be marked direct}}
  %f = headrace.fetch_rows tokens(%meta) %a step<attention 0> : <512, bytes>, <host, 400, f32> -> <400, f32>
}

// -----

headrace.iteration @fetch_of_another_size decode phase(homes) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  %a = headrace.staging attended : <host, 400, f32>
  // expected-error@+1 {{fetches '!headrace.buffer<host, 400, f32>' to '!headrace.buffer<device, 800, f32>'}}
  %f = headrace.fetch_rows tokens(%meta) %a step<attention 0, direct> : <512, bytes>, <host, 400, f32> -> <800, f32>
}

// -----

headrace.iteration @stage_of_another_size decode phase(homes) limits(8, 8, 2048) {
  %q = headrace.io output : <800, f32>
  %rows = headrace.staging qkv : <host, 400, f32>
  // expected-error@+1 {{stages '!headrace.buffer<device, 800, f32>' in '!headrace.buffer<host, 400, f32>'}}
  %s = headrace.stage %q into %rows step<movement 0> : <800, f32>, <host, 400, f32>
}

// -----

headrace.iteration @staging_of_no_mini_batch decode phase(homes) limits(8, 8, 2048) {
  // expected-error@+1 {{has mini-batch 64}}
  %rows = headrace.staging qkv mini_batch(64) : <host, 400, f32>
}
