// SPDX-License-Identifier: Apache-2.0
//
// When each step of one iteration really ran. There is one format for it, the JSON of timelineJson(): what `run
// --trace` and `--timeline FILE.json` write, Perfetto opens and `timeline --measured` reads.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/core/Device.h"
#include "runtime/cost/CostModel.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::tools {

struct Trace {
  std::string modelHash;
  std::string device;     // Device::kind(), and what measured where that has several ways: "cuda, CUPTI"
  uint64_t iteration = 0; // of the run, from 1
  std::string about;      // which one it is: "iteration 5 of 8, the median of 7 of its variant"
  uint32_t variant = 0;
  std::vector<std::pair<int64_t, int64_t>> steps; // start, end in ns, one pair a step of the variant's schedule
  std::vector<core::InUse> inUse =
      std::vector<core::InUse>(1); // what the launch was told, by mini-batch: what its resizable copies are of
  std::vector<cost::Rows> rows;    // what ran of the bucket, by mini-batch; none: it is not known
};

// Times on the device's clock become times from the first start.
Trace makeTrace(const plan::Plan &plan, const std::string &device, uint32_t variant,
                absl::Span<const core::StepTime> times);
// Refuses, naming `where`, what is not such a file, and what does not belong to the plan: another model, a variant the
// plan lacks, a number of steps that is not the schedule's.
absl::StatusOr<Trace> parseTrace(std::string_view text, const std::string &where, const plan::Plan &plan);

inline constexpr const char *kTimelineFormat = "headrace-timeline"; // otherData.format
inline constexpr int kTimelineVersion = 1;
// In otherData.measured, of Trace::inUse; of several mini-batches a list with one for each.
inline constexpr const char *kInUseKey = "kv_blocks_in_use";
inline constexpr const char *kWrittenKey = "kv_blocks_written"; // what was written of them, [first, end)
inline constexpr const char *kStagesKey = "stages";             // in otherData: how many, of a timeline of stages
inline constexpr int kPlannedPid = 1, kMeasuredPid = 2;         // processes of the events

} // namespace headrace::tools
