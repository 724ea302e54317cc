// One program for each rule of the offsets phase.
// RUN: headrace-opt %s -split-input-file -verify-diagnostics -headrace-verify-phase

headrace.iteration @no_address decode phase(offsets) limits(8, 8, 2048) arena(4096) {
  // expected-error@+1 {{has no address, in phase offsets}}
  %meta = headrace.io meta : <512, bytes>
}

// -----

headrace.iteration @no_host_address decode phase(offsets) limits(8, 8, 2048) arena(4096) {
  // expected-error@+1 {{has no address, in phase offsets}}
  %a = headrace.weight 0 "a" qkv layer 0 : <host, 1000, bf16>
}

// -----

headrace.iteration @alignment decode phase(offsets) limits(8, 8, 2048) arena(4096) {
  // expected-error@+1 {{lies at 100, which is no multiple of 256}}
  %meta = headrace.io meta at 100 : <512, bytes>
}

// -----

headrace.iteration @beyond decode phase(offsets) limits(8, 8, 2048) arena(4096) {
  // 3840 + 512 = 4352
  // expected-error@+1 {{lies at [3840 for 512], beyond the arena of 4096 bytes}}
  %meta = headrace.io meta at 3840 : <512, bytes>
}

// -----

headrace.iteration @larger_than_arena decode phase(offsets) limits(8, 8, 2048) arena(256) {
  // expected-error@+1 {{lies at [0 for 512], beyond the arena of 256 bytes}}
  %meta = headrace.io meta at 0 : <512, bytes>
}

// -----

headrace.iteration @slot_beyond decode phase(offsets) limits(8, 8, 2048) arena(4096) {
  // expected-error@+1 {{lies at [3584 for 1024], beyond the arena of 4096 bytes}}
  %slot = headrace.slot 0 at 3584 : slot<1024>
}

// -----

headrace.iteration @overlap decode phase(offsets) limits(8, 8, 2048) arena(8192) {
  // expected-note@+1 {{which is this one}}
  %kv = headrace.kv 0 at 0 : <4096, bf16>
  // expected-error@+1 {{lies at [3840 for 512], where another buffer is}}
  %meta = headrace.io meta at 3840 : <512, bytes>
}

// -----

headrace.iteration @slot_overlap decode phase(offsets) limits(8, 8, 2048) arena(8192) {
  // expected-note@+1 {{which is this one}}
  %kv = headrace.kv 0 at 0 : <4096, bf16>
  // expected-error@+1 {{lies at [3840 for 1024], where another buffer is}}
  %slot = headrace.slot 0 at 3840 : slot<1024>
}

// -----

headrace.iteration @host_overlap decode phase(offsets) limits(8, 8, 2048) arena(8192) {
  // expected-note@+1 {{which is this one}}
  %a = headrace.weight 0 "a" qkv layer 0 at 0 : <host, 1000, bf16>
  // expected-error@+1 {{lies at [768 for 1000], where another buffer is}}
  %b = headrace.weight 1 "b" qkv layer 1 at 768 : <host, 1000, bf16>
}

// -----

headrace.iteration @transient_address decode phase(offsets) limits(8, 8, 2048) arena(8192) {
  %meta = headrace.io meta at 0 : <512, bytes>
  %x = headrace.io sampled at 512 : <512, f32>
  // expected-error@+1 {{has no address, in phase offsets}}
  %y = headrace.gather_rows sampled(%meta) %x step<head on compute> : <512, bytes>, <512, f32> -> <512, f32>
}

// -----

headrace.iteration @transient_beyond decode phase(offsets) limits(8, 8, 2048) arena(4096) {
  %meta = headrace.io meta at 0 : <512, bytes>
  %x = headrace.io sampled at 512 : <512, f32>
  // expected-error@+1 {{lies at [3840 for 512], beyond the arena of 4096 bytes}}
  %y = headrace.gather_rows sampled(%meta) %x step<head on compute> at 3840 : <512, bytes>, <512, f32> -> <512, f32>
}

// -----

headrace.iteration @transient_over_home decode phase(offsets) limits(8, 8, 2048) arena(4096) {
  %meta = headrace.io meta at 0 : <512, bytes>
  %x = headrace.io sampled at 512 : <512, f32>
  // expected-error@+1 {{writes over a buffer that is at home there}}
  %y = headrace.gather_rows sampled(%meta) %x step<head on compute> at 256 : <512, bytes>, <512, f32> -> <512, f32>
}

// -----

headrace.iteration @scratch_address decode phase(offsets) limits(8, 8, 2048) arena(8192) {
  %meta = headrace.io meta at 0 : <512, bytes>
  %q = headrace.io sampled at 512 : <512, f32>
  %kv = headrace.kv 0 at 1024 : <4096, bf16>
  // expected-error@+1 {{has no address, in phase offsets}}
  %a = headrace.attention tokens(%meta) %q, %kv step<attention 0 on compute> at 5120 scratch 256 : <512, bytes>, <512, f32>, <4096, bf16> -> <512, f32>
}

// -----

headrace.iteration @scratch_over_home decode phase(offsets) limits(8, 8, 2048) arena(8192) {
  %meta = headrace.io meta at 0 : <512, bytes>
  %q = headrace.io sampled at 512 : <512, f32>
  %kv = headrace.kv 0 at 1024 : <4096, bf16>
  // expected-error@+1 {{writes over a buffer that is at home there}}
  %a = headrace.attention tokens(%meta) %q, %kv step<attention 0 on compute> at 5120 scratch 256 at 0 : <512, bytes>, <512, f32>, <4096, bf16> -> <512, f32>
}

// -----

// y takes the place of x, which is read once more.
headrace.iteration @transients decode phase(offsets) limits(8, 8, 2048) arena(8192) {
  %meta = headrace.io meta at 0 : <512, bytes>
  %s = headrace.io sampled at 512 : <512, f32>
  %x = headrace.gather_rows sampled(%meta) %s step<head on compute> at 1024 : <512, bytes>, <512, f32> -> <512, f32>
  %y = headrace.gather_rows sampled(%meta) %s step<head on compute> at 1280 : <512, bytes>, <512, f32> -> <512, f32>
  // [1024 for 512] but for [1280 for 256]
  // expected-error@+1 {{needs 512 bytes of a buffer of which only 256 are where they should be}}
  %z = headrace.gather_rows sampled(%meta) %x step<head on compute> at 2048 : <512, bytes>, <512, f32> -> <512, f32>
}

// -----

// A step's result and its scratch.
headrace.iteration @scratch_over_result decode phase(offsets) limits(8, 8, 2048) arena(8192) {
  %meta = headrace.io meta at 0 : <512, bytes>
  %q = headrace.io sampled at 512 : <512, f32>
  %kv = headrace.kv 0 at 1024 : <4096, bf16>
  // expected-error@+1 {{writes over bytes that it uses itself}}
  %a = headrace.attention tokens(%meta) %q, %kv step<attention 0 on compute> at 5120 scratch 256 at 5376 : <512, bytes>, <512, f32>, <4096, bf16> -> <512, f32>
}

// -----

// A step's result over what it reads.
headrace.iteration @result_over_operand decode phase(offsets) limits(8, 8, 2048) arena(8192) {
  %meta = headrace.io meta at 0 : <512, bytes>
  %s = headrace.io sampled at 512 : <512, f32>
  %x = headrace.gather_rows sampled(%meta) %s step<head on compute> at 1024 : <512, bytes>, <512, f32> -> <512, f32>
  // expected-error@+1 {{writes over bytes that it uses itself}}
  %z = headrace.gather_rows sampled(%meta) %x step<head on compute> at 1280 : <512, bytes>, <512, f32> -> <512, f32>
}

// -----

// A transient in a slot whose copy may be under way: no wait orders it behind the transient's last use.
headrace.iteration @transient_in_slot decode phase(offsets) limits(8, 8, 2048) arena(8192) {
  %meta = headrace.io meta at 0 : <512, bytes>
  %s = headrace.io sampled at 512 : <512, f32>
  %a = headrace.weight 0 "a" qkv layer 0 at 0 : <host, 1000, bf16>
  %slot = headrace.slot 0 at 2048 : slot<1024>
  // expected-note@+1 {{first used here}}
  %x = headrace.gather_rows sampled(%meta) %s step<head on compute> at 2048 : <512, bytes>, <512, f32> -> <512, f32>
  %y = headrace.gather_rows sampled(%meta) %x step<head on compute> at 4096 : <512, bytes>, <512, f32> -> <512, f32>
  // expected-error@+1 {{overwrites bytes that an earlier step may still be using: no wait orders them}}
  %d, %t = headrace.prefetch %a[0 for 1000] into %slot[0] step<movement 0 on h2d> : <host, 1000, bf16>, slot<1024> -> <1000, bf16>
  headrace.release %d : <1000, bf16>
}

// -----

// A transient over what a slot keeps until the end.
headrace.iteration @transient_over_carried decode phase(offsets) limits(8, 8, 2048) arena(8192) {
  %meta = headrace.io meta at 0 : <512, bytes>
  %s = headrace.io sampled at 512 : <512, f32>
  %a = headrace.weight 0 "a" qkv layer 0 at 0 : <host, 1000, bf16>
  %slot = headrace.slot 0 at 2048 : slot<1024>
  %d = headrace.carry %a[0 for 1000] in %slot[0] : <host, 1000, bf16>, slot<1024> -> <1000, bf16>
  %x = headrace.gather_rows sampled(%meta) %s step<head on compute> at 2560 : <512, bytes>, <512, f32> -> <512, f32>
  // [0, 512) of the slot are left of 1000
  // expected-error@+1 {{needs 1000 bytes of a buffer of which only 512 are where they should be}}
  headrace.carry_out %d : <1000, bf16>
}

// -----

// Caches that are interleaved: the first has the range of all.
headrace.iteration @interleaved_beyond decode phase(offsets) limits(8, 8, 64) arena(1024) {
  // expected-error@+1 {{lies at [256 for 1024], interleaved with others, beyond the arena of 1024 bytes}}
  %kv = headrace.kv 0 interleaved(256 by 512) at 256 : <512, f32>
}

// -----

headrace.iteration @interleaved_other_stride decode phase(offsets) limits(8, 8, 64) arena(4096) {
  // expected-note@+1 {{which is this one}}
  %kv = headrace.kv 0 interleaved(256 by 512) at 0 : <512, f32>
  // expected-error@+1 {{is interleaved in another way than the first cache}}
  %kv1 = headrace.kv 1 interleaved(256 by 1024) at 256 : <512, f32>
}

// -----

headrace.iteration @interleaved_outside decode phase(offsets) limits(8, 8, 64) arena(4096) {
  // expected-note@+1 {{which is this one}}
  %kv = headrace.kv 0 interleaved(256 by 512) at 0 : <512, f32>
  // expected-error@+1 {{does not begin at a block of the first cache's stride}}
  %kv1 = headrace.kv 1 interleaved(256 by 512) at 512 : <512, f32>
}

// -----

headrace.iteration @interleaved_twice decode phase(offsets) limits(8, 8, 64) arena(4096) {
  // expected-note@+1 {{which is this one}}
  %kv = headrace.kv 0 interleaved(256 by 512) at 0 : <512, f32>
  // expected-error@+1 {{is interleaved, and lies where another cache is}}
  %kv1 = headrace.kv 1 interleaved(256 by 512) at 0 : <512, f32>
}

// -----

headrace.iteration @interleaved_over_another decode phase(offsets) limits(8, 8, 64) arena(4096) {
  // expected-note@+1 {{which is this one}}
  %kv = headrace.kv 0 interleaved(256 by 512) at 0 : <512, f32>
  // expected-error@+1 {{lies at [768 for 256], where another buffer is}}
  %x = headrace.io sampled at 768 : <256, f32>
}
