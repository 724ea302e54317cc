// SPDX-License-Identifier: Apache-2.0
//
// One plan on a device of its own, driven round by round: what `headrace bench` measures.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/core/Runtime.h"
#include "runtime/model/WeightSource.h"
#include "tools/commands/BenchJob.h"
#include "tools/commands/Commands.h"
#include "tools/commands/Devices.h"
#include "tools/commands/PromptIds.h"
#include "tools/report/BenchReport.h"
#include "tools/report/RanLaunch.h"
#include "tools/report/RunTimes.h"

namespace headrace::tools {

class BenchInstance {
public:
  // Loads the plan in the placement of the phase that the instance begins with. `weights` are null for a device that
  // holds no data.
  static absl::StatusOr<std::unique_ptr<BenchInstance>> load(plan::Plan plan, BenchRole role, const BenchLoad &load,
                                                             const BenchObjective &objective, const DeviceFlags &flags,
                                                             const model::WeightSource *weights);

  // The load once: prompts in iterations of their own, then decode, each in the placement chosen for it. A prefill
  // instance stops there; a decode instance counts from its second decode iteration, which finds the slots as decode
  // leaves them.
  absl::Status round(const Prompts &prompts, bool counts);
  // After the last round, which kept what each step of the last iteration took.
  absl::StatusOr<BenchPhase> prefill(const Prompts &prompts, uint64_t deviceMemory);
  absl::StatusOr<BenchPhase> decode(uint64_t deviceMemory) const;

  std::string device() const { return describeDevice("", *device_); }

private:
  BenchInstance(plan::Plan plan, BenchRole role, const BenchLoad &load, const BenchObjective &objective)
      : role_(role), load_(load), objective_(objective), plan_(std::move(plan)) {}

  struct Samples {
    std::vector<int64_t> ns;
    int64_t totalNs = 0;            // of iterations
    uint64_t tokens = 0;            // prompt tokens, or new ones
    int64_t iterations = 1;         // a prompt's prefill takes, at most
    uint32_t variant = plan::kNone; // of the last iteration
    RanLaunch ran;                  // in it
  };
  absl::Status generate(const Prompts &prompts, int64_t newTokens, bool counts);
  absl::StatusOr<BenchPhase> phaseOf(const Samples &samples, uint32_t placement, bool decode,
                                     uint64_t deviceMemory) const;
  void compare(const Samples &samples, bool decode, BenchPhase &phase) const;

  BenchRole role_;
  BenchLoad load_;
  BenchObjective objective_;
  plan::Plan plan_;
  std::unique_ptr<core::Device> device_;
  std::unique_ptr<core::Runtime> runtime_;
  uint32_t prefillPlacement_ = 0, decodePlacement_ = 0;
  Samples prefill_, decode_;
  std::optional<RunTimes> times_; // of all rounds that count
};

} // namespace headrace::tools
