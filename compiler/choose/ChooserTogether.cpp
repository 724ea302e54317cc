// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "compiler/choose/Chooser.h"

namespace headrace::compiler {

std::vector<uint64_t> Chooser::missedTogether(const Evaluation &evaluation) const {
  std::vector<uint64_t> missed(p_.buckets.size(), 0);
  for (size_t b = 0; b < missed.size(); ++b) {
    const uint64_t ns = std::max(evaluation.predictedNs[b], evaluation.gapNs[b]);
    missed[b] = ns - std::min(ns, p_.buckets[b].limit());
  }
  return missed;
}

namespace {
bool any(const std::vector<uint64_t> &missed) {
  return std::any_of(missed.begin(), missed.end(), [](uint64_t ns) { return ns > 0; });
}
} // namespace

bool Chooser::meetsAll(size_t candidate, uint64_t budget) {
  for (size_t b = 0; b < p_.buckets.size(); ++b)
    if (p_.buckets[b].sloNs > 0 && !meets(candidate, b, budget))
      return false;
  return true;
}

bool Chooser::holdsTogether(size_t candidate, uint64_t budget) {
  if (!meetsAll(candidate, budget))
    return false;
  return !any(missedTogether(*evaluations_[candidate]));
}

void Chooser::searchTogether() {
  if (!p_.searchTogether)
    return;
  // By how much what is found where buckets may take so long misses their objectives; none if nothing is found.
  const auto missedWhere = [&](const std::vector<uint64_t> &asked) -> std::optional<std::vector<uint64_t>> {
    absl::StatusOr<std::optional<Candidate>> found = p_.searchTogether(asked);
    if (!found.ok())
      status_ = found.status();
    if (!ok() || !*found)
      return std::nullopt;
    const size_t candidate = add(**found), one = inOneCut(candidate);
    std::optional<std::vector<uint64_t>> missed;
    for (const size_t form : {candidate, one})
      if (form != kNone && (!missed || any(*missed)))
        if (const Evaluation *e = evaluate(form); e != nullptr)
          missed = missedTogether(*e);
    return missed;
  };
  std::vector<uint64_t> asked, tooMuch;
  for (const Objective &bucket : p_.buckets)
    asked.push_back(bucket.sloNs);
  bool held = false;
  for (int tries = 0; tries < kSearches && !held; ++tries) {
    const std::optional<std::vector<uint64_t>> missed = missedWhere(asked);
    if (!missed)
      return;
    held = !any(*missed);
    if (held)
      break;
    tooMuch = asked;
    for (size_t b = 0; b < asked.size(); ++b) {
      if ((*missed)[b] > 0 && asked[b] <= (*missed)[b])
        return;
      asked[b] -= (*missed)[b];
    }
  }
  // Between what was missed and what holds.
  for (int tries = 0; tries < kSearches && held && closely_ && !tooMuch.empty(); ++tries) {
    std::vector<uint64_t> middle(asked);
    for (size_t b = 0; b < asked.size(); ++b)
      middle[b] += (tooMuch[b] - asked[b]) / 2;
    const std::optional<std::vector<uint64_t>> missed = missedWhere(middle);
    (missed && !any(*missed) ? asked : tooMuch) = std::move(middle);
  }
}

size_t Chooser::mostFreedTogether(uint64_t budget) {
  searchTogether();
  size_t best = kNone;
  const auto better = [&](size_t candidate) {
    return best == kNone ||
           evaluations_[candidate]->predictedNs[decisive_] < evaluations_[best]->predictedNs[decisive_];
  };
  for (const size_t candidate : std::vector<size_t>(byFreed_)) { // grows
    if (!ok() || (best != kNone && freed_[candidate] < freed_[best]))
      break;
    size_t held = candidate;
    if (!holdsTogether(candidate, budget))
      held = meetsAll(candidate, budget) ? inOneCut(candidate) : kNone;
    if (held != kNone && holdsTogether(held, budget) && better(held))
      best = held;
  }
  return best;
}

size_t Chooser::inOneCut(size_t candidate) {
  if (!candidates_[candidate].residency.wrap.around || candidates_[candidate].residency.wrap.oneCut)
    return kNone;
  Candidate one = candidates_[candidate];
  one.residency.wrap.oneCut = true;
  return add(one);
}

std::optional<uint64_t> Chooser::leastBytesTogether() {
  searchTogether();
  std::optional<uint64_t> least;
  for (const size_t candidate : std::vector<size_t>(byArena_)) { // grows
    if (!ok() || leastArena_[candidate] >= least.value_or(kMost))
      break;
    size_t held = candidate;
    if (!holdsTogether(candidate, kMost))
      held = meetsAll(candidate, kMost) ? inOneCut(candidate) : kNone;
    if (held != kNone && holdsTogether(held, kMost))
      least = std::min(least.value_or(kMost), evaluations_[held]->arenaBytes);
  }
  return least;
}

// Whether some placement serves all buckets where a goal asks for other times.
class Chooser::Others {
public:
  explicit Others(Chooser &chooser) : chooser_(chooser), problem_(chooser.p_) {}

  std::optional<Candidate> held(const model::Goal &goal) {
    for (Objective &bucket : problem_.buckets)
      bucket.sloNs = objectiveNs(goal, bucket.decode, bucket.residentNs);
    Chooser other(problem_);
    other.closely_ = false; // that it holds is enough
    const size_t found = other.mostFreedTogether(problem_.target->deviceMemory);
    chooser_.status_.Update(other.status_);
    return found == kNone || !chooser_.ok() ? std::nullopt : std::optional(other.candidates_[found]);
  }

  struct Least {
    uint64_t value;
    Candidate candidate;
  };
  // The least value of which `goalOf` makes a goal that is held, above one that is not, to within a ten-thousandth;
  // none up to `most`.
  template <class GoalOf> std::optional<Least> least(uint64_t misses, uint64_t most, GoalOf &&goalOf) {
    uint64_t holds = misses;
    std::optional<Candidate> candidate;
    while (!candidate) {
      if (holds >= most || !chooser_.ok())
        return std::nullopt;
      holds = std::min(most, 2 * holds);
      candidate = held(goalOf(holds));
    }
    while (holds - misses > std::max<uint64_t>(1, misses / 10'000) && chooser_.ok()) {
      const uint64_t middle = misses + (holds - misses) / 2;
      if (std::optional<Candidate> found = held(goalOf(middle))) {
        holds = middle;
        candidate = std::move(found);
      } else {
        misses = middle;
      }
    }
    return Least{holds, *std::move(candidate)};
  }
  // The same for one of a goal's values, the rest as it is.
  std::optional<Least> leastFactor(const model::Goal &goal) {
    return least(steps(*goal.sloFactor), 1'000'000'000'000, [&](uint64_t value) {
      model::Goal other = goal;
      other.sloFactor = static_cast<double>(value) / kSteps;
      return other;
    });
  }
  std::optional<Least> leastNs(const model::Goal &goal, std::optional<std::chrono::nanoseconds> model::Goal::*member) {
    return least(static_cast<uint64_t>((goal.*member)->count()), kLongestNs, [&](uint64_t value) {
      model::Goal other = goal;
      other.*member = std::chrono::nanoseconds(value);
      return other;
    });
  }
  static constexpr double kSteps = 1e6; // a factor's decimals
  static uint64_t steps(double factor) { return static_cast<uint64_t>(std::ceil(factor * kSteps - 1e-7)); }

private:
  Chooser &chooser_;
  ChoiceProblem problem_;
};

absl::Status Chooser::refusalTogether() {
  Others others(*this);
  TogetherMinima minima;
  const model::Goal &goal = *p_.goal;
  if (goal.sloFactor)
    if (const auto least = others.leastFactor(goal))
      minima.factor = static_cast<double>(least->value) / Others::kSteps;
  for (const auto &[member, into] :
       {std::pair(&model::Goal::tpot, &minima.tpot), std::pair(&model::Goal::ttft, &minima.ttft)})
    if (goal.*member)
      if (const auto least = others.leastNs(goal, member))
        *into = std::chrono::nanoseconds(least->value);
  if (const std::optional<uint64_t> least = leastBytesTogether())
    minima.bytes = memoryFor(*least);
  if (!ok())
    return status_;
  return missed(explainApart(*p_.spec, *p_.target, goal, p_.policy.name, *p_.apart, minima),
                minima.ttft.value_or(std::chrono::nanoseconds(0)));
}

void Chooser::raiseForGaps(ObjectiveMinima &minima) {
  if (!p_.gaps || !ok() || !(minima.decode.missed || minima.mixed.missed))
    return;
  // The goal that the minima stand for: what is not missed stays as it was asked for.
  model::Goal goal = *p_.goal;
  if (goal.sloFactor) {
    goal.sloFactor =
        static_cast<double>(Others::steps(std::max(minima.decode.factor, minima.mixed.factor))) / Others::kSteps;
  } else {
    if (minima.decode.missed)
      goal.tpot = std::chrono::nanoseconds(minima.decode.ns);
    if (minima.mixed.missed)
      goal.ttft = std::chrono::nanoseconds(minima.mixed.ns);
  }
  Others others(*this);
  if (others.held(goal))
    return;
  const auto least = goal.sloFactor ? others.leastFactor(goal) : others.leastNs(goal, &model::Goal::tpot);
  if (!least)
    return;
  ClassMinimum &decode = minima.decode;
  for (const Objective &bucket : p_.buckets)
    if (bucket.decode && bucket.sloNs > 0)
      decode.bucket = &bucket; // the largest
  decode.missed = true;
  decode.candidate = least->candidate;
  if (goal.sloFactor)
    decode.factor = static_cast<double>(least->value) / Others::kSteps;
  else
    decode.ns = least->value;
}

} // namespace headrace::compiler
