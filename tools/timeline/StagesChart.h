// SPDX-License-Identifier: Apache-2.0
//
// Some iterations of a model's stages as they passed through all of them: a track a stage, on one axis of time.
//
//   stage 0  launches  [ 0          ][ 1          ][ 0
//            compute   [L0][L1]..    [L0][L1]..             rows go on: from where stage 0 sends them
//   stage 1  launches    '-> [ 0          ][ 1      ]       to where stage 1 receives them
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/plan/value/Plan.h"
#include "tools/timeline/Timeline.h"
#include "tools/timeline/WatchedGroup.h"

namespace headrace::tools {

struct StagesWindow {          // from the first one's launch in stage 0 to the last one's tokens
  size_t first = 0, count = 0; // iterations, from 0
  std::string about;
  bool byTurn = false; // launches are called by their micro-batch, which are those that take turns; else by iteration,
                       // from 1
};

// As many iterations in a row as micro-batches that take turns, without prompts if there are such: of all that were
// watched those whose time is the median. FailedPrecondition where fewer have ended.
absl::StatusOr<StagesWindow> medianWindow(absl::Span<const plan::Plan *const> plans, const WatchedGroup &group,
                                          size_t microBatches);

// What all stages did in that time, launches of other iterations, too, as far as they are within it. Iterations that
// are as many apart as there are micro-batches have one colour. Once all launches have ended.
absl::StatusOr<Chart> stagesChart(absl::Span<const plan::Plan *const> plans, WatchedGroup &group,
                                  const StagesWindow &window, size_t microBatches, double linkBandwidth = 0);

} // namespace headrace::tools
