// SPDX-License-Identifier: Apache-2.0
//
// HybridServe's times with round numbers, the paper's models on the paper's machine, and random cases of fixed seeds.
#pragma once

#include <cstdint>
#include <random>

#include "runtime/cost/HybridServe.h"

namespace headrace::cost {

// Blocks of one token; a KV block's load takes 10, an ACT block's 5 and its K and V 10; weights 1000; forward 90.
inline HybridTimes roundTimes() {
  HybridTimes t;
  t.loadWeightsNs = 1000;
  t.loadKv = {0, 10};
  t.loadAct = {0, 5};
  t.kvGen = {0, 10};
  t.forward = {90, 0};
  t.blockTokens = 1;
  return t;
}

// A layer of OPT (float16, as many key/value heads as heads) at 25 GB/s and 60% of 165 TFLOP/s, all else free: a
// token's K and V are 2 x hidden bytes each and 2 x hidden x hidden flops each, its activations 2 x hidden bytes, a
// layer's weights 12 hidden^2 elements.
inline HybridTimes optTimes(double hidden) {
  const double nsPerByte = 1e9 / 25e9, nsPerFlop = 1e9 / (0.6 * 165e12);
  HybridTimes t;
  t.loadWeightsNs = 24 * hidden * hidden * nsPerByte;
  t.loadKv = {0, 4 * hidden * nsPerByte};
  t.loadAct = {0, 2 * hidden * nsPerByte};
  t.kvGen = {0, 4 * hidden * hidden * nsPerFlop};
  t.blockTokens = 16;
  return t;
}

class Random {
public:
  explicit Random(uint64_t seed) : bits(seed) {}
  int64_t in(int64_t first, int64_t last) { // both included
    return first + static_cast<int64_t>(bits() % static_cast<uint64_t>(last - first + 1));
  }

  // Lines with intercepts, some below 0. Where `proportional`, an ACT block's load is to a KV block's as its bytes are.
  HybridTimes times(const BlockBytes &bytes, bool proportional) {
    HybridTimes t;
    t.blockTokens = in(1, 16);
    t.loadWeightsNs = static_cast<double>(in(0, 20000));
    t.loadKv = line(in(5, 60));
    t.loadAct = line(in(1, 70));
    if (proportional)
      t.loadAct.slopeNsPerToken =
          t.loadKv.slopeNsPerToken * static_cast<double>(bytes.act) / static_cast<double>(bytes.kv);
    t.kvGen = line(in(1, 90));
    t.forward = {static_cast<double>(in(0, 20000)), static_cast<double>(in(0, 4))};
    return t;
  }

private:
  Line line(int64_t slope) { return {static_cast<double>(in(-20, 60)), static_cast<double>(slope)}; }

  std::mt19937_64 bits;
};

} // namespace headrace::cost
