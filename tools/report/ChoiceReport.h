// SPDX-License-Identifier: Apache-2.0
//
// What was chosen for each bucket of a plan, with the numbers that decided, from the plan's own values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "runtime/cost/SelectN.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::tools {

struct ChoiceReport {
  uint32_t variant = 0;
  bool decode = true; // the class: one row a sequence, TPOT; else TTFT
  int64_t newTokens = 0, sequences = 0, context = 0;
  uint32_t placement = 0;
  int64_t freedBytes = 0;                              // bytes of offloaded weights less bytes of slots
  uint64_t movedBytes = 0;                             // host to device, of one iteration
  uint64_t predictedNs = 0, sloNs = 0, residentNs = 0; // sloNs 0: no objective
  uint64_t gapNs = 0; // the longest predicted before its tokens (sim::TokenGaps); 0: nothing is promised of it
  double ratio = 0;   // predicted / SLO; 0 without one
  uint64_t layerComputeNs = 0, layerTransferNs = 0;
  cost::PaperFormula formula; // what Select-N, section 4.4 prints, for this objective
};
// In the order of Plan::choices; empty for a plan that was chosen by memory alone.
std::vector<ChoiceReport> reportChoices(const plan::Plan &plan);

// "select-n, TPOT 50ms", "headrace, 1.5 x the iteration without offloading".
std::string describeGoal(const plan::Plan &plan);
// A table, a line a bucket, folded unless `all`; empty without choices. The printed formula's columns are there for
// select-n.
std::string choicesText(const plan::Plan &plan, bool all);
nlohmann::ordered_json choicesJson(const plan::Plan &plan);
nlohmann::ordered_json objectiveJson(const plan::Plan &plan); // keys of the goal that are set

} // namespace headrace::tools
