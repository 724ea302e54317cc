// SPDX-License-Identifier: Apache-2.0
//
// Pictures of a model's stages (timeline/StagesChart.h): what `run` and `simulate` of them draw, and what `timeline`
// predicts.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/plan/StagesFile.h"
#include "tools/commands/Commands.h"
#include "tools/commands/Outputs.h"
#include "tools/timeline/StagesChart.h"

namespace headrace::tools {

// --timeline and --trace of `run` and `simulate`.
class StagesPictures {
public:
  explicit StagesPictures(const RunOptions &options) : options_(options) {}
  // What `make` makes; watched, where something is to be drawn.
  absl::StatusOr<std::unique_ptr<core::DeviceGroup>> group(const WatchedGroup::Make &make);
  // Of what has run on that group, once all has ended.
  absl::Status write(absl::Span<const plan::Plan> plans, size_t microBatches, Outputs &outputs);

private:
  const RunOptions &options_;
  WatchedGroup *watched_ = nullptr; // the group; null: nothing is drawn
};

// A turn of as many micro-batches as `run` would have, in virtual time, once slots hold what the turn before has left
// there: a token of each sequence at the whole context, or the bucket of variant `options.variant` of the first plan.
// Refuses --measured and --phase.
absl::StatusOr<Chart> predictedStages(const TimelineOptions &options, absl::Span<const plan::StagePlan> stages);

} // namespace headrace::tools
