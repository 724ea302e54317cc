// SPDX-License-Identifier: Apache-2.0
//
// What a run says about itself: tokens, times, bytes, and how the prediction compares.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/core/Runtime.h"
#include "runtime/serve/BatchEngine.h"

namespace headrace::tools {

// Iterations of one kind: what the plan predicted and what they took, on average.
struct Compared {
  uint64_t iterations = 0;
  double predictedMs = 0, measuredMs = 0;
  void add(uint64_t predictedNs, int64_t measuredNs); // sums, until finish()
  void finish();
  double ratio() const { return predictedMs > 0 ? measuredMs / predictedMs : 0; }
};

struct RunReport {
  std::string planPath, device;
  serve::GenerateResult result;
  Compared decode, prefill; // iterations of decode schedules, and all others
  uint64_t transitions = 0, missingVariants = 0, leftOutVariants = 0;
};

std::string runText(const plan::Plan &plan, uint32_t placement, const RunReport &report);
std::string runJson(const plan::Plan &plan, uint32_t placement, const core::Manifest &manifest,
                    const RunReport &report);

} // namespace headrace::tools
