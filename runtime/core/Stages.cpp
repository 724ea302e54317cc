// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/Stages.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/StagesFile.h"
#include "runtime/plan/value/PlacementTable.h"

namespace headrace::core {
namespace {

int64_t rowsOf(const SequenceRows &sequence) { return static_cast<int64_t>(sequence.tokens.size()) + sequence.padding; }

} // namespace

Stages::Stages(absl::Span<Runtime *const> stages, DeviceGroup &group, size_t microBatches)
    : group_(group), batches_(microBatches), wanted_(group.size(), 0) {
  int64_t sampled = 0;
  for (Runtime *const runtime : stages) {
    const plan::Plan &plan = runtime->plan();
    Stage &stage = stages_.emplace_back();
    stage.runtime = runtime;
    stage.home.resize(plan.miniBatches);
    for (const plan::Extent &extent : plan.placements[runtime->placement()].extents)
      if (const plan::Buffer &buffer = plan.buffers[extent.buffer]; buffer.kind == plan::BufferKind::Residual)
        stage.home[buffer.index] = extent.address;
    sampled = plan.metaLayout.maxSequences * plan.miniBatches;
  }
  for (MicroBatch &batch : batches_) {
    batch.sampled.reserve(static_cast<size_t>(sampled));
    batch.placements.resize(stages.size());
  }
}

DeviceCounters Stages::counters() const {
  DeviceCounters sum;
  for (const Stage &stage : stages_)
    sum += stage.runtime->device().counters();
  return sum;
}

absl::Status Stages::drain() {
  for (const Stage &stage : stages_)
    RETURN_IF_ERROR(stage.runtime->device().drain());
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Stages>> Stages::make(absl::Span<Runtime *const> stages, DeviceGroup &group,
                                                     size_t microBatches) {
  if (stages.empty() || stages.size() > group.size())
    return absl::InvalidArgumentError(absl::StrCat(stages.size(), " stages on ", group.size(),
                                                   " devices: expected one device for each, and a stage"));
  if (microBatches == 0)
    return absl::InvalidArgumentError("0 micro-batches at once: expected at least 1");
  std::vector<const plan::Plan *> plans;
  for (const Runtime *const stage : stages)
    plans.push_back(&stage->plan());
  RETURN_IF_ERROR(plan::checkStages(plans));
  for (size_t i = 1; i < stages.size(); ++i)
    if (const absl::Status shared = stages[i]->shareKvBlocks(*stages.front()); !shared.ok())
      return absl::InvalidArgumentError(absl::StrCat("stage ", i, ": ", shared.message()));
  return std::unique_ptr<Stages>(new Stages(stages, group, microBatches));
}

absl::StatusOr<uint32_t> Stages::begin(absl::Span<const absl::Span<const SequenceRows>> miniBatches) {
  if (underWay() == batches_.size())
    return absl::FailedPreconditionError(
        absl::StrCat(batches_.size(), " micro-batches are under way, as many as may be"));
  MicroBatch &next = batch(begun_);
  next.miniBatches = miniBatches;
  next.tokens = next.sequences = next.context = 0;
  for (const absl::Span<const SequenceRows> sequences : miniBatches) {
    int64_t tokens = 0;
    for (const SequenceRows &sequence : sequences) {
      tokens += rowsOf(sequence);
      next.context = std::max(next.context, sequence.firstPosition + rowsOf(sequence));
    }
    next.tokens = std::max(next.tokens, tokens);
    next.sequences = std::max(next.sequences, static_cast<int64_t>(sequences.size()));
  }
  uint32_t first = 0;
  for (size_t i = 0; i < stages_.size(); ++i) { // before any of them has begun
    next.placements[i] = placementOf(stages_[i], next);
    ASSIGN_OR_RETURN(variant, variantOf(i, next));
    first = i == 0 ? variant : first;
  }
  ++begun_;
  RETURN_IF_ERROR(launchAll());
  return first;
}

uint32_t Stages::placementOf(const Stage &stage, const MicroBatch &batch) {
  const plan::Plan &plan = stage.runtime->plan();
  if (stage.placement || plan.choices.empty())
    return stage.placement.value_or(stage.runtime->placement());
  return plan::chosenPlacement(plan, {.tokens = batch.tokens, .sequences = batch.sequences, .context = batch.context})
      .value_or(0);
}

absl::StatusOr<uint32_t> Stages::variantOf(size_t stage, const MicroBatch &batch) {
  return stages_[stage].runtime->chooseIn(batch.placements[stage], batch.tokens, batch.sequences, batch.context);
}

absl::Status Stages::setPlacement(size_t stage, std::optional<uint32_t> placement) {
  const size_t count = stages_[stage].runtime->plan().placements.size();
  if (placement && *placement >= count)
    return absl::InvalidArgumentError(
        absl::StrCat("stage ", stage, ": placement ", *placement, " asked for, its plan has ", count));
  stages_[stage].placement = placement;
  return absl::OkStatus();
}

// From the last to the first, as each makes room for the one before it.
absl::Status Stages::launchAll() {
  for (bool any = true; any;) {
    any = false;
    for (size_t stage = stages_.size(); stage-- > 0;) {
      ASSIGN_OR_RETURN(launched, launchNext(stage));
      any |= launched;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Stages::launchNext(size_t number) {
  Stage &stage = stages_[number];
  const uint64_t ready = number == 0 ? begun_ : stages_[number - 1].published;
  const bool idle = stage.published == stage.taken;
  const bool rowsGone = number + 1 == stages_.size() || stages_[number + 1].taken == stage.published;
  if (!idle || !rowsGone || stage.taken == ready)
    return false;
  MicroBatch &next = batch(stage.taken);
  ASSIGN_OR_RETURN(variant, variantOf(number, next));
  next.lastVariant = variant;
  const plan::Plan &plan = stage.runtime->plan();
  RETURN_IF_ERROR(writeMetas(plan.metaLayout, plan.blockTokens, next.miniBatches, stage.runtime->device().meta()));
  if (number > 0)
    passOn(number, next);
  RETURN_IF_ERROR(stage.runtime->launch(variant));
  ++stage.taken;
  return true;
}

// Rows that the stage before has sent to where this one receives.
void Stages::passOn(size_t number, const MicroBatch &batch) {
  Stage &from = stages_[number - 1], &to = stages_[number];
  if (!from.runtime->device().holdsData())
    return;
  const auto row = static_cast<uint64_t>(to.runtime->plan().model->hidden) * sizeof(float);
  for (size_t i = 0; i < batch.miniBatches.size(); ++i) {
    uint64_t rows = 0;
    for (const SequenceRows &sequence : batch.miniBatches[i])
      rows += static_cast<uint64_t>(rowsOf(sequence));
    if (rows > 0)
      std::memcpy(to.runtime->device().hostSlab().subspan(to.home[i], rows * row).data(),
                  from.runtime->device().hostSlab().subspan(from.home[i], rows * row).data(), rows * row);
  }
}

// False: the time came first.
absl::StatusOr<bool> Stages::awaitAny(int64_t untilNs) {
  for (size_t i = 0; i < stages_.size(); ++i)
    wanted_[i] = stages_[i].published < stages_[i].taken ? stages_[i].runtime->launched() : 0;
  ASSIGN_OR_RETURN(ready, group_.waitAny(wanted_, untilNs));
  if (ready == wanted_.size())
    return false;
  Stage &stage = stages_[ready];
  ASSIGN_OR_RETURN(tokens, stage.runtime->awaitTokens());
  if (ready + 1 == stages_.size()) {
    MicroBatch &done = batch(stage.published);
    done.sampled.assign(tokens.begin(), tokens.end());
    done.visibleNs = stage.runtime->device().tokensVisibleNs(stage.runtime->launched());
  }
  ++stage.published;
  RETURN_IF_ERROR(launchAll());
  return true;
}

absl::StatusOr<bool> Stages::waitUntil(int64_t untilNs) {
  if (underWay() == 0)
    return absl::FailedPreconditionError("no micro-batch is under way");
  while (stages_.back().published == awaited_) {
    ASSIGN_OR_RETURN(any, awaitAny(untilNs));
    if (!any)
      return false;
  }
  return true;
}

absl::StatusOr<Stages::Awaited> Stages::await() {
  RETURN_IF_ERROR(waitUntil(kForeverNs).status());
  const MicroBatch &oldest = batch(awaited_++);
  return Awaited{oldest.sampled, oldest.visibleNs, oldest.lastVariant};
}

} // namespace headrace::core
