// SPDX-License-Identifier: Apache-2.0
//
// What a run says about itself: tokens, times, bytes, and how the prediction compares.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "runtime/core/Runtime.h"
#include "runtime/serve/engine/BatchEngine.h"
#include "tools/report/RunFindings.h"
#include "tools/report/RunTimes.h"

namespace headrace::tools {

struct RunReport {
  std::string planPath, device;
  int threads = 1;     // that computed
  bool madeUp = false; // the device holds no data: its tokens say nothing
  serve::GenerateResult result;
  std::vector<int64_t> promptTokens;
  std::string lengthIs;           // what ended replies that did not end by themselves
  std::vector<std::string> texts; // of the replies; empty: ids went in, and come out
  RunTimes times;
  uint64_t transitions = 0, missingVariants = 0, leftOutVariants = 0;
  RunFindings findings;
};

// What came of each prompt, made up or not, and when.
nlohmann::ordered_json repliesJson(const serve::GenerateResult &result, bool madeUp,
                                   const std::vector<int64_t> &promptTokens);
std::string runText(const plan::Plan &plan, uint32_t placement, const RunReport &report);
std::string runJson(const plan::Plan &plan, uint32_t placement, const core::Manifest &manifest,
                    const RunReport &report);

} // namespace headrace::tools
