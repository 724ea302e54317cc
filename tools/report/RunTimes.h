// SPDX-License-Identifier: Apache-2.0
//
// What the iterations of a run took beside what is predicted of what they ran and brought, and whether every gap
// between a sequence's tokens was within its objective.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "runtime/plan/value/Plan.h"
#include "runtime/serve/engine/BatchEngine.h"
#include "runtime/sim/LaunchPrices.h"
#include "runtime/sim/Simulator.h"
#include "runtime/sim/TokenGaps.h"
#include "tools/report/RanLaunch.h"

namespace headrace::tools {

// Iterations of one kind: what the plan predicted and what they took, on average.
struct Compared {
  uint64_t iterations = 0;
  double predictedMs = 0, measuredMs = 0; // of one
  double ratio() const { return predictedMs > 0 ? measuredMs / predictedMs : 0; }
};

class RunTimes {
public:
  // The plan outlives it. `linkBandwidth` as DeviceOptions has it; `placement`: what the run begins in.
  RunTimes(const plan::Plan &plan, double linkBandwidth, uint32_t placement);
  // Iterations in their order, once the run has ended: predicting one takes about as long as it has steps. One that
  // does not count is only what the next one begins with.
  void add(const serve::IterationSeen &seen, const RanLaunch &ran = {}, bool counts = true);

  Compared prefill() const { return meanOf(prefill_); } // with rows of prompts
  // Of decode, those that begin with what the one before them left; and those behind a change: of placement, or from
  // prompts to decode. Times are from the tokens before to these.
  Compared decode() const { return meanOf(decode_); }
  Compared changes() const { return meanOf(changes_); }
  double transitionsMs() const { return transitionsNs_ * 1e-6; } // predicted, in changes

  // "gaps  longest ..." lines, and the same as JSON; nothing for a run without a second token.
  std::string gapsText() const;
  nlohmann::ordered_json gapsJson() const;

private:
  struct Sum {
    uint64_t iterations = 0;
    double predictedNs = 0, measuredNs = 0;
    void add(uint64_t predicted, int64_t measured);
  };
  sim::TokenGaps::Times play(uint32_t schedule, const sim::LaunchedSteps &launched);
  sim::TokenGaps::Times timesOf(uint32_t variant, const RanLaunch &ran);
  // Of the transitions before the next iteration, which runs `variant`; 0 where nothing leads there.
  uint64_t wayNs(uint32_t variant, const RanLaunch &ran);
  static Compared meanOf(const Sum &sum);
  void count(const serve::IterationSeen &seen, uint64_t predictedNs, uint64_t wayNs);
  uint64_t objectiveNs(uint32_t variant) const; // of decode in this bucket; 0: none
  double noise() const; // of what a steady iteration takes, over its prediction: the 99th percentile over the median

  const plan::Plan &plan_;
  sim::TokenGaps predicted_;
  std::unique_ptr<sim::LaunchPrices> prices_;
  const cost::Sharing sharing_;
  std::map<uint32_t, sim::Simulator> simulators_; // by schedule, once one was played
  uint32_t placement_, last_ = plan::kNone;       // variant
  uint64_t lastTailNs_ = 0;                       // of `last_`, behind its tokens
  Sum prefill_, decode_, changes_;
  double transitionsNs_ = 0;
  std::vector<double> steady_; // measured over predicted
  // Of gaps behind the last prompt: how many, how many beyond their objective, the longest by its share of that.
  uint64_t gaps_ = 0, late_ = 0, longestObjectiveNs_ = 0;
  int64_t longestNs_ = 0, longestInPromptsNs_ = 0;
  bool longestIsChange_ = false;
};

} // namespace headrace::tools
