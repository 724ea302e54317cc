// RUN: headrace-opt %s -split-input-file -verify-diagnostics

// expected-error@+1 {{expected device or host, got 'moon'}}
"headrace.nothing"() {type = !headrace.buffer<moon, 400, f32>} : () -> ()

// -----

// expected-error@+1 {{expected f32, f16, bf16, bytes or packed, got 'fp8'}}
"headrace.nothing"() {type = !headrace.buffer<device, 400, fp8>} : () -> ()

// -----

// expected-error@+1 {{a buffer has between 1 and 2^62 bytes, got 0}}
"headrace.nothing"() {type = !headrace.buffer<device, 0, f32>} : () -> ()

// -----

// 2^62 + 4
// expected-error@+1 {{a buffer has between 1 and 2^62 bytes, got 4611686018427387908}}
"headrace.nothing"() {type = !headrace.buffer<device, 4611686018427387908, f32>} : () -> ()

// -----

// expected-error@+1 {{a buffer of 400 bytes cannot hold 404}}
"headrace.nothing"() {type = !headrace.buffer<device, 404 of 400, f32>} : () -> ()

// -----

// expected-error@+1 {{a buffer of 400 bytes cannot hold 0}}
"headrace.nothing"() {type = !headrace.buffer<device, 0 of 400, f32>} : () -> ()

// -----

// expected-error@+1 {{402 bytes are no whole number of f32 elements}}
"headrace.nothing"() {type = !headrace.buffer<device, 402, f32>} : () -> ()

// -----

// expected-error@+1 {{401 bytes are no whole number of bf16 elements}}
"headrace.nothing"() {type = !headrace.buffer<device, 401, bf16>} : () -> ()

// -----

// expected-error@+1 {{a slot has between 1 and 2^62 bytes, got 0}}
"headrace.nothing"() {type = !headrace.slot<0>} : () -> ()
