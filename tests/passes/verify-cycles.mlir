// Iterations that follow each other in a cycle: each finds what the one before it leaves, in both classes alike.
// RUN: headrace-opt %s -split-input-file -verify-diagnostics -headrace-verify-cycles

// Two tails in a place by turns: the first iteration finds 0 and leaves 1.
headrace.iteration @a decode phase(movement) limits(8, 8, 2048) cycle(0 of 2) {
  %k0 = headrace.kv 0 tail : <host, 1024, f32>
  %k1 = headrace.kv 1 tail : <host, 1024, f32>
  %slot = headrace.slot 0 : slot<1024>
  %d0 = headrace.carry %k0[0 for 1024] in %slot[0] : <host, 1024, f32>, slot<1024> -> <1024, f32>
  headrace.release %d0 : <1024, f32>
  %d1, %t1 = headrace.prefetch %k1[0 for 1024] into %slot[0] step<movement 1> : <host, 1024, f32>, slot<1024> -> <1024, f32>
  headrace.carry_out %d1 : <1024, f32>
}
headrace.iteration @b decode phase(movement) limits(8, 8, 2048) cycle(1 of 2) {
  %k0 = headrace.kv 0 tail : <host, 1024, f32>
  %k1 = headrace.kv 1 tail : <host, 1024, f32>
  %slot = headrace.slot 0 : slot<1024>
  %d1 = headrace.carry %k1[0 for 1024] in %slot[0] : <host, 1024, f32>, slot<1024> -> <1024, f32>
  headrace.release %d1 : <1024, f32>
  %d0, %t0 = headrace.prefetch %k0[0 for 1024] into %slot[0] step<movement 0> : <host, 1024, f32>, slot<1024> -> <1024, f32>
  headrace.carry_out %d0 : <1024, f32>
}

// -----

headrace.iteration @keeps decode phase(movement) limits(8, 8, 2048) cycle(0 of 2) {
  %k0 = headrace.kv 0 tail : <host, 1024, f32>
  %slot = headrace.slot 0 : slot<1024>
  %d0 = headrace.carry %k0[0 for 1024] in %slot[0] : <host, 1024, f32>, slot<1024> -> <1024, f32>
  headrace.carry_out %d0 : <1024, f32>
}
// expected-error@+1 {{finds on entry 1024 bytes of kv.0.tail in slot 1, which is not what 'keeps' leaves behind it}}
headrace.iteration @elsewhere decode phase(movement) limits(8, 8, 2048) cycle(1 of 2) {
  %k0 = headrace.kv 0 tail : <host, 1024, f32>
  %slot = headrace.slot 0 : slot<1024>
  %other = headrace.slot 1 : slot<1024>
  %d0 = headrace.carry %k0[0 for 1024] in %other[0] : <host, 1024, f32>, slot<1024> -> <1024, f32>
  headrace.release %d0 : <1024, f32>
  %d1, %t1 = headrace.prefetch %k0[0 for 1024] into %slot[0] step<movement 0> : <host, 1024, f32>, slot<1024> -> <1024, f32>
  headrace.carry_out %d1 : <1024, f32>
}

// -----

// The home of what is dirty may be behind: who finds it must know.
headrace.iteration @leaves_dirty decode phase(movement) limits(8, 8, 2048) cycle(0 of 2) {
  %k0 = headrace.kv 0 tail : <host, 1024, f32>
  %slot = headrace.slot 0 : slot<1024>
  %d0 = headrace.carry %k0[0 for 1024] in %slot[0] : <host, 1024, f32>, slot<1024> -> <1024, f32>
  headrace.carry_out %d0 dirty : <1024, f32>
}
// expected-error@+1 {{finds on entry 1024 bytes of kv.0.tail in slot 0, which is not what 'leaves_dirty' leaves behind it}}
headrace.iteration @does_not_know decode phase(movement) limits(8, 8, 2048) cycle(1 of 2) {
  %k0 = headrace.kv 0 tail : <host, 1024, f32>
  %slot = headrace.slot 0 : slot<1024>
  %d0 = headrace.carry %k0[0 for 1024] in %slot[0] : <host, 1024, f32>, slot<1024> -> <1024, f32>
  headrace.carry_out %d0 : <1024, f32>
}

// -----

headrace.iteration @more decode phase(movement) limits(8, 8, 2048) cycle(0 of 2) {
  %k0 = headrace.kv 0 tail : <host, 1024, f32>
  %slot = headrace.slot 0 : slot<1024>
  %d0, %t0 = headrace.prefetch %k0[0 for 1024] into %slot[0] step<movement 0> : <host, 1024, f32>, slot<1024> -> <1024, f32>
  headrace.carry_out %d0 : <1024, f32>
}
// expected-error@+1 {{does not find on entry 1024 bytes of kv.0.tail in slot 0, which 'more' leaves behind it}}
headrace.iteration @finds_nothing decode phase(movement) limits(8, 8, 2048) cycle(1 of 2) {
}

// -----

// expected-error@+1 {{is number 0 of a cycle of 2, beside which there is not each other number once}}
headrace.iteration @alone decode phase(movement) limits(8, 8, 2048) cycle(0 of 2) {
}

// -----

headrace.iteration @first decode phase(movement) limits(8, 8, 2048) cycle(0 of 2) {
}
headrace.iteration @second decode phase(movement) limits(8, 8, 2048) cycle(0 of 2) {
}
// expected-error@-2 {{is number 0 of a cycle of 2, beside which there is not each other number once}}

// -----

headrace.iteration @decode_0 decode phase(movement) limits(8, 8, 2048) cycle(0 of 2) {
}
headrace.iteration @decode_1 decode phase(movement) limits(8, 8, 2048) cycle(1 of 2) {
}
// expected-error@+1 {{finds on entry 1024 bytes of kv.0.tail in slot 0, which is not what 'decode_0' finds in its place}}
headrace.iteration @mixed_0 mixed phase(movement) limits(8, 8, 2048) cycle(0 of 2) {
  %k0 = headrace.kv 0 tail : <host, 1024, f32>
  %slot = headrace.slot 0 : slot<1024>
  %d0 = headrace.carry %k0[0 for 1024] in %slot[0] : <host, 1024, f32>, slot<1024> -> <1024, f32>
  headrace.carry_out %d0 : <1024, f32>
}
headrace.iteration @mixed_1 mixed phase(movement) limits(8, 8, 2048) cycle(1 of 2) {
  %k0 = headrace.kv 0 tail : <host, 1024, f32>
  %slot = headrace.slot 0 : slot<1024>
  %d0 = headrace.carry %k0[0 for 1024] in %slot[0] : <host, 1024, f32>, slot<1024> -> <1024, f32>
  headrace.carry_out %d0 : <1024, f32>
}

// -----

headrace.iteration @decode_0 decode phase(movement) limits(8, 8, 2048) cycle(0 of 2) {
}
headrace.iteration @decode_1 decode phase(movement) limits(8, 8, 2048) cycle(1 of 2) {
}
// expected-error@+1 {{is of a cycle of 3, that of the other class has 2}}
headrace.iteration @mixed_0 mixed phase(movement) limits(8, 8, 2048) cycle(0 of 3) {
}
headrace.iteration @mixed_1 mixed phase(movement) limits(8, 8, 2048) cycle(1 of 3) {
}
headrace.iteration @mixed_2 mixed phase(movement) limits(8, 8, 2048) cycle(2 of 3) {
}
