// SPDX-License-Identifier: Apache-2.0
//
// What an engine's iterations run on: one runtime, or a model's stages over several devices (core/Stages.h). A value,
// made from either.
//
//   a runtime    one micro-batch, of which two iterations may be in flight: ids stay on the device
//   stages       as many as they were made for, which take turns; one iteration of each in flight, as ids come back to
//                the first stage by the host
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/Kernels.h"
#include "runtime/core/MetaWriter.h"
#include "runtime/core/Runtime.h"
#include "runtime/core/Stages.h"
#include "runtime/plan/value/PlacementTable.h"

namespace headrace::serve {

class Executor {
public:
  Executor(core::Runtime &runtime) : first_(&runtime) {} // NOLINT(google-explicit-constructor): either will do
  Executor(core::Stages &stages)                         // NOLINT(google-explicit-constructor)
      : first_(&stages.stage(0)), stages_(&stages) {}

  bool isStaged() const { return stages_ != nullptr; }
  size_t microBatches() const { return isStaged() ? stages_->microBatches() : 1; }
  // Of one runtime it; of stages the first, whose KV blocks are all stages' and whose plan has the same bounds as all.
  core::Runtime &first() const { return *first_; }
  size_t stages() const { return isStaged() ? stages_->size() : 1; }
  core::Runtime &stage(size_t number) const { return isStaged() ? stages_->stage(number) : *first_; }
  core::Runtime &last() const { return stage(stages() - 1); } // the one that samples
  const plan::Plan &plan() const { return first_->plan(); }

  core::DeviceCounters counters() const { return isStaged() ? stages_->counters() : first_->device().counters(); }
  int64_t nowNs() const { return first_->device().nowNs(); }
  absl::Status drain() const { return isStaged() ? stages_->drain() : first_->device().drain(); }

  // Launches an iteration of one micro-batch, whose largest mini-batch has this size: of a runtime in `placement`, of
  // stages in the one that each has for the size. `rows`, one a mini-batch, and what they refer to stay, of stages
  // until its tokens were awaited. Allocates nothing.
  struct Launched {
    uint64_t number = 0;                          // from 1
    uint32_t variant = 0;                         // of the first stage
    int64_t ns = 0;                               // when, on the device's clock
    const kernels::IterationMeta *meta = nullptr; // what it was written; null over stages
  };
  absl::StatusOr<Launched> launch(uint32_t placement, const plan::IterationSize &size,
                                  absl::Span<const absl::Span<const core::SequenceRows>> rows) const;
  // Of stages whether the tokens of the oldest iteration came by then, on the group's clock; of a runtime true, and
  // await() waits.
  absl::StatusOr<bool> waitUntil(int64_t ns) const {
    return isStaged() ? stages_->waitUntil(ns) : absl::StatusOr<bool>(true);
  }
  // The tokens of the oldest iteration that was not awaited, and the variant that sampled them.
  absl::StatusOr<core::Stages::Awaited> await(const Launched &oldest) const;

private:
  core::Runtime *first_;
  core::Stages *stages_ = nullptr;
};

} // namespace headrace::serve
