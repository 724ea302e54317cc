// SPDX-License-Identifier: Apache-2.0
#include "compiler/search/Weighed.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "compiler/evaluate/Evaluate.h"
#include "compiler/search/BucketChoices.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/value/PlacementTable.h"
#include "runtime/sim/TokenGaps.h"

namespace headrace::compiler {

Weighed::Weighed(const GeneratorInputs &in, const Generator &policy, Iterations &iterations, Player &player,
                 const std::vector<Objective> &buckets, std::vector<Candidate> candidates, bool inOrder, bool searches)
    : in_(in), iterations_(iterations), player_(player), buckets_(buckets),
      slowest_(policy.order == Order::MostFreed && policy.allowsForSlowest ? in.prices.slowestPermille()
                                                                           : plan::kPredicted),
      inOrder_(inOrder), searches_(searches) {
  report();
  for (Candidate &candidate : candidates)
    add(std::move(candidate));
  stated_ = placements_.size();
  for (size_t p = 0; p < stated_ && inOrder_; ++p)
    placements_[p].freed = static_cast<int64_t>(stated_ - p);
}

int64_t Weighed::freedBytes(const Candidate &candidate) const {
  const MemoryNeed all = in_.family.held(Candidate()), need = in_.family.held(candidate);
  return static_cast<int64_t>(all.weights + all.kv) - static_cast<int64_t>(need.weights + need.kv + need.slots);
}

size_t Weighed::add(Candidate candidate) {
  const auto same = std::find_if(placements_.begin(), placements_.end(),
                                 [&](const Placement &of) { return of.candidate.samePlacement(candidate); });
  if (same != placements_.end())
    return static_cast<size_t>(same - placements_.begin());
  Placement of;
  of.freed = inOrder_ ? 0 : freedBytes(candidate);
  of.heldBytes = in_.family.held(candidate).bytes;
  // A table that is not the head's operand is read in place.
  const algorithms::Pool &weights = candidate.residency.weights();
  if (weights.slots() > 0 || weights.ringBytes() > 0)
    for (const int32_t unit : candidate.residency.weightsAway())
      if (unit != in_.layout.embeddingUnit() || in_.request.model->tiedEmbeddings) {
        const uint64_t bytes = in_.layout.units[static_cast<size_t>(unit)].bytes;
        of.movedBytes += bytes;
        of.copiesNs += in_.prices.copyNs(bytes, /*hostToDevice=*/true);
      }
  of.copiesNs = plan::slowestNs(of.copiesNs, slowest_);
  of.candidate = std::move(candidate);
  placements_.push_back(std::move(of));
  return placements_.size() - 1;
}

uint64_t Weighed::ns(size_t placement, size_t bucket) {
  if (placements_[placement].ns.empty()) {
    ++progress_.evaluated;
    report();
    const Candidate &candidate = placements_[placement].candidate;
    std::vector<uint64_t> ns(buckets_.size(), UINT64_MAX); // where it cannot be played
    if (const absl::StatusOr<std::vector<Played>> played = player_.play(candidate, wholePoints(in_.target));
        played.ok())
      for (size_t b = 0; b < ns.size(); ++b)
        ns[b] =
            candidate.offloadsNothing() ? (*played)[b].slowestNs : plan::slowestNs((*played)[b].slowestNs, slowest_);
    placements_[placement].ns = std::move(ns);
  }
  return placements_[placement].ns[bucket];
}

uint64_t Weighed::gapNs(size_t placement, size_t bucket) {
  std::vector<uint64_t> &known = placements_[placement].gapNs;
  if (!known.empty())
    return known[bucket];
  const Candidate &candidate = placements_[placement].candidate;
  known.assign(buckets_.size(), UINT64_MAX);
  const absl::StatusOr<Draft> draft = evaluate(iterations_, {candidate});
  if (!draft.ok())
    return known[bucket];
  known.assign(buckets_.size(), 0);
  std::vector<uint32_t> variants; // whatever is in use
  for (uint32_t v = 0; v < draft->variants.size(); ++v)
    if (draft->schedules[draft->variants[v].schedule].kvBlocks == 0)
      variants.push_back(v);
  const std::vector<sim::TokenGaps::Longest> longest = sim::TokenGaps(*draft).longest(variants);
  for (size_t i = 0; i < variants.size(); ++i) {
    const plan::Variant &variant = draft->variants[variants[i]];
    const bool decode = draft->schedules[variant.schedule].iterationClass == plan::IterationClass::Decode;
    const auto at = std::find_if(buckets_.begin(), buckets_.end(), [&](const Objective &of) {
      return of.decode == decode && std::tie(of.bucket.tokens, of.bucket.sequences, of.bucket.context) ==
                                        std::tie(variant.newTokens, variant.sequences, variant.context);
    });
    const uint64_t ns = candidate.offloadsNothing() ? longest[i].ns : plan::slowestNs(longest[i].ns, slowest_);
    uint64_t &gap = known[static_cast<size_t>(at - buckets_.begin())];
    gap = std::max(gap, ns); // of a cycle the slowest
  }
  return known[bucket];
}

void Weighed::report() {
  if (in_.request.progress)
    in_.request.progress(progress_);
}

void Weighed::lookFor(const std::vector<uint64_t> &sloNs) {
  if (std::count_if(sloNs.begin(), sloNs.end(), [](uint64_t ns) { return ns > 0; }) != 1)
    return;
  const auto bucket =
      static_cast<size_t>(std::find_if(sloNs.begin(), sloNs.end(), [](uint64_t ns) { return ns > 0; }) - sloNs.begin());
  progress_.nth = bucket + 1;
  progress_.buckets = buckets_.size();
  progress_.bucket = buckets_[bucket].bucket;
  report();
}

SearchRequest Weighed::requestOf(const std::vector<uint64_t> &sloNs, bool embedding) const {
  SearchRequest asked = searchRequestOf(in_.request, in_.layout, in_.target, embedding);
  for (size_t b = 0; b < sloNs.size(); ++b)
    if (sloNs[b] > 0)
      (buckets_[b].decode ? asked.decode : asked.mixed)
          .push_back({buckets_[b].bucket, plan::predictedWithin(sloNs[b], slowest_)});
  return asked;
}

std::optional<size_t> Weighed::search(const std::vector<uint64_t> &sloNs) {
  if (!searches_)
    return std::nullopt;
  lookFor(sloNs);
  const auto [it, fresh] = searched_.try_emplace(sloNs);
  if (fresh)
    if (std::optional<Candidate> found = searchAnew(sloNs))
      it->second = add(*std::move(found));
  return it->second;
}

std::optional<Candidate> Weighed::searchAnew(const std::vector<uint64_t> &sloNs) const {
  absl::StatusOr<SearchedPlacement> found = searchPlacement(requestOf(sloNs, true), in_.prices);
  // An embedding that is read over the link frees much for next to nothing, which an objective as short as the resident
  // iteration has not: copies can hide, this read cannot.
  constexpr uint64_t kTight = 64; // the objective is less than one part in so many above the resident iteration
  bool tight = false;
  for (size_t b = 0; b < sloNs.size(); ++b)
    tight |= sloNs[b] > 0 &&
             plan::predictedWithin(sloNs[b], slowest_) < buckets_[b].residentNs + buckets_[b].residentNs / kTight;
  if (in_.request.policy.offloadEmbedding == model::AutoOnOff::Auto && !in_.request.model->tiedEmbeddings &&
      (absl::IsResourceExhausted(found.status()) || tight)) {
    absl::StatusOr<SearchedPlacement> kept = searchPlacement(requestOf(sloNs, false), in_.prices);
    if (!found.ok() || (kept.ok() && kept->freedBytes > found->freedBytes))
      found = std::move(kept);
  }
  return found.ok() ? std::optional(std::move(found->candidate)) : std::nullopt; // not even with nothing offloaded
}

std::vector<size_t> Weighed::chain(size_t bucket, const std::vector<RangeStep> &steps, std::optional<size_t> within) {
  std::vector<uint64_t> first(buckets_.size(), 0);
  first[bucket] = steps.front().sloNs;
  lookFor(first);
  std::vector<ChainStep> asked;
  asked.reserve(steps.size());
  for (const RangeStep &step : steps)
    asked.emplace_back(static_cast<double>(step.sloNs) / static_cast<double>(steps.front().sloNs), step.mostBytes,
                       step.leastFreed);
  const auto search = [&](bool embedding) {
    SearchRequest request = requestOf(first, embedding);
    if (within)
      request.only = candidate(*within).residency.weightsAway();
    return searchChain(request, asked, in_.prices);
  };
  absl::StatusOr<std::vector<ChainedPlacement>> found =
      search(!within || awayOf(candidate(*within).residency, in_.request.model).embedding);
  if (absl::IsResourceExhausted(found.status())) // as search()
    found = search(false);
  std::vector<size_t> placements;
  for (size_t i = 0; found.ok() && i < found->size(); ++i)
    placements.push_back(add(std::move((*found)[i].placement.candidate)));
  return placements;
}

std::optional<size_t> Weighed::inOneCut(size_t placement) {
  if (const algorithms::Wrap &wrap = candidate(placement).residency.wrap; !wrap.around || wrap.oneCut)
    return std::nullopt;
  Candidate one = candidate(placement);
  one.residency.wrap.oneCut = true;
  return add(std::move(one));
}

std::optional<LinkUse> Weighed::linkUseOf(size_t placement, size_t bucket) const {
  if (!searches_ || buckets_[bucket].sloNs == 0)
    return std::nullopt;
  std::vector<uint64_t> sloNs(buckets_.size(), 0);
  sloNs[bucket] = buckets_[bucket].sloNs;
  const absl::StatusOr<LinkUse> link =
      linkUse(requestOf(sloNs, true), candidate(placement).residency.weightsAway(), in_.prices);
  return link.ok() ? std::optional(*link) : std::nullopt;
}

} // namespace headrace::compiler
