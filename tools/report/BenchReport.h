// SPDX-License-Identifier: Apache-2.0
//
// What `headrace bench` found, for people, programs and eyes: two tables, JSON, bars.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/plan/value/Plan.h"

namespace headrace::tools {

// Nearest-rank quantiles of measured times, ns.
struct Spread {
  int64_t p50Ns = 0, p99Ns = 0;
};
Spread spreadOf(std::vector<int64_t> samplesNs); // of at least one

// One policy's prefill (times are TTFT: from a prompt's arrival to its first token) or decode (TPOT: gaps between a
// prompt's tokens). Where `refused` is not empty the rest is nothing.
struct BenchPhase {
  int64_t batch = 0;              // prompts at once: the one asked for, or the largest that would do
  std::string refused;            // why there is no run: the compiler's answer
  std::string compiled, planHash; // the plan, and by which flags of `headrace compile` it is made
  std::string placement;
  int32_t layers = 0; // with weights in host memory

  Spread time;
  size_t samples = 0;
  double sloNs = 0;           // 0: none was asked for
  double held = 1;            // share of samples within it
  double residentNs = 0;      // with nothing offloaded, on a device large enough; 0: not asked for
  double predictedNs = 0;     // of what ran: of decode an iteration, of prefill all that a prompt takes
  double overPredicted = 1;   // an iteration's mean over what was predicted of it
  std::string why;            // both are over 1.3 x apart (RunFindings.h): why; else empty
  double tokensPerSecond = 0; // prompt tokens in prefill, new tokens in decode

  uint64_t deviceBytes = 0; // arena
  uint64_t hostBytes = 0;   // weights and KV blocks at home in host memory
  int64_t freedBytes = 0;   // of these, what its slots do not take on the device again
  uint64_t movedBytes = 0;  // host to device in an iteration
  int64_t maxTokens = 0;    // tokens of KV cache that the device memory left over would hold (Select-N, section 5.6)
  double stallShare = 0;    // of an iteration: no compute running
  double linkBusy = 0;      // of an iteration: a copy to the device running

  bool ran() const { return refused.empty() && samples > 0; }
  double overSlo() const { return sloNs > 0 ? static_cast<double>(time.p50Ns) / sloNs : 0; }
};

struct BenchRow {
  std::string policy;
  int64_t batch = 0; // asked for; 0: the largest that would do
  std::optional<BenchPhase> prefill, decode;
};

struct BenchReport {
  std::string model, hardware, device, objective;
  std::string instances; // "apart", "together"
  int64_t inputLength = 0, outputLength = 0, rounds = 0;
  uint64_t deviceMemory = 0;
  std::vector<BenchRow> rows; // by batch, then in the order of the policies

  std::string text(bool all) const; // long tables are folded unless `all`
  std::string json() const;
  std::string svg() const;
};

// Bytes of weights and of KV blocks at home on the host under a placement.
uint64_t offloadedBytes(const plan::Plan &plan, uint32_t placement);
// Tokens of KV cache, in whole blocks, that `deviceMemory` holds beside all else that the plan has on the device.
int64_t maxTokens(const plan::Plan &plan, uint64_t deviceMemory);

} // namespace headrace::tools
