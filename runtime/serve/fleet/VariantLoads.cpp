// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/fleet/VariantLoads.h"

#include <algorithm>
#include <cmath>

#include "runtime/core/GraphSteps.h"
#include "runtime/plan/BlockRuns.h"

namespace headrace::serve {
namespace {

// What a step takes and copies with so much in use; sizes that cannot be told are those of the plan.
struct StepLoad {
  uint64_t ns = 0, linkBytes = 0;
};
StepLoad stepLoad(const plan::Plan &plan, const plan::Variant &variant, uint32_t index,
                  std::optional<int64_t> kvBlocks) {
  const plan::Schedule &schedule = plan.schedules[variant.schedule];
  const plan::Step &step = schedule.steps[index];
  const StepLoad whole{variant.durationsNs[index], step.linkBytes};
  if (!kvBlocks || !step.resizable)
    return whole;
  const absl::StatusOr<core::SizedCopy> copy = core::sizedCopy(plan, schedule, index);
  if (!copy.ok())
    return whole;
  const uint64_t bytes = core::bytesInUse(*copy, {*kvBlocks});
  const auto latencyNs = static_cast<uint64_t>(std::llround(std::max(plan.hardware.copyLatency, 0.0) * 1e9));
  const uint64_t startNs = latencyNs < whole.ns ? latencyNs : 0;
  const double share = static_cast<double>(bytes) / static_cast<double>(copy->bytes);
  return {startNs + static_cast<uint64_t>(std::ceil(share * static_cast<double>(whole.ns - startNs))), bytes};
}

} // namespace

VariantLoads::VariantLoads(const plan::Plan &plan)
    : plan_(plan), all_(loadsOf(std::nullopt)), of_(plan.placements.size()) {
  for (uint32_t p = 0; p < plan.placements.size(); ++p)
    split_ = split_ || plan::residentBlocks(plan, plan.placements[p]) < plan.placements[p].kvBlocks;
  for (uint32_t v = 0; v < plan.variants.size(); ++v)
    of_[plan.variants[v].placement].push_back(v);
  for (std::vector<uint32_t> &of : of_)
    std::stable_sort(of.begin(), of.end(), [&](uint32_t a, uint32_t b) {
      return plan.variants[a].predictedNs < plan.variants[b].predictedNs;
    });
}

const VariantLoads::Loads &VariantLoads::with(int64_t kvBlocks) const {
  if (!split_)
    return all_;
  int64_t most = 1;
  for (const plan::Placement &placement : plan_.placements)
    most = std::max(most, placement.kvBlocks);
  constexpr int64_t kShares = core::kShares;
  const int64_t share = std::clamp<int64_t>((kvBlocks * kShares + most - 1) / most, 0, kShares);
  std::unique_ptr<const Loads> &loads = shares_[static_cast<size_t>(share)];
  if (!loads)
    loads = std::make_unique<const Loads>(loadsOf((share * most + kShares - 1) / kShares));
  return *loads;
}

VariantLoads::Loads VariantLoads::loadsOf(std::optional<int64_t> kvBlocks) const {
  Loads loads;
  for (const plan::Variant &variant : plan_.variants)
    loads.push_back(loadOf(variant, kvBlocks));
  return loads;
}

bool VariantLoads::serves(uint32_t variant, int64_t kvBlocks) const {
  const plan::Schedule &schedule = plan_.schedules[plan_.variants[variant].schedule];
  return schedule.kvBlocks == 0 || kvBlocks <= schedule.kvBlocks;
}

std::optional<uint32_t> VariantLoads::withoutTails(uint32_t variant) const {
  const plan::Variant &of = plan_.variants[variant];
  for (uint32_t v = 0; v < plan_.variants.size(); ++v) {
    const plan::Variant &other = plan_.variants[v];
    if (plan_.schedules[other.schedule].kvBlocks > 0 && other.placement == of.placement &&
        other.newTokens == of.newTokens && other.sequences == of.sequences && other.context == of.context)
      return v;
  }
  return std::nullopt;
}

uint64_t VariantLoads::transitionBytes(uint32_t transition, int64_t kvBlocks) const {
  const plan::Schedule &schedule = plan_.schedules[plan_.transitions[transition].schedule];
  uint64_t bytes = plan::linkBytes(schedule).h2d;
  for (uint32_t step = 0; split_ && step < schedule.steps.size(); ++step)
    if (schedule.steps[step].resizable)
      if (const absl::StatusOr<core::SizedCopy> copy = core::sizedCopy(plan_, schedule, step); copy.ok())
        bytes -= copy->bytes - core::bytesInUse(*copy, {kvBlocks});
  return bytes;
}

VariantLoad VariantLoads::loadOf(const plan::Variant &variant, std::optional<int64_t> kvBlocks) const {
  const plan::Schedule &schedule = plan_.schedules[variant.schedule];
  const size_t steps = schedule.steps.size();
  std::vector<StepLoad> loads(steps);
  VariantLoad load;
  load.h2dBytes = plan::linkBytes(schedule).h2d;
  for (uint32_t step = 0; step < steps; ++step) {
    loads[step] = stepLoad(plan_, variant, step, kvBlocks);
    load.h2dBytes -= schedule.steps[step].linkBytes - loads[step].linkBytes;
  }
  const auto lane = [&](size_t step) { return static_cast<size_t>(schedule.steps[step].lane); };
  std::vector<uint64_t> ends(steps, 0);
  uint64_t laneEnds[plan::kLanes] = {};
  size_t publish = steps;
  bool both = false;
  for (size_t step = 0, edge = 0; step < steps; ++step) {
    uint64_t start = laneEnds[lane(step)];
    for (; edge < schedule.edges.size() && schedule.edges[edge].to == step; ++edge)
      start = std::max(start, ends[schedule.edges[edge].from]);
    ends[step] = laneEnds[lane(step)] = start + loads[step].ns;
    publish = schedule.steps[step].kind == plan::StepKind::Publish ? step : publish;
    both = both || plan::toHost(schedule.steps[step].lane);
  }
  load.ns = load.headNs = variant.predictedNs;
  if (kvBlocks && !both && !ends.empty())
    load.ns = load.headNs = std::min(load.ns, *std::max_element(ends.begin(), ends.end()));
  if (publish == steps)
    return load;
  if (both) {
    for (const plan::Content &content : plan_.states[schedule.exitState].contents)
      load.tailBytes += content.bytes;
    load.tailNs = load.ns - std::min(load.ns, variant.computeAloneNs);
    return load;
  }
  // What tokens wait for: along edges and lanes.
  std::vector<bool> waitsFor(steps, false);
  std::vector<bool> laneWaits(plan::kLanes, false);
  waitsFor[publish] = true;
  uint64_t waited = 0;
  for (size_t step = publish + 1, edge = schedule.edges.size(); step-- > 0;) {
    for (; edge > 0 && schedule.edges[edge - 1].to > step; --edge) {
    }
    waitsFor[step] = waitsFor[step] || laneWaits[lane(step)];
    if (!waitsFor[step])
      continue;
    laneWaits[lane(step)] = true;
    waited += loads[step].linkBytes;
    for (size_t e = edge; e > 0 && schedule.edges[e - 1].to == step; --e)
      waitsFor[schedule.edges[e - 1].from] = true;
  }
  load.headNs = ends[publish];
  load.tailNs = load.ns - std::min(load.ns, load.headNs);
  load.tailBytes = load.h2dBytes - std::min(load.h2dBytes, waited);
  return load;
}

} // namespace headrace::serve
