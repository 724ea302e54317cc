// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/fleet/PlanLoads.h"

#include <algorithm>
#include <limits>

#include "runtime/base/Text.h"
#include "runtime/plan/value/PlacementTable.h"

namespace headrace::serve {

using core::TransitionPaths;

namespace {

constexpr double kNs = 1e9;

double copyNs(const plan::LinkBytes &bytes, const BusRates &rates) {
  const auto ns = [](uint64_t moved, double rate) { return moved == 0 ? 0 : static_cast<double>(moved) / rate * kNs; };
  return ns(bytes.h2d, rates.h2d) + ns(bytes.d2h, rates.d2h);
}

} // namespace

const char *roleName(Role role) {
  switch (role) {
  case Role::Prefill:
    return "prefill";
  case Role::Decode:
    return "decode";
  case Role::Both:
    return "both";
  }
  return "?";
}

PlanLoads::PlanLoads(const plan::Plan &plan, double linkBandwidth)
    : plan_(plan), paths_(plan), variants_(plan), mixedTokens_(plan.placements.size(), 0) {
  const double link = plan.hardware.h2dBandwidth * plan.hardware.linkEfficiency;
  const double d2hLink = plan.hardware.d2hBandwidth * plan.hardware.linkEfficiency;
  link_ = linkBandwidth > 0 ? std::min(link, linkBandwidth) : link;
  d2hLink_ = linkBandwidth > 0 ? std::min(d2hLink, linkBandwidth) : d2hLink;
  for (uint32_t v = 0; v < plan.variants.size(); ++v) {
    const plan::Variant &variant = plan.variants[v];
    if (plan.schedules[variant.schedule].iterationClass == plan::IterationClass::Mixed)
      mixedTokens_[variant.placement] = std::max(mixedTokens_[variant.placement], variant.newTokens);
  }
  mostTail_.resize(plan.placements.size());
  for (uint32_t v = 0; v < plan.variants.size(); ++v) {
    plan::LinkBytes &most = mostTail_[plan.variants[v].placement];
    most.d2h = std::max(most.d2h, variants_.all()[v].tail.d2h);
  }
  for (const plan::Schedule &schedule : plan.schedules) {
    uint64_t tail = 0;
    for (const plan::Content &content : plan.states[schedule.exitState].contents)
      tail += content.bytes;
    if (schedule.iterationClass != plan::IterationClass::Transition)
      mostTail_[schedule.placement].h2d = std::max(mostTail_[schedule.placement].h2d, tail);
  }
  for (const plan::Buffer &buffer : plan.buffers)
    residentBytes_ += buffer.kind == plan::BufferKind::Weight ? buffer.bytes : 0;
  for (uint32_t p = 0; p < plan.placements.size(); ++p) {
    uint64_t bytes = plan::weightBytesByHome(plan, p).device;
    for (const plan::Slot &slot : plan.placements[p].slots)
      bytes += slot.bytes;
    freedBytes_.push_back(static_cast<uint64_t>(std::max<int64_t>(0, plan::freedBytes(plan, p))));
    deviceBytes_.push_back(bytes);
    permille_.push_back(plan::slowestPermille(plan, p));
  }
  for (uint32_t from = 0; from < plan.placements.size(); ++from)
    for (uint32_t to = 0; to < plan.placements.size(); ++to)
      changes_.push_back(from == to ? TransitionCost{} : mostOfChange(from, to));
}

TransitionPaths::Config PlanLoads::entryOf(uint32_t variant) const {
  const plan::Schedule &schedule = plan_.schedules[plan_.variants[variant].schedule];
  return paths_.config(schedule.placement, schedule.entryState);
}
TransitionPaths::Config PlanLoads::exitOf(uint32_t variant) const {
  const plan::Schedule &schedule = plan_.schedules[plan_.variants[variant].schedule];
  return paths_.config(schedule.placement, schedule.exitState);
}

// What the transitions on the way copy, and what they take beside that at the plan's rate.
TransitionCost PlanLoads::path(TransitionPaths::Config from, TransitionPaths::Config to, int64_t kvBlocks) const {
  TransitionCost cost;
  const double efficiency = plan_.hardware.linkEfficiency;
  const BusRates link(plan_.hardware.h2dBandwidth * efficiency, plan_.hardware.d2hBandwidth * efficiency);
  cost.possible = paths_.reaches(from, to);
  double ns = 0; // that all bytes take at the plan's rates
  while (cost.possible && from != to) {
    const uint32_t transition = paths_.transition(from, to);
    if (transition != TransitionPaths::kFree) {
      const plan::LinkBytes bytes = variants_.transitionBytes(transition, kvBlocks);
      const plan::LinkBytes whole = variants_.transitionBytes(transition, std::numeric_limits<int64_t>::max());
      cost.bytes += bytes.h2d;
      cost.d2hBytes += bytes.d2h;
      ns += static_cast<double>(plan_.transitions[transition].predictedNs) - copyNs(whole, link);
    }
    from = paths_.next(from, to);
  }
  cost.fixedNs = std::max(0.0, ns);
  return cost;
}

BusRates PlanLoads::rates() const {
  const double share = variants_.bothWays() ? variants_.bothShare() : 1;
  return {share * plan_.hardware.h2dBandwidth * plan_.hardware.linkEfficiency,
          share * plan_.hardware.d2hBandwidth * plan_.hardware.linkEfficiency};
}

double PlanLoads::nsOf(const TransitionCost &way) const {
  return copyNs({way.bytes, way.d2hBytes}, rates()) + way.fixedNs;
}

bool PlanLoads::goesOnElsewhere(uint32_t before, uint32_t variant) const {
  if (exitOf(before) == entryOf(variant))
    return false;
  const std::vector<uint32_t> &phases = variants_.phasesOf(variant);
  return std::any_of(phases.begin(), phases.end(), [&](uint32_t v) { return entryOf(v) == exitOf(before); });
}

std::vector<uint32_t> PlanLoads::withPhases(std::vector<uint32_t> variants) const {
  for (size_t i = 0, end = variants.size(); i < end; ++i)
    for (const uint32_t phase : variants_.phasesOf(variants[i]))
      if (std::find(variants.begin(), variants.end(), phase) == variants.end())
        variants.push_back(phase);
  return variants;
}

TransitionCost PlanLoads::mostOfChange(uint32_t from, uint32_t to) const {
  TransitionCost most;
  for (uint32_t variant : variants_.of(to)) {
    const TransitionCost cost = path(paths_.config(from, 0), entryOf(variant));
    most.bytes = std::max(most.bytes, cost.bytes);
    most.d2hBytes = std::max(most.d2hBytes, cost.d2hBytes);
    most.fixedNs = std::max(most.fixedNs, cost.fixedNs);
    most.possible = most.possible && cost.possible;
  }
  most.bytes += mostTail_[from].h2d;
  most.d2hBytes += mostTail_[from].d2h;
  return most;
}

std::optional<uint32_t> PlanLoads::cheapest(uint32_t placement, const Bucket &bucket) const {
  return cheapest(std::numeric_limits<int64_t>::max(), placement, bucket);
}

std::optional<uint32_t> PlanLoads::cheapest(int64_t kvBlocks, uint32_t placement, const Bucket &bucket) const {
  for (uint32_t v : variants_.of(placement)) {
    if (!variants_.serves(v, kvBlocks))
      continue;
    const plan::Variant &variant = plan_.variants[v];
    const bool decode = plan_.schedules[variant.schedule].iterationClass == plan::IterationClass::Decode;
    if (variant.newTokens >= bucket.tokens && variant.sequences >= bucket.sequences &&
        variant.context >= bucket.context && (!decode || bucket.tokens == bucket.sequences))
      return v;
  }
  return std::nullopt;
}

BusStage PlanLoads::Iterations::stage(const BusRates &rates) const {
  const BusPlacement p = planPlacement(computeNs, link, ns, rates);
  // Latencies that nothing hides may make an iteration longer than its compute and its bytes.
  const double beyond = std::max(0.0, -p.hiddenNs);
  return {p.computeNs + beyond + exposedNs,
          link.h2d,
          std::max(0.0, p.hiddenNs),
          exposed.h2d,
          soloNs,
          rates.h2d,
          link.d2h,
          exposed.d2h,
          link.d2h + exposed.d2h > 0 ? rates.d2h : 0};
}

void setIteration(BusPlacement &p, const BusStage &stage, uint64_t directBytes) {
  p.linkBytes = stage.linkBytes;
  p.computeNs = stage.computeNs;
  p.hiddenNs = stage.hiddenNs;
  p.exposedBytes = stage.exposedBytes;
  p.soloNs = stage.soloNs;
  p.soloRate = stage.soloRate;
  p.d2hBytes = stage.d2hBytes;
  p.exposedD2hBytes = stage.exposedD2hBytes;
  p.soloD2hRate = stage.soloD2hRate;
  p.mostD2hBytes = directBytes > 0 ? stageBytes(stage).d2h + directBytes : 0;
}

absl::Status PlanLoads::noneFor(int64_t sequences, int64_t context) const {
  Bucket largest;
  for (const plan::Variant &variant : plan_.variants) {
    largest.tokens = std::max(largest.tokens, variant.newTokens);
    largest.sequences = std::max(largest.sequences, variant.sequences);
    largest.context = std::max(largest.context, variant.context);
  }
  return absl::NotFoundError(model::cat("no placement of the plan has variants and KV blocks for ", sequences,
                                        " sequences up to context ", context, "; its largest buckets are ",
                                        largest.tokens, " new tokens, ", largest.sequences, " sequences, context ",
                                        largest.context));
}

} // namespace headrace::serve
