// SPDX-License-Identifier: Apache-2.0
#include "compiler/CompileSearched.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <string>
#include <tuple>
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
#include "compiler/search/Waits.h"
#include "compiler/search/Why.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/cost/CostModel.h"
#include "runtime/model/ModelSpec.h"

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

// A search within objectives, which goes on where what it finds turns out to miss one.
class SearchWithin {
public:
  SearchWithin(const CompileRequest &request, const cost::CostModel &costs)
      : request_(request), costs_(costs), space_(request, costs) {}

  // ResourceExhausted, with the least that would do of each objective that is missed and of memory, where none holds
  // them.
  absl::StatusOr<Draft> run() {
    ASSIGN_OR_RETURN(attempt, within(request_.goal));
    if (attempt.draft)
      return *std::move(attempt.draft);
    return attempt.searched ? refusal(*attempt.searched) : nothingFits(space_, leastOfAll(), costs_);
  }

private:
  struct Attempt {
    std::optional<Searched> searched; // none: memory holds nothing
    std::optional<Draft> draft;       // none: it misses an objective
  };
  struct Least {
    Scored best;
    size_t limit = 0; // that decides
    bool decode = true;
    uint64_t ns = 0;
    double factor = 0;
  };

  // Until what is found holds what it was played to hold.
  static std::optional<Searched> searchHeld(Space &space) {
    for (int tries = 0;; ++tries) {
      std::optional<Searched> searched = search(space, searchedGenerators());
      if (!searched || searched->best.late > 0 || !space.verify(searched->best) || searched->best.late <= 0 ||
          tries == kMostVerified)
        return searched;
    }
  }

  // None: memory holds nothing.
  std::optional<Searched> find(const model::Goal &goal) {
    space_.hold(goal);
    std::optional<Searched> searched = searchHeld(space_);
    const auto atEnd = [&](const Coordinates &at, const Candidate &candidate) {
      std::optional<Scored> scored = space_.scored(at, candidate);
      if (scored && space_.verify(*scored) && (!searched || space_.isBetter(*scored, searched->best)))
        searched = Searched{.best = *std::move(scored), .of = {}, .evaluated = space_.evaluated(), .atEnd = true};
    };
    // What is at an end of the space, which a search may not have come to: what takes the least memory, and what takes
    // the least of it within the objectives.
    if (!searched)
      if (const std::optional<LeastChoice> least = leastThatFits(space_, leastDevice(space_)))
        atEnd(least->at, least->candidate);
    if (searched && space_.prefersMemory() && !goal.hasSlo())
      if (const std::optional<LeastChoice> least = leastDevice(space_))
        atEnd(least->at, least->candidate);
    if (searched && searched->best.late > 0 && seeksLeast_)
      if (const std::optional<LeastChoice> least = leastWithin(goal);
          least && least->deviceBytes <= space_.target(least->at).deviceMemory &&
          space_.beyondHost(least->at, least->candidate) == 0)
        atEnd(least->at, least->candidate);
    return searched;
  }

  // Whatever device memory there is; or less with which a search finds something.
  std::optional<LeastChoice> leastOfAll() {
    std::optional<LeastChoice> least = leastDevice(space_);
    CompileRequest less = request_;
    for (int tries = 0; least && tries < kMostTries; ++tries) {
      less.goal.deviceMemory = least->deviceBytes - 1;
      Space space(less, costs_);
      const std::optional<Searched> searched = search(space, searchedGenerators());
      if (!searched)
        break;
      const Scored &best = searched->best;
      least = LeastChoice{best.at, best.candidate, space.packed(best.at, best.candidate), best.hostBytes};
      if (best.at.listed > 0)
        least->at.listed = space_.list(best.candidate);
    }
    return least;
  }

  absl::StatusOr<Attempt> within(const model::Goal &goal) {
    for (int tries = 0;;) {
      Attempt attempt{.searched = find(goal), .draft = std::nullopt};
      if (!attempt.searched || attempt.searched->best.late > 0)
        return attempt;
      const Searched &searched = *attempt.searched;
      CompileRequest chosen = request_;
      chosen.goal = goal;
      chosen.goal.deviceMemory = request_.goal.deviceMemory;
      chosen.placements = {searched.best.candidate};
      if (!searched.atEnd) {
        ASSIGN_OR_RETURN(filled, space_.filled(searched.best));
        chosen.placements.front() = std::move(filled);
      }
      ASSIGN_OR_RETURN(draft, compileStated(chosen, space_.commonOf(searched.best.at)));
      if (const auto missed = missedBy(draft)) {
        const std::vector<Limit> &limits = space_.limits(searched.best.at);
        const auto same = std::find_if(limits.begin(), limits.end(), [&](const Limit &of) {
          return of.decode == missed->first.decode && (goal.tpot || of.points == missed->first.points);
        });
        if (same == limits.end())
          space_.addLimit(missed->first);
        else
          space_.raise(searched.best, static_cast<size_t>(same - limits.begin()), missed->second);
        if (++tries < kMostVerified)
          continue;
        return attempt;
      }
      draft.reason = why(space_, searched, chosen.placements.front(), flagThatHelps(space_, searched, costs_));
      draft.request.placements.clear();
      attempt.draft = std::move(draft);
      return attempt;
    }
  }

  // The bucket that a draft misses by the most though the search took it to hold, and how long it takes; nothing where
  // there is none.
  static std::optional<std::pair<Limit, uint64_t>> missedBy(const Draft &draft) {
    std::vector<uint32_t> chosen;
    for (const plan::BucketChoice &choice : draft.choices)
      chosen.push_back(choice.variant);
    const std::vector<uint64_t> waits = waitsFor(draft, chosen, draft.goal.instances == model::Instances::Together);
    std::optional<std::pair<Limit, uint64_t>> missed;
    double most = 1;
    for (size_t c = 0; c < waits.size(); ++c) {
      const plan::Variant &variant = draft.variants[chosen[c]];
      const plan::IterationClass of = draft.schedules[variant.schedule].iterationClass;
      const double part = static_cast<double>(waits[c]) / static_cast<double>(draft.choices[c].sloNs);
      if (draft.choices[c].sloNs == 0 || (of == plan::IterationClass::Mixed && draft.goal.ttft) || part <= most)
        continue;
      most = part;
      missed.emplace(
          limitOf(of, {variant.newTokens, variant.sequences, variant.context, plan::actRows(draft, variant)}),
          waits[c]);
    }
    return missed;
  }

  // The least of each objective that is missed, alone, and memory that would do.
  absl::Status refusal(const Searched &searched) {
    const model::Goal &goal = request_.goal;
    const Target target = space_.target(searched.best.at);
    ObjectiveMinima minima;
    std::vector<Objective> buckets;
    buckets.reserve(2); // minima point into it
    const auto minimum = [&](const Least &least) {
      ClassMinimum &of = least.decode ? minima.decode : minima.mixed;
      const Limit &limit = space_.limits(least.best.at)[least.limit];
      buckets.push_back({.bucket = limit.points.back().at.bucket, .decode = least.decode});
      of.missed = true;
      of.ns = least.ns;
      of.factor = least.factor;
      of.bucket = &buckets.back();
      of.candidate = least.best.candidate;
    };
    const auto consider = [&](const model::Goal &asked) {
      if (asked.hasSlo())
        if (const std::optional<Least> least = leastHeld(asked))
          minimum(*least);
    };
    if (goal.tpot && goal.ttft) {
      for (const auto other : {&model::Goal::ttft, &model::Goal::tpot}) {
        model::Goal alone = goal;
        (alone.*other).reset();
        consider(alone);
      }
      if (!minima.decode.missed && !minima.mixed.missed) // each can be held, and not both
        consider(goal);
    } else {
      consider(goal);
    }
    minima.bytesAtObjective = leastBytes(goal, target);
    if (const std::optional<LeastChoice> least = leastDevice(space_))
      minima.bytesAtAny = {target.leastMemoryFor(least->deviceBytes, request_.model->layers), least->candidate};
    const bool prompts = goal.ttft && minima.mixed.missed && !minima.decode.missed;
    return missed(explainMissed(request_.model, target, goal, "joint", minima),
                  std::chrono::nanoseconds(prompts ? minima.mixed.ns : 0));
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
      least.ns = best.limitedNs[i];
      if (goal.sloFactor)
        least.factor = std::ceil(static_cast<double>(best.limitedNs[i]) / static_cast<double>(limits[i].residentNs) *
                                 kFactorSteps) /
                       kFactorSteps;
    }
    return least;
  }

  static void ask(const Least &least, double part, model::Goal &goal) {
    if (goal.sloFactor)
      goal.sloFactor = part * least.factor;
    else
      (least.decode ? goal.tpot : goal.ttft) =
          std::chrono::nanoseconds(static_cast<int64_t>(part * static_cast<double>(least.ns)));
  }

  // None where the goal can be held. What misses it by the least is found first, then whether a little less can be.
  std::optional<Least> leastFound(const model::Goal &goal) {
    model::Goal asked = goal;
    std::optional<Least> least;
    for (int tries = 0; tries < kMostTries; ++tries) {
      const std::optional<Searched> searched = find(asked);
      if (!searched || (!least && searched->best.late <= 0))
        return std::nullopt;
      if (least && searched->best.late > 0)
        return least;
      least = decisive(searched->best, asked);
      ask(*least, 1 - kMinimumStep, asked);
    }
    return least;
  }

  // The same, of what a plan has turned out to hold.
  std::optional<Least> leastHeld(const model::Goal &goal) {
    std::optional<Least> least;
    for (int tries = 0; tries < kMostTries; ++tries) {
      if (std::optional<Least> found = leastFound(goal))
        least = std::move(found);
      else
        return least;
      model::Goal asked = goal;
      ask(*least, 1, asked);
      if (const absl::StatusOr<Attempt> attempt = within(asked); !attempt.ok() || attempt->draft)
        return least;
    }
    return least;
  }

  // What takes the least device memory within the objectives, whatever there is of it; none: nothing holds them.
  std::optional<LeastChoice> leastWithin(const model::Goal &goal) {
    if (!memory_) {
      any_ = request_;
      any_.policy.prefer = model::Prefer::Memory;
      any_.goal.deviceMemory = uint64_t{1} << 62;
      memory_.emplace(any_, costs_);
    }
    const auto key = std::tuple(goal.tpot, goal.ttft, goal.sloFactor);
    if (known_ && known_->first == key) // a refusal asks for the same more than once
      return known_->second;
    std::optional<LeastChoice> least = leastOfMemory(goal);
    known_.emplace(key, least);
    return least;
  }

  std::optional<LeastChoice> leastOfMemory(const model::Goal &goal) {
    memory_->like(space_);
    memory_->hold(goal);
    const Scored *const resident = memory_->score(memory_->origin());
    if (resident == nullptr || resident->late > 0) // than which nothing is faster
      return std::nullopt;
    const std::optional<Searched> searched = searchHeld(*memory_);
    if (!searched || searched->best.late > 0)
      return std::nullopt;
    const Scored &best = searched->best;
    LeastChoice least{best.at, best.candidate, 0, memory_->hostBytes(best.at, best.candidate)};
    least.deviceBytes =
        memory_->target(best.at).leastMemoryFor(memory_->packed(best.at, best.candidate), request_.model->layers);
    if (least.at.listed > 0)
      least.at.listed = space_.list(best.candidate);
    return least;
  }

  // Its device memory, or less with which something else is found.
  std::optional<uint64_t> leastBytes(const model::Goal &goal, const Target &target) {
    CompileRequest with = request_;
    with.goal = goal;
    const std::optional<LeastChoice> least = leastWithin(goal);
    if (!least)
      return std::nullopt;
    uint64_t bytes = least->deviceBytes;
    with.placements.clear();
    for (int tries = 0; tries < kMostTries; ++tries) {
      with.goal.deviceMemory = bytes - 1;
      SearchWithin lower(with, costs_);
      lower.seeksLeast_ = false; // it is known, and more than there is
      const absl::StatusOr<Attempt> attempt = lower.within(goal);
      if (!attempt.ok() || !attempt->draft)
        return bytes;
      bytes = target.leastMemoryFor(attempt->draft->arenaBytes, request_.model->layers);
    }
    return bytes;
  }

  static constexpr int kMostTries = 8, kMostVerified = 100;
  static constexpr double kMinimumStep = 1e-4; // an objective so much shorter than a minimum is refused
  static constexpr double kFactorSteps = 1e6;  // a factor's decimals

  const CompileRequest &request_;
  const cost::CostModel &costs_;
  Space space_;
  CompileRequest any_;
  bool seeksLeast_ = true;
  std::optional<std::pair<std::tuple<std::optional<std::chrono::nanoseconds>, std::optional<std::chrono::nanoseconds>,
                                     std::optional<double>>,
                          std::optional<LeastChoice>>>
      known_;                   // of the goal asked for last
  std::optional<Space> memory_; // the same with any memory, where it is preferred
  double spare_ = 0;            // of each objective
  int tightened_ = 0;
};

} // namespace

absl::StatusOr<Draft> compileSearched(const CompileRequest &request) {
  RETURN_IF_ERROR(checkStated(request, askedChoice(request), /*rotates=*/true));
  ASSIGN_OR_RETURN(target, resolve(request));
  std::optional<cost::Roofline> roofline;
  const cost::CostModel &costs =
      request.costs ? *request.costs : roofline.emplace(request.model, request.hardware, target.activation, target.kv);
  return SearchWithin(request, costs).run();
}

} // namespace headrace::compiler
