// SPDX-License-Identifier: Apache-2.0
//
// What `headrace bench` found, for people, programs and eyes: a table, JSON, bars.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/plan/Plan.h"

namespace headrace::tools {

// Nearest-rank quantiles of measured times, ns.
struct Spread {
  int64_t p50Ns = 0, p99Ns = 0;
};
Spread spreadOf(std::vector<int64_t> samplesNs); // of at least one

// One policy under one load. Where `refused` is not empty the rest is nothing.
struct BenchRow {
  std::string policy;
  int64_t batch = 0;
  std::string refused; // why there is no run: the compiler's answer
  std::string prefillPlacement, decodePlacement;
  int32_t prefillLayers = 0, decodeLayers = 0; // layers with weights in host memory

  Spread ttft, tpot;                   // of prompts and of gaps between a prompt's tokens
  double tokensPerSecond = 0;          // new tokens over the whole run
  double ttftSloNs = 0, tpotSloNs = 0; // 0: none was asked for
  double ttftHeld = 1, tpotHeld = 1;   // share of prompts, and of gaps, within their objective
  double predictedTpotNs = 0;

  uint64_t deviceBytes = 0; // arena
  uint64_t hostBytes = 0;   // weights in host memory under the decode placement
  uint64_t freedBytes = 0;  // of these, what its slots do not take on the device again
  uint64_t movedBytes = 0;  // host to device in a decode iteration
  int64_t maxTokens = 0;    // tokens of KV cache that the device memory left over would hold (Select-N, section 5.6)
  double stallShare = 0;    // of the run: compute waiting for copies
  double computeBusy = 0, linkBusy = 0; // shares of a decode iteration
};

struct BenchReport {
  std::string model, hardware, device;
  int64_t inputLength = 0, outputLength = 0, rounds = 0;
  uint64_t deviceMemory = 0;
  std::vector<BenchRow> rows; // by batch, then in the order of the policies

  std::string text() const;
  std::string json() const;
  std::string svg() const;
};

// Bytes of weights at home on the host under a placement, and what they free: less the slots.
uint64_t offloadedBytes(const plan::Plan &plan, uint32_t placement);
uint64_t freedBytes(const plan::Plan &plan, uint32_t placement);
// Tokens of KV cache, in whole blocks, that `deviceMemory` holds beside all else that the plan has on the device.
int64_t maxTokens(const plan::Plan &plan, uint64_t deviceMemory);

} // namespace headrace::tools
