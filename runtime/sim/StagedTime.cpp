// SPDX-License-Identifier: Apache-2.0
#include "runtime/sim/StagedTime.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "runtime/cost/CostModel.h"
#include "runtime/plan/value/LimitedBy.h"

namespace headrace::sim {
namespace {

bool decodes(const plan::Plan &plan, const plan::Variant &variant) {
  const plan::Schedule &schedule = plan.schedules[variant.schedule];
  return variant.placement == 0 && schedule.kvBlocks == 0 && schedule.iterationClass == plan::IterationClass::Decode;
}

// The fastest iteration of so many sequences of each mini-batch.
const plan::Variant *variantOf(const plan::Plan &plan, const plan::Variant &largest, int64_t sequences) {
  const plan::Variant *best = &largest;
  for (const plan::Variant &variant : plan.variants)
    if (decodes(plan, variant) && variant.sequences >= sequences && variant.context == largest.context &&
        variant.predictedNs < best->predictedNs)
      best = &variant;
  return best;
}

// What copies and the cpu lane of an iteration take of host memory alone.
double memoryNs(const plan::Plan &plan, const plan::Variant &variant) {
  const cost::Sharing sharing = cost::sharingOf(plan.hardware);
  if (!std::isfinite(sharing.hostMemory))
    return 0;
  const plan::Schedule &schedule = plan.schedules[variant.schedule];
  double bytes = 0;
  for (size_t i = 0; i < schedule.steps.size(); ++i)
    if (const auto lane = static_cast<size_t>(schedule.steps[i].lane); lane > 0)
      bytes += sharing.asked[lane - 1] * static_cast<double>(variant.durationsNs[i]);
  return bytes / sharing.hostMemory;
}

} // namespace

const plan::Variant *largestDecode(const plan::Plan &plan) {
  const auto key = [](const plan::Variant &v) { return std::tuple(v.newTokens, v.sequences, v.context); };
  const plan::Variant *largest = nullptr;
  for (const plan::Variant &variant : plan.variants)
    if (decodes(plan, variant) && (largest == nullptr || key(variant) > key(*largest)))
      largest = &variant;
  return largest;
}

StagedDecode predictDecode(absl::Span<const plan::Plan *const> stages) {
  StagedDecode decode;
  uint64_t longest = 0, through = 0, onCpu = 0;
  double memory = 0;
  for (const plan::Plan *plan : stages) {
    const plan::Variant *const largest = largestDecode(*plan);
    if (largest == nullptr)
      return {};
    decode.microBatches = std::min(static_cast<int64_t>(stages.size()), largest->sequences);
    decode.sequences = largest->sequences * plan->miniBatches;
    const plan::Variant &part =
        *variantOf(*plan, *largest, (largest->sequences + decode.microBatches - 1) / decode.microBatches);
    longest = std::max(longest, part.predictedNs);
    through += part.predictedNs;
    onCpu += plan::cpuAloneNs(*plan, part);
    memory += memoryNs(*plan, part);
  }
  const auto ofAll = [&](auto ns) { return static_cast<uint64_t>(decode.microBatches) * static_cast<uint64_t>(ns); };
  // Of equal ones the first.
  for (const auto &[limit, ns] : {std::pair(StagesLimit::LongestStage, ofAll(longest)),
                                  {StagesLimit::OnePart, through},
                                  {StagesLimit::Cpu, ofAll(onCpu)},
                                  {StagesLimit::HostMemory, ofAll(memory)}})
    if (ns > decode.tokenNs) {
      decode.tokenNs = ns;
      decode.limit = limit;
    }
  return decode;
}

} // namespace headrace::sim
