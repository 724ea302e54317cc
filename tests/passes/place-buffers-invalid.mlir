// RUN: headrace-opt %s -split-input-file -verify-diagnostics -headrace-place-buffers

// expected-error@+1 {{buffers are placed in the lanes phase, not in phase movement}}
headrace.iteration @movement decode phase(movement) limits(8, 8, 2048) {
}

// -----

// expected-note@+1 {{which is this one}}
headrace.iteration @decode decode phase(lanes) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
}
// expected-error@+1 {{has other io buffers than 'decode': the iterations of a module are those of one placement}}
headrace.iteration @mixed mixed phase(lanes) limits(8, 8, 2048) {
  %meta = headrace.io meta : <1024, bytes>
}

// -----

// expected-note@+1 {{which is this one}}
headrace.iteration @decode decode phase(lanes) limits(8, 8, 2048) {
  %kv = headrace.kv 0 : <512, bf16>
}
// expected-error@+1 {{has other KV caches than 'decode'}}
headrace.iteration @mixed mixed phase(lanes) limits(8, 8, 2048) {
}

// -----

// expected-note@+1 {{which is this one}}
headrace.iteration @decode decode phase(lanes) limits(8, 8, 2048) {
  %slot = headrace.slot 0 : slot<1024>
}
// expected-error@+1 {{has other slots than 'decode'}}
headrace.iteration @mixed mixed phase(lanes) limits(8, 8, 2048) {
  %slot = headrace.slot 0 : slot<2048>
}

// -----

// expected-note@+1 {{which is this one}}
headrace.iteration @decode decode phase(lanes) limits(8, 8, 2048) {
  %a = headrace.weight 0 "a" embedding : <1024, bf16>
}
// expected-error@+1 {{has other weights at home on the device than 'decode'}}
headrace.iteration @mixed mixed phase(lanes) limits(8, 8, 2048) {
  %a = headrace.weight 1 "a" embedding : <1024, bf16>
}

// -----

// expected-note@+1 {{which is this one}}
headrace.iteration @decode decode phase(lanes) limits(8, 8, 2048) {
  %a = headrace.weight 0 "a" embedding at 0 : <host, 1024, bf16>
}
// expected-error@+1 {{has other buffers at home elsewhere than 'decode'}}
headrace.iteration @mixed mixed phase(lanes) limits(8, 8, 2048) {
}

// -----

// Two buffers of 2^61 bytes and one byte's worth more.
// expected-error@+1 {{has more bytes than can be addressed}}
headrace.iteration @huge decode phase(lanes) limits(8, 8, 2048) {
  %a = headrace.weight 0 "a" embedding : <2305843009213693952, bf16>
  %b = headrace.weight 1 "b" head : <2305843009213693952, bf16>
  %meta = headrace.io meta : <512, bytes>
}

// -----

headrace.iteration @waits decode phase(lanes) limits(8, 8, 2048) {
  %meta = headrace.io meta : <512, bytes>
  // expected-error@+1 {{has no lane, in phase lanes}}
  headrace.publish sampled(%meta) %meta step<head> : <512, bytes>, <512, bytes>
}

// -----

headrace.iteration @nowhere decode phase(lanes) limits(8, 8, 2048) {
  // expected-error@+1 {{has no address in the host slab: place-on-host comes first}}
  %a = headrace.weight 0 "a" embedding : <host, 1024, bf16>
}
