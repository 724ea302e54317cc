// SPDX-License-Identifier: Apache-2.0
//
// Launches of the analyzer's plan: graphs, the rows of a pair, and how often something is launched.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/core/Device.h"
#include "runtime/core/MetaWriter.h"
#include "runtime/cost/Record.h"
#include "runtime/profile/AnalyzerPlan.h"

namespace headrace::profile {

// Between two time stamps, ns; not below zero, however late the first was taken.
inline uint64_t lasted(int64_t fromNs, int64_t toNs) {
  return static_cast<uint64_t>(std::max<int64_t>(0, toNs - fromNs));
}

class AnalyzerLaunches {
public:
  // `seed`: of the prompts, which are random ids. All outlive it; nothing else launches on the device.
  AnalyzerLaunches(core::Device &device, const AnalyzerPlan &plan, uint64_t seed);

  absl::StatusOr<std::unique_ptr<core::Graph>> make(const core::GraphKey &key);

  // Appends an iteration of a pair and returns without waiting for it.
  absl::Status launchIteration(core::Graph &graph, const cost::CellKey &cell);
  uint64_t iterations() const { return iterations_; } // launched: the number of the last

  // Launches until `samples`, to which `take` adds from the times of each launch, have settled (Repeat.h) or `seconds`
  // of the device's time are used up. `clear` forgets the first run, which is cold, unless it takes a quarter of that.
  absl::Status repeat(const core::GraphKey &key, const cost::CellKey &cell, double seconds,
                      const std::vector<uint64_t> &samples,
                      absl::FunctionRef<void(absl::Span<const core::StepTime>)> take, absl::FunctionRef<void()> clear);

private:
  absl::Status fillMeta(const cost::CellKey &cell);
  absl::Status launchOnce(core::Graph &graph, const std::optional<cost::CellKey> &cell);

  core::Device &device_;
  const AnalyzerPlan &plan_;
  std::vector<int32_t> prompt_, blocks_;
  std::vector<core::SequenceRows> rows_;
  uint64_t iterations_ = 0;
};

} // namespace headrace::profile
