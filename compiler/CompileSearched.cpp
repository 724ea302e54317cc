// SPDX-License-Identifier: Apache-2.0
#include "compiler/CompileSearched.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/CompileStated.h"
#include "compiler/choice/CheckStated.h"
#include "compiler/choice/Resolve.h"
#include "compiler/choose/ChoosePlacement.h"
#include "compiler/choose/Explain.h"
#include "compiler/choose/ExplainObjective.h"
#include "compiler/search/Minima.h"
#include "compiler/search/Why.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/cost/CostModel.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/PlacementTable.h"
#include "runtime/sim/BucketTime.h"
#include "runtime/sim/TokenGaps.h"

namespace headrace::compiler {
namespace {

std::optional<uint64_t> leastHostOf(const CompileRequest &request, const cost::CostModel &costs) {
  Space space(request, costs);
  const std::optional<LeastChoice> least = leastHost(space);
  return least ? std::optional(least->hostBytes) : std::nullopt;
}

// What is at an end of the space, which a search may not have come to: what takes the least of the device, or of the
// host.
std::optional<LeastChoice> leastThatFits(Space &space, const std::optional<LeastChoice> &device) {
  const uint64_t memory = space.target(space.origin()).deviceMemory;
  if (device && device->deviceBytes <= memory)
    return device;
  const std::optional<LeastChoice> host = leastHost(space);
  return host && space.beyondHost(host->at, host->candidate) == 0 ? host : std::nullopt;
}

// Of a space that memory holds nothing of: the least that would do, of the device, and of the host beside this device.
absl::Status nothingFits(Space &space, const std::optional<LeastChoice> &least, const cost::CostModel &costs) {
  const model::Hardware &hardware = space.request().hardware;
  std::optional<uint64_t> hostBytes;
  if (hardware.hostMemoryBytes > 0 || space.request().goal.kvHostMemory) {
    CompileRequest anyHost = space.request();
    anyHost.hardware.hostMemoryBytes = 0; // no limit
    anyHost.goal.kvHostMemory.reset();
    hostBytes = leastHostOf(anyHost, costs);
    if (!hostBytes && !least) { // nor does this device memory do, whatever the host has
      anyHost.goal.deviceMemory = uint64_t{1} << 62;
      hostBytes = leastHostOf(anyHost, costs);
    }
  }
  const std::string host =
      hostBytes && *hostBytes > hardware.hostLimit() ? hostMemoryThatWouldDo(hardware, *hostBytes) : std::string();
  if (!least)
    return hostExhausted(space.request().model, hardware, hostBytes.value_or(0));
  MemoryNeed need = space.need(least->at, least->candidate);
  need.transients = need.transients + least->deviceBytes - need.bytes;
  need.bytes = least->deviceBytes;
  const absl::Status refused = deviceMemoryExhausted(space.request().model, space.target(least->at),
                                                     space.request().policy, least->candidate, need, "");
  return host.empty() ? refused : refusalWith(refused, absl::StrCat(", ", host));
}

// What a compiled placement misses though the limits that were searched with hold.
struct Broken {
  std::optional<Limit> bucket; // that is no limit yet
  double gap = 0;              // the part of an objective by which a gap between tokens is longer
};

Broken brokenBy(const Draft &draft) {
  Broken broken;
  std::vector<uint32_t> chosen;
  for (const plan::BucketChoice &choice : draft.choices)
    chosen.push_back(choice.variant);
  const sim::TokenGaps gaps(draft);
  const std::vector<sim::TokenGaps::Longest> longest = gaps.longest(chosen);
  double most = 0;
  for (size_t c = 0; c < chosen.size(); ++c) {
    const uint64_t sloNs = draft.choices[c].sloNs;
    const plan::Variant &variant = draft.variants[chosen[c]];
    const plan::IterationClass of = draft.schedules[variant.schedule].iterationClass;
    if (sloNs == 0 || (of == plan::IterationClass::Mixed && draft.goal.ttft))
      continue;
    const uint32_t permille = plan::slowestPermille(draft, variant.placement);
    const uint64_t ns = sim::bucketNs(draft, chosen[c]);
    const double late = static_cast<double>(plan::slowestNs(ns, permille)) / static_cast<double>(sloNs) - 1;
    if (late > most) {
      most = late;
      broken.bucket =
          limitOf(of, {variant.newTokens, variant.sequences, variant.context, plan::actRows(draft, variant)});
    }
    // With as much in use as the bucket bounds; what is behind prompts is as long.
    const uint64_t more = variant.predictedNs - ns;
    const uint64_t gapNs = longest[c].ns - std::min(longest[c].ns, more);
    broken.gap =
        std::max(broken.gap, static_cast<double>(plan::slowestNs(gapNs, permille)) / static_cast<double>(sloNs) - 1);
  }
  return broken;
}

// A search within objectives, which goes on where what it finds turns out to miss one.
class ObjectiveSearch {
public:
  ObjectiveSearch(const CompileRequest &request, const cost::CostModel &costs)
      : request_(request), costs_(costs), space_(request, costs) {}

  Space &space() { return space_; }

  // None: memory holds nothing.
  std::optional<Searched> run() {
    std::optional<Searched> searched = search(space_, allGenerators(), begin_);
    if (searched && searched->best.late > 0 && begin_.empty()) { // from what needs the least memory within them
      leastBytes();
      if (!begin_.empty())
        searched = search(space_, allGenerators(), begin_);
    }
    return searched;
  }

  // Goes on with what was missed; false: there is nothing more to try.
  bool goOn(const Broken &broken) {
    if (broken.bucket)
      return space_.addLimit(*broken.bucket);
    if (space_.cutAlike())
      return true;
    if (++tightened_ > kMostTightened)
      return false;
    spare_ = (1 + spare_) * (1 + broken.gap + 1e-9) - 1;
    space_.hold(tightened(request_.goal));
    return true;
  }

  // The least of each objective that is missed, alone, and memory that would do.
  absl::Status refusal(const Searched &searched) {
    const model::Goal &goal = request_.goal;
    const Target target = space_.target(searched.best.at);
    ObjectiveMinima minima;
    std::vector<Objective> buckets;
    buckets.reserve(2); // minima point into it
    const auto minimum = [&](bool decode, const Least &least) {
      ClassMinimum &of = decode ? minima.decode : minima.mixed;
      const Limit &limit = space_.limits(least.best.at)[least.limit];
      buckets.push_back({.bucket = limit.points.back().at.bucket, .decode = decode});
      of.missed = true;
      of.ns = least.ns;
      of.factor = least.factor;
      of.bucket = &buckets.back();
      of.candidate = least.best.candidate;
    };
    if (goal.sloFactor) {
      if (const std::optional<Least> least = leastOf(goal))
        minimum(least->decode, *least);
    } else {
      for (const bool decode : {true, false}) {
        model::Goal alone = goal;
        (decode ? alone.ttft : alone.tpot).reset();
        if (alone.hasSlo())
          if (const std::optional<Least> least = leastOf(alone))
            minimum(decode, *least);
      }
      if (!minima.decode.missed && !minima.mixed.missed) // each can be held, and not both
        if (const std::optional<Least> least = leastOf(goal))
          minimum(least->decode, *least);
    }
    space_.hold(tightened(goal));
    minima.bytesAtObjective = leastBytes();
    if (const std::optional<LeastChoice> least = leastDevice(space_))
      minima.bytesAtAny = {target.leastMemoryFor(least->deviceBytes, request_.model->layers), least->candidate};
    const bool prompts = goal.ttft && minima.mixed.missed && !minima.decode.missed;
    return missed(explainMissed(request_.model, target, goal, "joint", minima),
                  std::chrono::nanoseconds(prompts ? minima.mixed.ns : 0));
  }

private:
  struct Least {
    Scored best;
    size_t limit = 0; // that decides
    bool decode = true;
    uint64_t ns = 0;
    double factor = 0;
  };

  // By the spare that gaps between tokens need.
  model::Goal tightened(model::Goal goal) const {
    for (auto *time : {&goal.tpot, &goal.ttft})
      if (*time)
        *time = std::chrono::nanoseconds(static_cast<int64_t>(static_cast<double>((*time)->count()) / (1 + spare_)));
    if (goal.sloFactor)
      *goal.sloFactor /= 1 + spare_;
    return goal;
  }

  // The limit of a choice that takes the most of what a goal allows.
  Least decisive(const Scored &best, const model::Goal &goal) {
    Least least{.best = best};
    double most = 0;
    const std::vector<Limit> &limits = space_.limits(best.at);
    for (size_t i = 0; i < limits.size(); ++i) {
      const uint64_t ns = limitNs(goal, limits[i]);
      if (ns == 0)
        continue;
      const double ratio = static_cast<double>(best.limitedNs[i]) / static_cast<double>(ns);
      if (ratio <= most)
        continue;
      most = ratio;
      least.limit = i;
      least.decode = limits[i].decode;
      least.ns = static_cast<uint64_t>(std::ceil(static_cast<double>(best.limitedNs[i]) * (1 + spare_)));
      if (goal.sloFactor)
        least.factor = std::ceil(static_cast<double>(best.limitedNs[i]) / static_cast<double>(limits[i].residentNs) *
                                 (1 + spare_) * kFactorSteps) /
                       kFactorSteps;
    }
    return least;
  }

  // None where the goal can be held. What misses it by the least is found first, then whether a little less can be.
  std::optional<Least> leastOf(const model::Goal &goal) {
    model::Goal asked = goal;
    std::optional<Least> least;
    for (int tries = 0; tries < kMostTightened; ++tries) {
      space_.hold(tightened(asked));
      const std::optional<Searched> searched = search(space_, allGenerators(), begin_);
      if (!searched || (!least && searched->best.late <= 0))
        return std::nullopt;
      if (least && searched->best.late > 0)
        return least;
      least = decisive(searched->best, asked);
      const double part = 1 - kMinimumStep;
      if (asked.sloFactor)
        asked.sloFactor = least->factor * part;
      else
        (least->decode ? asked.tpot : asked.ttft) =
            std::chrono::nanoseconds(static_cast<int64_t>(static_cast<double>(least->ns) * part));
    }
    return least;
  }

  // Of device memory, whatever there is, within the objectives; none: no memory would do. What takes it is where a
  // search begins from then on.
  std::optional<uint64_t> leastBytes() {
    CompileRequest any = request_;
    any.policy.prefer = model::Prefer::Memory;
    any.goal.deviceMemory = uint64_t{1} << 62;
    Space space(any, costs_);
    space.like(space_);
    space.hold(tightened(request_.goal));
    const std::optional<Searched> searched = search(space, allGenerators());
    if (!searched || searched->best.late > 0)
      return std::nullopt;
    const Scored &best = searched->best;
    Coordinates at = best.at;
    if (at.listed > 0)
      at.listed = space_.list(best.candidate);
    begin_ = {at};
    return space.target(best.at).leastMemoryFor(space.packed(best.at, best.candidate), request_.model->layers);
  }

  static constexpr int kMostTightened = 6;
  static constexpr double kMinimumStep = 1e-4; // an objective so much shorter than a minimum is refused
  static constexpr double kFactorSteps = 1e6;  // a factor's decimals

  const CompileRequest &request_;
  const cost::CostModel &costs_;
  Space space_;
  std::vector<Coordinates> begin_;
  double spare_ = 0; // of each objective
  int tightened_ = 0;
};

} // namespace

absl::StatusOr<Draft> compileSearched(const CompileRequest &request) {
  RETURN_IF_ERROR(checkStated(request, askedChoice(request), /*rotates=*/true));
  ASSIGN_OR_RETURN(target, resolve(request));
  std::optional<cost::Roofline> roofline;
  const cost::CostModel &costs =
      request.costs ? *request.costs : roofline.emplace(request.model, request.hardware, target.activation, target.kv);
  ObjectiveSearch within(request, costs);
  Space &space = within.space();
  for (;;) {
    const std::optional<Searched> searched = within.run();
    CompileRequest chosen = request;
    chosen.placements.resize(1);
    Coordinates at;
    if (searched && searched->best.late > 0)
      return within.refusal(*searched);
    if (searched) {
      at = searched->best.at;
      ASSIGN_OR_RETURN(filled, space.filled(searched->best));
      chosen.placements.front() = std::move(filled);
    } else {
      const std::optional<LeastChoice> least = leastDevice(space), fits = leastThatFits(space, least);
      if (!fits)
        return nothingFits(space, least, costs);
      at = fits->at;
      chosen.placements.front() = fits->candidate;
    }
    ASSIGN_OR_RETURN(draft, compileStated(chosen, space.commonOf(at)));
    if (searched && request.goal.hasSlo())
      if (const Broken broken = brokenBy(draft); broken.bucket || broken.gap > 0) {
        if (within.goOn(broken))
          continue;
        return within.refusal(*searched);
      }
    draft.reason = searched ? why(space, *searched, chosen.placements.front(), flagThatHelps(space, *searched, costs))
                            : absl::StrCat(describe(chosen.placements.front(), request.model), " of ",
                                           request.model->name, ": what takes the least memory");
    draft.request.placements.clear();
    return draft;
  }
}

} // namespace headrace::compiler
