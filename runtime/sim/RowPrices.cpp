// SPDX-License-Identifier: Apache-2.0
#include "runtime/sim/RowPrices.h"

#include <algorithm>

#include "kernels/Kernels.h"
#include "runtime/core/DirectBytes.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/value/StepUnits.h"
#include "runtime/sim/TimedSchedule.h"

namespace headrace::sim {
namespace {

// Whether a step takes as long however few of its bucket's rows there are.
bool padsRows(const plan::Plan &plan, const plan::Step &step) {
  return plan.hardware.kind == model::DeviceKind::Cuda &&
         (step.op == kernels::Op::Linear || step.op == kernels::Op::RebuildKv);
}

} // namespace

cost::Rows rowsOf(const kernels::IterationMeta &meta, HomeSlots home, int64_t firstActSlot) {
  const int32_t *starts = meta.array<int32_t>(meta.queryStart), *contexts = meta.array<int32_t>(meta.contextLength);
  int64_t sum = 0, pairs = 0;
  for (int32_t s = 0; s < meta.numSequences; ++s) {
    const int64_t context = contexts[s], rows = std::min<int64_t>(starts[s + 1] - starts[s], context);
    sum += rows > 0 ? context : 0;
    pairs += rows > 0 ? rows * context - rows * (rows - 1) / 2 : 0;
  }
  cost::Rows running{.tokens = static_cast<uint64_t>(meta.numTokens),
                     .sampled = static_cast<uint64_t>(meta.numSampled),
                     .contexts = static_cast<uint64_t>(sum),
                     .pairs = static_cast<uint64_t>(pairs)};
  if (home.first < home.end) {
    const int32_t *slots = meta.array<int32_t>(meta.kvSlot);
    running.homeRows = static_cast<uint64_t>(std::count_if(slots, slots + meta.numTokens, [&](int32_t slot) {
      return static_cast<uint64_t>(slot) >= home.first && static_cast<uint64_t>(slot) < home.end;
    }));
  }
  if (firstActSlot != kNoSlot) {
    const int32_t *slots = meta.array<int32_t>(meta.kvSlot), *earlier = meta.array<int32_t>(meta.actTokens);
    running.keptRows = static_cast<uint64_t>(
        std::count_if(slots, slots + meta.numTokens, [&](int32_t slot) { return slot >= firstActSlot; }));
    for (int32_t i = 0; i < meta.numActBlocks; ++i)
      running.actRows += static_cast<uint64_t>(earlier[i]);
  }
  return running;
}

RowCounter::RowCounter(const plan::Plan &plan, const plan::Schedule &schedule)
    : layout_(plan.metaLayout), firstActSlot_(plan.actBlocks > 0 ? plan.kvBlocks * plan.blockTokens : kNoSlot),
      homeSlots_(plan.miniBatches) {
  for (const core::DirectBytes &direct : core::directBytes(plan, schedule))
    if (direct.writtenPerRow != 0 &&
        static_cast<int64_t>(direct.firstSlot) < firstActSlot_) // else of activation blocks
      homeSlots_[direct.metaOffset / kernels::metaFixedBytes(plan.metaLayout)] = {direct.firstSlot, direct.endSlot};
}

void RowCounter::count(const kernels::IterationMeta &first, std::vector<cost::Rows> &byMiniBatch) const {
  byMiniBatch.resize(homeSlots_.size());
  for (uint32_t i = 0; i < byMiniBatch.size(); ++i)
    byMiniBatch[i] = rowsOf(*kernels::metaOf(layout_, &first, i), homeSlots_[i], firstActSlot_);
}

model::Hardware overLink(model::Hardware hardware, double linkBandwidth) {
  if (linkBandwidth > 0) {
    hardware.h2dBandwidth = hardware.d2hBandwidth = linkBandwidth;
    hardware.linkEfficiency = 1;
  }
  return hardware;
}

RowPrices::RowPrices(const plan::Plan &plan, const model::WeightLayout &layout, const cost::Roofline &roofline,
                     const plan::Variant &variant, absl::Span<const uint64_t> durationsNs)
    : counter_(plan, plan.schedules[variant.schedule]), rows_(plan.miniBatches) {
  const plan::Schedule &schedule = plan.schedules[variant.schedule];
  const cost::Bucket bucket{variant.newTokens, variant.sequences, variant.context, plan::actRows(plan, variant)};
  size_t untilPublish = schedule.steps.size();
  for (size_t i = 0; i < schedule.steps.size(); ++i)
    if (schedule.steps[i].kind == plan::StepKind::Publish)
      untilPublish = i + 1;
  std::vector<KindKey> keys;
  for (size_t i = 0; i < schedule.steps.size(); ++i) {
    const plan::Step &step = schedule.steps[i];
    const uint64_t ns = durationsNs[i];
    if (step.kind != plan::StepKind::Compute || padsRows(plan, step)) {
      otherNs_ += ns;
      otherUntilPublishNs_ += i < untilPublish ? ns : 0;
      continue;
    }
    const KindKey key{step.op, plan::unitOf(plan, layout, schedule, step), howOf(step), step.miniBatch, ns};
    const auto known = std::find(keys.begin(), keys.end(), key);
    const auto kind = static_cast<uint32_t>(known - keys.begin());
    if (known == keys.end()) {
      keys.push_back(key);
      kinds_.push_back(
          {.price = {roofline, {key.op, key.unit}, key.how, bucket, ns}, .miniBatch = step.miniBatch, .ns = ns});
    }
    ++kinds_[kind].steps;
    kinds_[kind].untilPublish += i < untilPublish;
    steps_.emplace_back(static_cast<uint32_t>(i), kind);
  }
  addUp();
}

void RowPrices::addUp() {
  sumNs_ = otherNs_;
  publishNs_ = otherUntilPublishNs_;
  for (const Kind &kind : kinds_) {
    sumNs_ += kind.steps * kind.ns;
    publishNs_ += kind.untilPublish * kind.ns;
  }
}

bool RowPrices::price(const kernels::IterationMeta &first) {
  counter_.count(first, rows_);
  return price(rows_);
}

bool RowPrices::price(absl::Span<const cost::Rows> byMiniBatch) {
  bool changed = false;
  for (Kind &kind : kinds_) {
    const uint64_t ns = kind.price.ns(byMiniBatch[kind.miniBatch]);
    changed |= ns != kind.ns;
    kind.ns = ns;
  }
  if (changed)
    addUp();
  return changed;
}

void RowPrices::writeTo(absl::Span<uint64_t> durationsNs) const {
  for (const auto &[step, kind] : steps_)
    durationsNs[step] = kinds_[kind].ns;
}

} // namespace headrace::sim
