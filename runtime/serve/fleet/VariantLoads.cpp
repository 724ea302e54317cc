// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/fleet/VariantLoads.h"

#include <algorithm>
#include <cmath>

#include "runtime/core/GraphSteps.h"
#include "runtime/plan/value/BlockRuns.h"
#include "runtime/plan/value/CacheMap.h"

namespace headrace::serve {
namespace {

// The bytes of a resizable copy with KV blocks below this number in use, whichever of its rows are written.
std::optional<std::pair<uint64_t, uint64_t>> sizeInUse(const plan::Plan &plan, const plan::Schedule &schedule,
                                                       uint32_t index, int64_t kvBlocks) {
  const absl::StatusOr<core::SizedCopy> copy = core::sizedCopy(plan, schedule, index);
  if (!copy.ok())
    return std::nullopt;
  return std::pair(core::bytesInUse(*copy, core::InUse{kvBlocks}), copy->bytes);
}

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
  const auto size = sizeInUse(plan, schedule, index, *kvBlocks);
  if (!size)
    return whole;
  const auto [bytes, most] = *size;
  const auto latencyNs = static_cast<uint64_t>(std::llround(std::max(plan.hardware.copyLatency, 0.0) * 1e9));
  const uint64_t startNs = latencyNs < whole.ns ? latencyNs : 0;
  const double share = static_cast<double>(bytes) / static_cast<double>(most);
  return {startNs + static_cast<uint64_t>(std::ceil(share * static_cast<double>(whole.ns - startNs))), bytes};
}

bool isCopy(const plan::Step &step) { return plan::toDevice(step.lane) || plan::toHost(step.lane); }

bool copiesBack(const plan::Schedule &schedule) {
  return std::any_of(schedule.steps.begin(), schedule.steps.end(),
                     [](const plan::Step &step) { return plan::toHost(step.lane); });
}

double shareOfBoth(const model::Hardware &hardware) {
  const double larger = std::max(hardware.h2dBandwidth, hardware.d2hBandwidth);
  return larger > 0 && hardware.duplexBandwidth > 0 ? std::min(1.0, hardware.duplexBandwidth / larger / 2) : 1;
}

} // namespace

VariantLoads::VariantLoads(const plan::Plan &plan)
    : plan_(plan), bothShare_(shareOfBoth(plan.hardware)), of_(plan.placements.size()), phases_(plan.variants.size()) {
  for (uint32_t v = 0; v < plan.variants.size(); ++v) {
    const plan::Variant &variant = plan.variants[v];
    const plan::Schedule &schedule = plan.schedules[variant.schedule];
    bothWays_ = bothWays_ || copiesBack(schedule);
    const auto in = std::count_if(schedule.steps.begin(), schedule.steps.end(),
                                  [](const plan::Step &step) { return plan::toDevice(step.lane); });
    mostCopies_ = std::max(mostCopies_, static_cast<uint64_t>(in));
    for (uint32_t o = 0; o < plan.variants.size(); ++o) {
      const plan::Variant &other = plan.variants[o];
      const plan::Schedule &its = plan.schedules[other.schedule];
      if (o == v || (other.placement == variant.placement && other.newTokens == variant.newTokens &&
                     other.sequences == variant.sequences && other.context == variant.context &&
                     its.iterationClass == schedule.iterationClass && its.kvBlocks == schedule.kvBlocks &&
                     its.period > 1 && its.period == schedule.period))
        phases_[v].push_back(o);
    }
  }
  all_ = loadsOf(std::nullopt);
  for (const plan::CacheMap &caches : plan::cacheMaps(plan))
    split_ = split_ || caches.split();
  for (uint32_t v = 0; v < plan.variants.size(); ++v)
    of_[plan.variants[v].placement].push_back(v);
  for (std::vector<uint32_t> &of : of_)
    std::stable_sort(of.begin(), of.end(), [&](uint32_t a, uint32_t b) { return chosenByNs(a) < chosenByNs(b); });
}

uint64_t VariantLoads::chosenByNs(uint32_t variant) const {
  uint64_t ns = 0;
  for (const uint32_t phase : phases_[variant])
    ns += plan_.variants[phase].predictedNs;
  return ns / phases_[variant].size();
}

const VariantLoads::Loads &VariantLoads::with(int64_t kvBlocks) const {
  if (!split_)
    return all_;
  int64_t most = 1;
  for (const plan::Placement &placement : plan_.placements)
    most = std::max(most, placement.kvBlocks);
  const int64_t share = std::clamp<int64_t>((kvBlocks * kLoadShares + most - 1) / most, 0, kLoadShares);
  std::unique_ptr<const Loads> &loads = shares_[static_cast<size_t>(share)];
  if (!loads)
    loads = std::make_unique<const Loads>(loadsOf((share * most + kLoadShares - 1) / kLoadShares));
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

plan::LinkBytes VariantLoads::transitionBytes(uint32_t transition, int64_t kvBlocks) const {
  const plan::Schedule &schedule = plan_.schedules[plan_.transitions[transition].schedule];
  plan::LinkBytes bytes = plan::linkBytes(schedule);
  for (uint32_t step = 0; split_ && step < schedule.steps.size(); ++step)
    if (schedule.steps[step].resizable)
      if (const auto size = sizeInUse(plan_, schedule, step, kvBlocks))
        (plan::toHost(schedule.steps[step].lane) ? bytes.d2h : bytes.h2d) -= size->second - size->first;
  return bytes;
}

VariantLoad VariantLoads::loadOf(const plan::Variant &variant, std::optional<int64_t> kvBlocks) const {
  const plan::Schedule &schedule = plan_.schedules[variant.schedule];
  const size_t steps = schedule.steps.size();
  std::vector<StepLoad> loads(steps);
  VariantLoad load;
  const auto toHost = [&](size_t step) { return plan::toHost(schedule.steps[step].lane); };
  for (uint32_t step = 0; step < steps; ++step) {
    loads[step] = stepLoad(plan_, variant, step, kvBlocks);
    if (bothWays_ && isCopy(schedule.steps[step]))
      loads[step].ns = static_cast<uint64_t>(std::ceil(static_cast<double>(loads[step].ns) / bothShare_));
    const bool direct = plan::directToHost(schedule, schedule.steps[step]);
    (direct ? load.directBytes : toHost(step) ? load.bytes.d2h : load.bytes.h2d) += loads[step].linkBytes;
  }
  const auto lane = [&](size_t step) { return static_cast<size_t>(schedule.steps[step].lane); };
  std::vector<uint64_t> ends(steps, 0);
  uint64_t laneEnds[plan::kLanes] = {};
  size_t publish = steps;
  for (size_t step = 0, edge = 0; step < steps; ++step) {
    uint64_t start = laneEnds[lane(step)];
    for (; edge < schedule.edges.size() && schedule.edges[edge].to == step; ++edge)
      start = std::max(start, ends[schedule.edges[edge].from]);
    ends[step] = laneEnds[lane(step)] = start + loads[step].ns;
    publish = schedule.steps[step].kind == plan::StepKind::Publish ? step : publish;
  }
  const uint64_t endNs = ends.empty() ? variant.predictedNs : *std::max_element(ends.begin(), ends.end());
  load.ns = load.headNs = bothWays_  ? std::max(endNs, kvBlocks ? 0 : variant.predictedNs)
                          : kvBlocks ? std::min(variant.predictedNs, endNs)
                                     : variant.predictedNs;
  if (publish == steps)
    return load;
  // What tokens wait for: along edges and lanes.
  std::vector<bool> waitsFor(steps, false);
  std::vector<bool> laneWaits(plan::kLanes, false);
  waitsFor[publish] = true;
  plan::LinkBytes waited;
  for (size_t step = publish + 1, edge = schedule.edges.size(); step-- > 0;) {
    for (; edge > 0 && schedule.edges[edge - 1].to > step; --edge) {
    }
    waitsFor[step] = waitsFor[step] || laneWaits[lane(step)];
    if (!waitsFor[step])
      continue;
    laneWaits[lane(step)] = true;
    if (!plan::directToHost(schedule, schedule.steps[step]))
      (toHost(step) ? waited.d2h : waited.h2d) += loads[step].linkBytes;
    for (size_t e = edge; e > 0 && schedule.edges[e - 1].to == step; --e)
      waitsFor[schedule.edges[e - 1].from] = true;
  }
  load.headNs = ends[publish];
  load.tailNs = load.ns - std::min(load.ns, load.headNs);
  load.tail = {load.bytes.h2d - std::min(load.bytes.h2d, waited.h2d),
               load.bytes.d2h - std::min(load.bytes.d2h, waited.d2h)};
  return load;
}

} // namespace headrace::serve
