// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/StagesTimeline.h"

#include <algorithm>
#include <utility>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/core/Stages.h"
#include "runtime/serve/engine/EngineBounds.h"
#include "runtime/sim/SimGroup.h"
#include "tools/commands/InputErrors.h"
#include "tools/commands/RunPrompts.h"

namespace headrace::tools {
namespace {

using model::cat;

std::vector<const plan::Plan *> pointers(absl::Span<const plan::Plan> plans) {
  std::vector<const plan::Plan *> out;
  for (const plan::Plan &plan : plans)
    out.push_back(&plan);
  return out;
}

// What each iteration of a micro-batch has, in each of its mini-batches.
struct Size {
  int64_t tokens = 1, sequences = 1, context = 1;
};

// Micro-batches that take turns in virtual time.
class Turns {
public:
  Turns(std::vector<const plan::Plan *> plans, std::vector<Size> sizes)
      : plans_(std::move(plans)), sizes_(std::move(sizes)), batches_(sizes_.size()) {}

  absl::StatusOr<Chart> play() {
    ASSIGN_OR_RETURN(group, WatchedGroup::of([&] { return sim::makeSimGroup(plans_.size(), {}); }));
    std::vector<std::unique_ptr<core::Runtime>> runtimes;
    std::vector<core::Runtime *> loaded;
    for (size_t i = 0; i < plans_.size(); ++i) {
      ASSIGN_OR_RETURN(runtime, core::Runtime::load(*plans_[i], group->device(i), {}, nullptr, {}));
      loaded.push_back(runtime.get());
      runtimes.push_back(std::move(runtime));
    }
    ASSIGN_OR_RETURN(stages, core::Stages::make(loaded, *group, sizes_.size()));
    for (size_t i = 0; i < sizes_.size(); ++i)
      RETURN_IF_ERROR(prepare(*stages, i));
    constexpr size_t kTurns = 3; // before it, the one that is drawn, after it
    for (size_t n = 0; n < kTurns * sizes_.size(); ++n) {
      if (n >= sizes_.size())
        RETURN_IF_ERROR(stages->await().status());
      RETURN_IF_ERROR(stages->begin(batches_[n % sizes_.size()].spans).status());
    }
    while (stages->underWay() > 0)
      RETURN_IF_ERROR(stages->await().status());
    const size_t count = sizes_.size();
    return stagesChart(plans_, *group,
                       {.first = count,
                        .count = count,
                        .about = count == 1 ? std::string("predicted: a micro-batch")
                                            : cat("predicted: ", count, " micro-batches that take turns"),
                        .byTurn = true},
                       count);
  }

private:
  struct MicroBatch {
    std::vector<std::vector<core::SequenceRows>> rows; // by mini-batch
    std::vector<std::vector<std::vector<int32_t>>> blocks;
    std::vector<absl::Span<const core::SequenceRows>> spans;
  };

  // The same rows in each turn: virtual time asks how many there are, not which.
  absl::Status prepare(core::Stages &stages, size_t which) {
    const Size &size = sizes_[which];
    MicroBatch &batch = batches_[which];
    const uint32_t miniBatches = plans_.front()->miniBatches;
    batch.rows.resize(miniBatches);
    batch.blocks.resize(miniBatches);
    ids_.resize(std::max(ids_.size(), static_cast<size_t>(size.tokens)));
    const int64_t sequences = std::min(size.sequences, size.tokens);
    for (uint32_t m = 0; m < miniBatches; ++m) {
      batch.blocks[m].resize(static_cast<size_t>(sequences));
      for (int64_t s = 0; s < sequences; ++s) {
        const int64_t rows = size.tokens / sequences + (s < size.tokens % sequences ? 1 : 0);
        std::vector<int32_t> &blocks = batch.blocks[m][static_cast<size_t>(s)];
        if (!stages.kvBlocks(m).grow(blocks, size.context).ok())
          return absl::ResourceExhaustedError(cat(sizes_.size(), " micro-batches of ", sequences,
                                                  " sequences at context ", size.context,
                                                  ": expected no more than the plans' caches hold, with --variant N"));
        batch.rows[m].push_back({.tokens = absl::MakeConstSpan(ids_).first(static_cast<size_t>(rows)),
                                 .firstPosition = size.context - rows,
                                 .blocks = blocks,
                                 .sample = true,
                                 .requestSlot = static_cast<int32_t>(s)});
      }
      batch.spans.emplace_back(batch.rows[m]);
    }
    return absl::OkStatus();
  }

  const std::vector<const plan::Plan *> plans_;
  const std::vector<Size> sizes_; // by micro-batch
  std::vector<MicroBatch> batches_;
  std::vector<int32_t> ids_;
};

// What the caches hold: shorter contexts, and of a variant fewer micro-batches.
void fit(const plan::Plan &plan, std::vector<Size> &sizes, bool ofVariant) {
  const auto blocks = [&] {
    int64_t all = 0;
    for (const Size &size : sizes)
      all += std::min(size.sequences, size.tokens) * ((size.context + plan.blockTokens - 1) / plan.blockTokens);
    return all;
  };
  const int64_t most = plan.mostContextBlocks();
  while (ofVariant && sizes.size() > 1 && blocks() > most)
    sizes.pop_back();
  for (int64_t context = plan.maxContext; !ofVariant && context > plan.blockTokens && blocks() > most;) {
    context -= plan.blockTokens;
    for (Size &size : sizes)
      size.context = std::min(size.context, context);
  }
}

} // namespace

absl::StatusOr<std::unique_ptr<core::DeviceGroup>> StagesPictures::group(const WatchedGroup::Make &make) {
  if (options_.trace.empty() && options_.timeline.empty())
    return make();
  ASSIGN_OR_RETURN(watched, WatchedGroup::of(make));
  watched_ = watched.get();
  return std::unique_ptr<core::DeviceGroup>(std::move(watched));
}

absl::Status StagesPictures::write(absl::Span<const plan::Plan> plans, size_t microBatches, Outputs &outputs) {
  if (watched_ == nullptr)
    return absl::OkStatus();
  const std::vector<const plan::Plan *> all = pointers(plans);
  ASSIGN_OR_RETURN(window, medianWindow(all, *watched_, microBatches));
  ASSIGN_OR_RETURN(chart, stagesChart(all, *watched_, window, microBatches, options_.linkBandwidth));
  if (!options_.trace.empty())
    RETURN_IF_ERROR(outputs.write(options_.trace, timelineJson(chart)));
  if (options_.timeline.empty())
    return absl::OkStatus();
  return outputs.write(options_.timeline, timelineFile(chart, *timelineFormatOf(options_.timeline)));
}

absl::StatusOr<Chart> predictedStages(const TimelineOptions &options, absl::Span<const plan::StagePlan> stages) {
  for (const auto &[flag, given] :
       {std::pair("--measured", !options.measured.empty()), {"--phase", options.phase.has_value()}})
    if (given)
      return badUsage(cat(flag, " beside stages: expected one plan, of a whole model"));
  std::vector<const plan::Plan *> plans;
  for (const plan::StagePlan &stage : stages)
    plans.push_back(&stage.plan);
  const plan::Plan &first = *plans.front();
  if (options.variant.value_or(0) >= first.variants.size())
    return badNumber("--variant", *options.variant,
                     cat("one of the ", first.variants.size(), " variants of ", stages.front().path, ", from 0"));
  const size_t turns = serve::microBatchesOf(first, plans.size());
  const int64_t seats = serve::ofOneMiniBatch(first, serve::engineBounds(first).maxNumSeqs);
  std::vector<Size> sizes;
  for (size_t i = 0; i < turns; ++i)
    if (options.variant) {
      const plan::Variant &variant = first.variants[*options.variant];
      sizes.push_back({variant.newTokens, variant.sequences, variant.context});
    } else {
      const int64_t part = serve::seatsOfMicroBatch(seats, turns, i);
      sizes.push_back({part, part, first.maxContext});
    }
  fit(first, sizes, options.variant.has_value());
  return Turns(std::move(plans), std::move(sizes)).play();
}

} // namespace headrace::tools
