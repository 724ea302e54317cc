// SPDX-License-Identifier: Apache-2.0
#include "compiler/CompileSearched.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/CompileStated.h"
#include "compiler/choice/CheckStated.h"
#include "compiler/choice/Resolve.h"
#include "compiler/search/Allowance.h"
#include "compiler/search/Explain.h"
#include "compiler/search/ExplainAttention.h"
#include "compiler/search/ExplainObjective.h"
#include "compiler/search/Minima.h"
#include "compiler/search/Objective.h"
#include "compiler/search/Waits.h"
#include "compiler/search/Why.h"
#include "compiler/search/generators/Generators.h"
#include "compiler/search/generators/MechanismsInUse.h"
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

// What is compiled within memory, objectives aside; none: memory holds nothing, or of a deep model, of which packing
// changes little, no search finds anything.
std::optional<LeastChoice> foundIn(Space &space, const Generator &policy) {
  if (const std::optional<Searched> searched = search(space, generatorsOf(policy, space))) {
    const Scored &best = searched->best;
    return LeastChoice{best.at, best.candidate, space.packed(best.at, best.candidate), best.hostBytes};
  }
  const bool closely = space.request().model->layers <= kShallow;
  return closely ? leastThatFits(space, leastDevice(space)) : std::nullopt;
}

// Less host memory than that with which something is found, as long as there is.
uint64_t lessHost(const CompileRequest &request, const Generator &policy, const cost::CostModel &costs,
                  uint64_t hostBytes) {
  constexpr int kMostTries = 64;
  CompileRequest less = request;
  for (int tries = 0; tries < kMostTries && hostBytes > 0; ++tries) {
    less.hardware.hostMemoryBytes = hostBytes - 1;
    Space space(less, costs);
    const std::optional<LeastChoice> found = hostBytes > 1 ? foundIn(space, policy) : std::nullopt;
    if (!found)
      break;
    hostBytes = found->hostBytes;
  }
  return hostBytes;
}

// Of a space that memory holds nothing of: the least that would do, of the device, and of the host beside this device.
absl::Status nothingFits(Space &space, const std::optional<LeastChoice> &least, const Generator &policy,
                         const cost::CostModel &costs) {
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
    } else if (hostBytes && *hostBytes > hardware.hostLimit() && space.request().model->layers <= kShallow) {
      hostBytes = lessHost(anyHost, policy, costs, *hostBytes);
    }
  }
  if (!least)
    return hostExhausted(space.request().model, hardware, hostBytes.value_or(0));
  MemoryNeed need = space.need(least->at, least->candidate);
  need.transients = need.transients + least->deviceBytes - need.bytes;
  need.bytes = least->deviceBytes;
  return deviceMemoryExhausted(space.request().model, hardware, space.target(least->at), space.request().policy,
                               least->candidate, need, hostBytes);
}

// A search within objectives, which goes on where what it finds turns out to miss one.
class SearchWithin {
public:
  SearchWithin(const CompileRequest &request, const Generator &policy, const cost::CostModel &costs)
      : request_(request), policy_(policy), costs_(costs), space_(request, costs) {}
  // Of a request that differs in memory or in how long its objectives are: finds what it would alone, with what is
  // played there.
  SearchWithin(const CompileRequest &request, const SearchWithin &other)
      : request_(request), policy_(other.policy_), costs_(other.costs_), space_(request, other.space_),
        explains_(false) {}

  // ResourceExhausted, with the least that would do of each objective that is missed and of memory, where none holds
  // them.
  absl::StatusOr<Draft> run() {
    ASSIGN_OR_RETURN(attempt, within(request_.goal));
    if (attempt.draft)
      return *std::move(attempt.draft);
    if (!attempt.searched)
      return nothingFits(space_, leastOfAll(), policy_, costs_);
    std::optional<model::Goal> shorter;
    absl::Status refused = refusal(*attempt.searched, shorter);
    if (!shorter)
      return refused;
    ASSIGN_OR_RETURN(held, within(*shorter)); // a search that is asked for less may find what it did not
    if (held.draft)
      return *std::move(held.draft);
    return refused;
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
  static std::optional<Searched> searchHeld(Space &space, const std::vector<const Generator *> &generators) {
    for (int tries = 0;; ++tries) {
      std::optional<Searched> searched = search(space, generators);
      if (!searched || searched->best.late > 0 || !space.verify(searched->best) || searched->best.late <= 0 ||
          tries == kMostVerified)
        return searched;
    }
  }

  // None: memory holds nothing. The same for the same goal, whatever was found before.
  std::optional<Searched> find(const model::Goal &goal) {
    space_.hold(goal);
    std::optional<Searched> searched = searchHeld(space_, generatorsOf(policy_, space_));
    if (searched && searched->best.late > 0 && policy_.seeds == nullptr) {
      std::vector<const Generator *> more = generatorsOf(policy_, space_);
      more.push_back(&kMostFreedGenerator);
      searched = searchHeld(space_, more);
    }
    // What is at an end of the space, which a search may not have come to: what takes the least memory.
    const auto atEnd = [&](const std::optional<LeastChoice> &least) {
      if (!least)
        return;
      std::optional<Scored> scored = space_.scored(least->at, least->candidate);
      if (scored && space_.verify(*scored) && (!searched || space_.isBetter(*scored, searched->best)))
        searched = Searched{.best = *std::move(scored), .of = {}, .evaluated = space_.evaluated(), .atEnd = true};
    };
    if (!searched && space_.free().attention)
      atEnd(leastThatFits(space_, leastDevice(space_, /*onCpu=*/true)));
    if (!searched || (searched->atEnd && space_.free().attention))
      atEnd(leastThatFits(space_, leastDevice(space_, space_.free().attention ? std::optional(false) : std::nullopt)));
    else if (space_.prefersMemory() && !goal.hasSlo())
      atEnd(leastDevice(space_));
    return searched;
  }

  // Whatever device memory there is; or less with which something is found. What is found takes nearly all that it may,
  // so ever larger steps lead down; it ends where a byte less holds nothing.
  std::optional<LeastChoice> leastOfAll() {
    std::optional<LeastChoice> least = leastDevice(space_);
    CompileRequest less = request_;
    uint64_t tooLittle = 0, step = 1;
    for (int tries = 0; least && tries < kMostTries && least->deviceBytes - tooLittle > 1; ++tries) {
      less.goal.deviceMemory = std::max(tooLittle + 1, least->deviceBytes - std::min(least->deviceBytes, step));
      Space space(less, space_);
      std::optional<LeastChoice> found = foundIn(space, policy_);
      if (!found) {
        tooLittle = *less.goal.deviceMemory;
        step = 1;
        continue;
      }
      if (found->at.listed > 0)
        found->at.listed = space_.list(found->candidate);
      least = std::move(found);
      step = std::max(4 * step, std::max(model::kAlign, least->deviceBytes >> 12));
    }
    return least;
  }

  // By objectives none of which is longer than the request's, whose the plan is.
  absl::StatusOr<Attempt> within(const model::Goal &goal) {
    for (int tries = 0;;) {
      Attempt attempt{.searched = find(goal), .draft = std::nullopt};
      if (!attempt.searched || attempt.searched->best.late > 0)
        return attempt;
      const Searched &searched = *attempt.searched;
      CompileRequest chosen = request_;
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
      if (explains_)
        draft.reason = absl::StrCat(
            why(space_, searched, chosen.placements.front(), flagThatHelps(space_, searched, policy_, costs_)),
            explainEncodings(space_, searched.best), explainAttention(space_, searched.best));
      if (explains_ && request_.advise)
        advise(searched.best);
      draft.request.placements.clear();
      attempt.draft = std::move(draft);
      return attempt;
    }
  }

  // What else might be allowed.
  void advise(const Scored &best) {
    std::string line = allowanceWouldBring(space_, best, costs_);
    CompileRequest open = request_;
    open.policy.attention = model::Attention::Auto;
    if (request_.policy.attention == model::Attention::Device && request_.hardware.kind == model::DeviceKind::Cuda &&
        checkPolicy(open.policy, open.goal).ok() && model::checkBeside(mechanismsInUse(open, policy_)).ok() &&
        checkStated(open, askedChoice(open), /*cycles=*/true).ok())
      if (const std::string attention = attentionWouldBring(space_, best, open, costs_); !attention.empty())
        absl::StrAppend(&line, line.empty() ? "" : "; ", attention);
    if (!line.empty())
      request_.advise(line);
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
  // `shorter`: objectives that are held, none longer than the goal's, where the search for the least comes to such.
  absl::Status refusal(const Searched &searched, std::optional<model::Goal> &shorter) {
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
      const std::optional<Least> least = asked.hasSlo() ? leastHeld(asked) : std::nullopt;
      if (!least)
        return;
      const model::Goal with = withLeast(asked, *least);
      if (with.sloFactor <= asked.sloFactor && with.tpot <= asked.tpot && with.ttft <= asked.ttft) {
        if (asked.tpot == goal.tpot && asked.ttft == goal.ttft)
          shorter = with;
        return;
      }
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
    return missed(explainMissed(request_.model, target, goal, std::string(policy_.name), minima),
                  std::chrono::nanoseconds(prompts ? minima.mixed.ns : 0));
  }

  static model::Goal withLeast(model::Goal goal, const Least &least) {
    if (goal.sloFactor)
      goal.sloFactor = least.factor;
    else
      (least.decode ? goal.tpot : goal.ttft) = std::chrono::nanoseconds(static_cast<int64_t>(least.ns));
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
      least.ns = best.limitedNs[i];
      if (goal.sloFactor)
        least.factor = std::ceil(static_cast<double>(best.limitedNs[i]) / static_cast<double>(limits[i].residentNs) *
                                 kFactorSteps) /
                       kFactorSteps;
    }
    return least;
  }

  // A factor, or nanoseconds: as a refusal says them.
  static double valueOf(const Least &least, const model::Goal &goal) {
    return goal.sloFactor ? least.factor : static_cast<double>(least.ns);
  }
  static double little(double value, const model::Goal &goal) {
    const double less = (1 - kMinimumStep) * value;
    return goal.sloFactor ? std::floor(less * kFactorSteps) / kFactorSteps : std::floor(less);
  }
  static double between(double less, double more, const model::Goal &goal) {
    const double middle = less + (more - less) / 2;
    return goal.sloFactor ? std::ceil(middle * kFactorSteps) / kFactorSteps : std::ceil(middle);
  }

  // The least that can be held in place of a goal that cannot: asked for alone it is compiled, a little less is
  // refused. None where the goal can be held. As it was asked for, which may be more than its choice takes.
  std::optional<Least> leastHeld(const model::Goal &goal) {
    const std::optional<Searched> nearest = find(goal);
    if (!nearest || nearest->best.late <= 0)
      return std::nullopt;
    const Least first = decisive(nearest->best, goal);
    std::optional<Least> held;
    std::set<double> refused;
    double value = valueOf(first, goal), taken = value, step = kMinimumStep;
    for (int tries = 0; tries < kMostTries; ++tries) {
      model::Goal asked = goal;
      if (goal.sloFactor)
        asked.sloFactor = value;
      else
        (first.decode ? asked.tpot : asked.ttft) = std::chrono::nanoseconds(static_cast<int64_t>(value));
      CompileRequest with = request_;
      with.goal = asked;
      const absl::StatusOr<Attempt> attempt = SearchWithin(with, *this).within(asked);
      if (attempt.ok() && attempt->draft) {
        held = decisive(attempt->searched->best, asked);
        taken = std::min(valueOf(*held, goal), value);
        if (goal.sloFactor)
          held->factor = value;
        else
          held->ns = static_cast<uint64_t>(value);
        if (value = little(taken, goal); !refused.contains(value))
          continue; // of what it takes, a little less
      } else {
        refused.insert(value);
      }
      const auto below = held ? refused.lower_bound(valueOf(*held, goal)) : refused.end();
      const double most = below == refused.begin() ? 0 : *std::prev(below);
      if (!held) { // its plan takes longer than it was played to
        value =
            std::max(std::ceil((1 + step) * most * kFactorSteps) / kFactorSteps,
                     attempt.ok() && attempt->searched ? valueOf(decisive(attempt->searched->best, asked), goal) : 0);
        step *= 2;
      } else if (refused.contains(little(valueOf(*held, goal), goal))) {
        return held;
      } else if (taken > most && taken < valueOf(*held, goal)) {
        value = std::exchange(taken, 0);
      } else if (const double middle = between(most, valueOf(*held, goal), goal);
                 most < little(valueOf(*held, goal), goal) && middle < valueOf(*held, goal)) {
        value = middle;
      } else {
        value = little(valueOf(*held, goal), goal);
      }
    }
    return held ? held : first;
  }

  // What takes the least device memory within the objectives, whatever there is of it; none: nothing holds them.
  std::optional<LeastChoice> leastWithin(const model::Goal &goal) {
    CompileRequest any = request_;
    any.policy.prefer = model::Prefer::Memory;
    any.goal.deviceMemory = uint64_t{1} << 62;
    Space space(any, space_);
    space.hold(goal);
    const auto holds = [&](const Coordinates &origin) { // than which nothing is faster
      const Scored *const resident = space.score(origin);
      return resident != nullptr && resident->late <= 0;
    };
    const std::vector<Coordinates> origins = space.origins();
    if (std::none_of(origins.begin(), origins.end(), holds))
      return std::nullopt;
    const std::optional<Searched> searched = searchHeld(space, generatorsOf(policy_, space));
    if (!searched || searched->best.late > 0)
      return std::nullopt;
    const Scored &best = searched->best;
    LeastChoice least{best.at, best.candidate, 0, space.hostBytes(best.at, best.candidate)};
    least.deviceBytes =
        space.target(best.at).leastMemoryFor(space.packed(best.at, best.candidate), request_.model->layers);
    return least;
  }

  // The least device memory with which a plan within the objectives is compiled: with a byte less none is.
  std::optional<uint64_t> leastBytes(const model::Goal &goal, const Target &target) {
    const std::optional<LeastChoice> least = leastWithin(goal);
    if (!least)
      return std::nullopt;
    CompileRequest with = request_;
    with.goal = goal;
    with.placements.clear();
    const auto takenIn = [&](uint64_t bytes) -> std::optional<uint64_t> {
      with.goal.deviceMemory = bytes;
      const absl::StatusOr<Attempt> attempt = SearchWithin(with, *this).within(goal);
      if (!attempt.ok() || !attempt->draft)
        return std::nullopt;
      return target.leastMemoryFor(attempt->draft->arenaBytes, request_.model->layers);
    };
    // A search that prefers latency may not come to what takes the least, nor, of what it comes to, by sums to what it
    // takes packed.
    std::optional<uint64_t> found;
    uint64_t tooLittle = 0, bytes = least->deviceBytes, more = std::max(model::kAlign, bytes >> 10);
    for (int tries = 0; tries < kMostTries && (!found || *found - tooLittle > 1); ++tries) {
      const std::optional<uint64_t> taken = takenIn(bytes);
      if (taken) {
        found = bytes;
        if (*taken >= bytes || *taken > tooLittle) {
          bytes = std::min(*taken, bytes - 1);
          continue;
        }
      } else {
        tooLittle = bytes;
      }
      bytes = found ? std::min(model::alignUp(tooLittle + (*found - tooLittle) / 2), *found - 1) : bytes + more;
      more *= 2;
    }
    return found;
  }

  static constexpr int kMostTries = 32, kMostVerified = 100;
  static constexpr double kMinimumStep = 1e-4; // an objective so much shorter than a minimum is refused
  static constexpr double kFactorSteps = 1e6;  // a factor's decimals

  const CompileRequest &request_;
  const Generator &policy_;
  const cost::CostModel &costs_;
  Space space_;
  const bool explains_ = true; // why a plan is as it is
};

} // namespace

absl::StatusOr<Draft> compileSearched(const CompileRequest &request, const Generator &policy) {
  RETURN_IF_ERROR(checkStated(request, askedChoice(request), /*cycles=*/true));
  ASSIGN_OR_RETURN(target, resolve(request));
  std::optional<cost::Roofline> roofline;
  const cost::CostModel &costs =
      request.costs ? *request.costs : roofline.emplace(request.model, request.hardware, target.activation, target.kv);
  return SearchWithin(request, policy, costs).run();
}

} // namespace headrace::compiler
