// SPDX-License-Identifier: Apache-2.0
#include "compiler/CompileMostFreed.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/search/BucketChoices.h"
#include "compiler/search/Explain.h"
#include "compiler/search/ExplainObjective.h"
#include "compiler/search/LeastObjectives.h"
#include "compiler/search/MostFreed.h"
#include "compiler/search/Range.h"
#include "compiler/search/Weighed.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/value/PlacementTable.h"
#include "runtime/sim/TokenGaps.h"

namespace headrace::compiler {
namespace {

// Where it is not said how: a search decides the slots, and what else to offload. A ring lets units go one by one, but
// of several mini-batches each uses all of a layer.
bool searchesUnits(const CompileRequest &request, const Generator &policy, const Target &target) {
  const model::Policy &asked = request.policy;
  return policy.searchesUnits && !asked.slots && target.choice.miniBatches == 1 &&
         asked.offloadHead != model::AutoOnOff::On &&
         !(request.model->tiedEmbeddings && asked.offloadEmbedding == model::AutoOnOff::On);
}

class ByLatency {
public:
  ByLatency(Drafting &drafting, const ToChooseFrom &of)
      : drafting_(drafting), of_(of), request_(drafting.request()), policy_(drafting.policy()),
        target_(drafting.target()), memory_(target_.deviceMemory) {}

  absl::StatusOr<Draft> run() {
    ASSIGN_OR_RETURN(buckets, objectivesOf(drafting_.player(), drafting_.iterations()));
    buckets_ = std::move(buckets);
    std::vector<Candidate> candidates =
        of_.candidates.empty() ? candidatesOf(policy_, drafting_.inputs()) : of_.candidates;
    RETURN_IF_ERROR(keepWhatHostHolds(candidates));
    weighed_.emplace(drafting_.inputs(), policy_, drafting_.iterations(), drafting_.player(), buckets_,
                     std::move(candidates), of_.inOrder,
                     of_.candidates.empty() && searchesUnits(request_, policy_, target_));
    if (policy_.opinion != nullptr)
      opinion_ = [this, opinion = policy_.opinion(drafting_.inputs())](size_t placement, const Objective &bucket) {
        return opinion(weighed_->candidate(placement), bucket);
      };
    Asked asked;
    for (;;) {
      ASSIGN_OR_RETURN(chosen, chooseWithHost(asked));
      std::vector<Candidate> placements;
      for (const size_t placement : chosen.placements)
        placements.push_back(weighed_->candidate(placement));
      ASSIGN_OR_RETURN(draft, drafting_.attempt(placements));
      const bool several = placements.size() > 1;
      if (several && (draft.over || draft.hostBytes > request_.hardware.hostLimit())) { // each fits alone
        closer(asked, placements.size(), draft);
        continue;
      }
      RETURN_IF_ERROR(drafting_.check(draft, placements));
      record(chosen, draft);
      if (!mustServeTogether(draft))
        return draft;
      asked.most = SIZE_MAX;
    }
  }

private:
  struct Asked {
    size_t most = SIZE_MAX;  // placements: what fits each alone may not fit together
    bool nested = false;     // the range was asked for nested
    int roomier = 0;         // times that it was asked for with more to spare
    uint64_t spareBytes = 0; // that a range leaves: what placements take more together than each alone
  };
  struct Chosen {
    std::vector<size_t> placements; // first the one of the bucket that decides: the largest with an objective
    std::vector<size_t> of;         // by bucket, into placements
    Compared compared;
  };

  // Takes those away whose units do not fit the host's memory; ResourceExhausted if that is all.
  absl::Status keepWhatHostHolds(std::vector<Candidate> &candidates) {
    const uint64_t host = request_.hardware.hostLimit();
    uint64_t least = UINT64_MAX;
    for (const Candidate &candidate : candidates)
      least = std::min(least, drafting_.family().hostBytes(candidate));
    std::erase_if(candidates,
                  [&](const Candidate &candidate) { return drafting_.family().hostBytes(candidate) > host; });
    return candidates.empty() ? hostExhausted(request_.model, request_.hardware, least) : absl::OkStatus();
  }

  // A range first with as many that are nested in the one that decides, then with room for what these take more
  // together, and only then with one less.
  void closer(Asked &asked, size_t placements, const Draft &draft) const {
    constexpr int kMostRoomier = 2;
    const bool ofHost = draft.hostBytes > request_.hardware.hostLimit();
    asked.most = placements;
    if (request_.policy.placements && !std::exchange(asked.nested, true))
      return;
    if (request_.policy.placements && !ofHost && asked.roomier < kMostRoomier) {
      ++asked.roomier;
      asked.spareBytes += draft.over->bytes - memory_;
      return;
    }
    asked.most = placements - 1;
  }

  absl::StatusOr<Chosen> chooseWithHost(const Asked &asked) {
    absl::StatusOr<Chosen> chosen = choose(asked);
    const uint64_t host = request_.hardware.hostLimit();
    if (absl::IsResourceExhausted(chosen.status()) && drafting_.layout().totalBytes() > host)
      return absl::ResourceExhaustedError(absl::StrCat(chosen.status().message(),
                                                       "; all with at most the host memory of ", host, " bytes (",
                                                       bytesText(host), ") offloaded"));
    return chosen;
  }

  absl::StatusOr<Chosen> choose(const Asked &asked) {
    MostFreed choice(*weighed_, buckets_, gapsCount(), opinion_);
    const size_t decisive = choice.decisive();
    const size_t most =
        policy_.onePlacement
            ? 1
            : std::min(asked.most, static_cast<size_t>(std::max<int64_t>(
                                       1, request_.policy.placements.value_or(model::kDefaultPlacements))));
    std::vector<std::optional<size_t>> of(buckets_.size());
    if (apart_) {
      const std::optional<size_t> one = choice.forAll(memory_);
      if (!one)
        return refusalTogether(choice);
      of.assign(of.size(), one);
    } else if (policy_.order == Order::MostFreed) {
      of = choice.forEach(memory_);
      for (size_t b = 0; b < of.size(); ++b)
        if (buckets_[b].sloNs > 0 && !of[b]) {
          if (opinion_) // a baseline: what the memory demands is more than its estimate allows
            of[b] = choice.firstThatFits(memory_);
          if (!of[b])
            return refusal(choice);
        }
      if (!choice.reduce(of, most, memory_) && (request_.policy.placements || asked.most != SIZE_MAX))
        return absl::ResourceExhaustedError(
            absl::StrCat("policy.placements = ", most, ": expected more: the objectives of all buckets need at least ",
                         MostFreed::countOf(of), " placements",
                         asked.most != SIZE_MAX ? ", which do not fit the device memory together" : ""));
    } else {
      of[decisive] = choice.firstThatFits(memory_);
    }
    if (!of[decisive] && buckets_[decisive].sloNs == 0)
      of[decisive] = choice.firstThatFits(memory_); // an objective of a class that has no buckets
    if (!of[decisive])
      return refusal(choice);
    // A class without an objective takes what the deciding bucket has: nothing to change between iterations.
    std::vector<size_t> others;
    for (std::optional<size_t> &placement : of)
      others.push_back(placement ? *placement : *(placement = of[decisive]));
    if (request_.policy.placements)
      spreadRange(
          choice,
          {.placements = most, .withinChosen = asked.most != SIZE_MAX, .anyTime = policy_.order != Order::MostFreed},
          *of[decisive], memory_ - std::min(memory_, asked.spareBytes), others);
    std::stable_sort(others.begin(), others.end(), [&](size_t a, size_t b) {
      return of_.inOrder ? weighed_->freed(a) > weighed_->freed(b) : weighed_->freed(a) < weighed_->freed(b);
    });
    Chosen chosen{.placements = {*of[decisive]}, .of = {}, .compared = {}};
    for (const size_t placement : others)
      if (std::find(chosen.placements.begin(), chosen.placements.end(), placement) == chosen.placements.end())
        chosen.placements.push_back(placement);
    for (const std::optional<size_t> &placement : of)
      chosen.of.push_back(static_cast<size_t>(
          std::find(chosen.placements.begin(), chosen.placements.end(), *placement) - chosen.placements.begin()));
    chosen.compared = {choice.among().size(), choice.played(), of_.inOrder};
    return chosen;
  }

  void record(const Chosen &chosen, Draft &draft) const {
    const size_t decisive = decisiveOf(buckets_);
    const plan::Variant &variant = recordChoices(buckets_, chosen.of, draft);
    const std::optional<LinkUse> link =
        apart_ ? std::nullopt : weighed_->linkUseOf(chosen.placements.front(), decisive); // else gaps decide
    draft.reason = explainObjective(policy_, weighed_->candidate(chosen.placements.front()), chosen.compared,
                                    buckets_[decisive], variant, draft, apart_, link ? &*link : nullptr);
    if (const std::string cycle = explainCycle(draft); !cycle.empty())
      absl::StrAppend(&draft.reason, ". ", cycle);
  }

  // Gaps between tokens are held to objectives. The baselines know nothing of gaps.
  bool gapsCount() const {
    return policy_.countsGaps && request_.goal.instances == model::Instances::Together &&
           std::any_of(buckets_.begin(), buckets_.end(), [](const Objective &b) { return b.decode && b.sloNs > 0; });
  }

  // Buckets were chosen apart from each other, and the draft would keep a sequence waiting for a token longer than its
  // objective where one bucket follows another: with the transitions between them. From then on one placement is
  // chosen for all.
  bool mustServeTogether(const Draft &draft) {
    if (apart_ || !gapsCount())
      return false;
    std::vector<uint32_t> chosen;
    for (const plan::BucketChoice &choice : draft.choices)
      chosen.push_back(choice.variant);
    const sim::TokenGaps gaps(draft);
    const std::vector<sim::TokenGaps::Longest> longest = gaps.longest(chosen);
    for (size_t c = 0; c < chosen.size(); ++c) {
      if (draft.choices[c].sloNs == 0 || longest[c].ns == 0)
        continue;
      const plan::Placement &from = draft.placements[draft.variants[longest[c].from].placement];
      const uint32_t to = draft.variants[longest[c].to].placement;
      const BrokenGap gap{plan::slowestNs(longest[c].ns, plan::slowestPermille(draft, to)), draft.choices[c].sloNs,
                          *gaps.wayNs(longest[c].from, longest[c].to), from.name, draft.placements[to].name};
      if (gap.ns > gap.sloNs && (!apart_ || gap.ns - gap.sloNs > apart_->ns - apart_->sloNs))
        apart_ = gap;
    }
    return apart_.has_value();
  }

  // --- What would do ---

  uint64_t memoryFor(uint64_t bytes) const { return target_.leastMemoryFor(bytes, request_.model->layers); }

  ClassMinimum minimumOf(const LeastOfClass &least) const {
    return {.ns = least.ns,
            .factor = least.factor,
            .missed = least.missed,
            .bucket = least.placement ? &buckets_[least.bucket] : nullptr,
            .candidate = least.placement ? std::optional(weighed_->candidate(*least.placement)) : std::nullopt};
  }

  absl::Status refusal(MostFreed &choice) const {
    ObjectiveMinima minima;
    const LeastOfAll any = leastOfAll(choice);
    minima.bytesAtAny = {any.bytes, weighed_->candidate(any.placement)};
    if (any.bytes > memory_ || policy_.order != Order::MostFreed) {
      MemoryNeed need = drafting_.family().need(*minima.bytesAtAny.candidate);
      need.transients = need.transients + any.bytes - need.bytes;
      need.bytes = any.bytes;
      return deviceMemoryExhausted(request_.model, request_.hardware, target_, request_.policy,
                                   *minima.bytesAtAny.candidate, need);
    }
    const LeastByClass classes = leastByClass(choice, request_.goal, memory_);
    minima.decode = minimumOf(classes.decode);
    minima.mixed = minimumOf(classes.mixed);
    minima.ofMemory = of_.candidates.empty(); // with other amounts of it other blocks would be there
    if (minima.ofMemory) {
      if (const std::optional<uint64_t> bytes = leastBytes(choice))
        minima.bytesAtObjective = memoryFor(*bytes);
      for (const Candidate &candidate : of_.smallest ? of_.smallest() : std::vector<Candidate>())
        if (drafting_.family().held(candidate).bytes < minima.bytesAtAny.bytes)
          if (const uint64_t bytes = drafting_.family().packed(candidate); bytes < minima.bytesAtAny.bytes)
            minima.bytesAtAny = {bytes, candidate};
      minima.bytesAtAny.bytes = memoryFor(minima.bytesAtAny.bytes);
    }
    const bool prompts = request_.goal.ttft && minima.mixed.missed && !minima.decode.missed;
    return missed(explainMissed(request_.model, target_, request_.goal, std::string(policy_.name), minima),
                  std::chrono::nanoseconds(prompts ? minima.mixed.ns : 0));
  }

  // Each bucket can be held in a placement of its own, none holds all of them.
  absl::Status refusalTogether(MostFreed &choice) const {
    const LeastTogether least = leastTogether(choice, request_.goal, memory_);
    TogetherMinima minima{.tpot = least.tpot, .ttft = least.ttft, .factor = least.factor, .bytes = std::nullopt};
    if (const std::optional<uint64_t> bytes = choice.leastBytesForAll())
      minima.bytes = memoryFor(*bytes);
    return missed(explainApart(request_.model, target_, request_.goal, std::string(policy_.name), *apart_, minima),
                  minima.ttft.value_or(std::chrono::nanoseconds(0)));
  }

  Drafting &drafting_;
  const ToChooseFrom &of_;
  const CompileRequest &request_;
  const Generator &policy_;
  const Target &target_;
  const uint64_t memory_;
  std::vector<Objective> buckets_; // decode, then mixed
  std::optional<Weighed> weighed_;
  MostFreed::Opinion opinion_;
  std::optional<BrokenGap> apart_; // why one placement serves all buckets
};

} // namespace

absl::StatusOr<Draft> compileMostFreed(Drafting &drafting, const ToChooseFrom &of) {
  return ByLatency(drafting, of).run();
}

} // namespace headrace::compiler
