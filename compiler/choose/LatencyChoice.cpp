// SPDX-License-Identifier: Apache-2.0
#include "compiler/choose/LatencyChoice.h"

#include <numeric>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "compiler/search/Explain.h"
#include "compiler/search/ExplainObjective.h"
#include "compiler/search/GeneratorInputs.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/PlacementTable.h"
#include "runtime/sim/TokenGaps.h"

namespace headrace::compiler {
namespace {

// A decoder layer's compute in a variant, to the nearest ns: the mean over the layers.
uint64_t layerComputeNs(const plan::Plan &plan, const plan::Variant &variant) {
  uint64_t ns = 0;
  const plan::Schedule &schedule = plan.schedules[variant.schedule];
  for (size_t step = 0; step < schedule.steps.size(); ++step)
    if (schedule.steps[step].layer >= 0 && schedule.steps[step].lane == plan::Lane::Compute)
      ns += variant.durationsNs[step];
  const auto layers = static_cast<uint64_t>(plan.model->layers);
  return (ns + layers / 2) / layers;
}

} // namespace

bool LatencyChoice::applies(const CompileRequest &request, const Generator &policy) {
  return !policy.statesPlacement || request.goal.hasSlo() || request.policy.placements;
}

absl::StatusOr<std::vector<Candidate>> LatencyChoice::choose(size_t most, uint64_t rangeSpare) {
  report();
  if (buckets_.empty())
    RETURN_IF_ERROR(setBuckets());
  ChoiceProblem problem;
  problem.spec = &*in_.request->model;
  problem.target = in_.target;
  problem.goal = &in_.request->goal;
  problem.policy = in_.request->policy;
  problem.policy.name = std::string(in_.policy->name);
  problem.byObjective = in_.policy->order == Order::MostFreed;
  problem.onePlacement = in_.policy->onePlacement;
  problem.family = in_.family;
  problem.buckets = buckets_;
  problem.most = most;
  problem.rangeSpare = rangeSpare;
  problem.gaps = gapsCount();
  problem.apart = apart_;
  const GeneratorInputs inputs{*in_.request, *in_.target, *in_.layout, *in_.family, in_.steps, *in_.prices};
  problem.candidates = in_.candidates != nullptr ? *in_.candidates : candidatesOf(*in_.policy, inputs);
  problem.inOrder = in_.inOrder;
  problem.splitCaches = in_.candidates != nullptr;
  problem.smallest = in_.smallest;
  if (in_.policy->opinion != nullptr)
    problem.meets = in_.policy->opinion(inputs);
  RETURN_IF_ERROR(keepWhatHostHolds(problem.candidates));
  // What is held against an objective is what the slowest iterations take.
  slowest_ = in_.policy->order == Order::MostFreed ? in_.empty.slowestPermille : plan::kPredicted;
  problem.copiesNs = [this](const Candidate &candidate) {
    uint64_t ns = 0;
    for (const uint64_t bytes : copiesOf(candidate))
      ns += in_.prices->copyNs(bytes, /*hostToDevice=*/true);
    return plan::slowestNs(ns, slowest_);
  };
  problem.movedBytes = [this](const Candidate &candidate) {
    const std::vector<uint64_t> copies = copiesOf(candidate);
    return std::accumulate(copies.begin(), copies.end(), uint64_t{0});
  };
  problem.evaluate = [this](const Candidate &candidate) { return evaluate(candidate); };
  if (searches()) {
    problem.search = [this](const Objective &bucket, uint64_t sloNs) {
      return search({{&lookFor(bucket), plan::predictedWithin(sloNs, slowest_)}});
    };
    problem.searchTogether = [this](const std::vector<uint64_t> &sloNs) {
      Goals goals;
      for (size_t b = 0; b < sloNs.size(); ++b)
        if (sloNs[b] > 0)
          goals.emplace_back(&buckets_[b], plan::predictedWithin(sloNs[b], slowest_));
      return search(goals);
    };
    problem.chain = [this](const Objective &bucket, const std::vector<RangeStep> &steps, const Candidate *within) {
      lookFor(bucket);
      return chain(bucket, steps, within);
    };
  }
  absl::StatusOr<ChosenPlacements> chosen = choosePlacements(problem);
  if (absl::IsResourceExhausted(chosen.status()) && hostBinds_)
    return absl::ResourceExhaustedError(absl::StrCat(chosen.status().message(),
                                                     "; all with at most the host memory of ", hostBytes(), " bytes (",
                                                     bytesText(hostBytes()), ") offloaded"));
  if (!chosen.ok())
    return chosen.status();
  chosen_ = *std::move(chosen);
  return chosen_.placements;
}

uint64_t LatencyChoice::hostBytes() const { return in_.request->hardware.hostLimit(); }

absl::Status LatencyChoice::keepWhatHostHolds(std::vector<Candidate> &candidates) {
  uint64_t all = 0, least = UINT64_MAX;
  for (const model::Unit &unit : in_.layout->units)
    all += unit.bytes;
  hostBinds_ = all > hostBytes();
  for (const Candidate &candidate : candidates)
    least = std::min(least, in_.family->hostBytes(candidate));
  candidates.erase(
      std::remove_if(candidates.begin(), candidates.end(),
                     [&](const Candidate &candidate) { return in_.family->hostBytes(candidate) > hostBytes(); }),
      candidates.end());
  if (candidates.empty())
    return hostExhausted(in_.request->model, in_.request->hardware, least);
  return absl::OkStatus();
}

absl::StatusOr<Evaluation> LatencyChoice::evaluate(const Candidate &candidate) {
  for (const auto &[known, evaluation] : evaluated_)
    if (known.samePlacement(candidate))
      return evaluation;
  plan::Plan alone = in_.empty;
  ++progress_.evaluated;
  report();
  absl::StatusOr<Evaluation> evaluation = in_.evaluate(candidate, alone, gapsCount());
  if (!evaluation.ok())
    return evaluation;
  if (!candidate.offloadsNothing())
    for (std::vector<uint64_t> *times : {&evaluation->predictedNs, &evaluation->gapNs})
      for (uint64_t &ns : *times)
        ns = plan::slowestNs(ns, slowest_);
  evaluated_.emplace_back(candidate, *evaluation);
  return evaluation;
}

void LatencyChoice::report() {
  if (in_.request->progress)
    in_.request->progress(progress_);
}

const Objective &LatencyChoice::lookFor(const Objective &objective) {
  const auto key = [](const Objective &o) {
    return std::tie(o.decode, o.bucket.tokens, o.bucket.sequences, o.bucket.context);
  };
  const auto at = std::find_if(buckets_.begin(), buckets_.end(),
                               [&](const Objective &other) { return key(other) == key(objective); });
  progress_.nth = static_cast<size_t>(at - buckets_.begin()) + 1;
  progress_.buckets = buckets_.size();
  progress_.bucket = objective.bucket;
  report();
  return *at;
}

// Bytes of each copy of an iteration, in no order. A table that is not the head's operand is read in place.
std::vector<uint64_t> LatencyChoice::copiesOf(const Candidate &candidate) const {
  std::vector<uint64_t> copies;
  if (candidate.residency.weights().slots() > 0 || candidate.residency.weights().ringBytes() > 0)
    for (const int32_t unit : candidate.residency.weightsAway())
      if (unit != in_.layout->embeddingUnit() || in_.request->model->tiedEmbeddings)
        copies.push_back(in_.layout->units[static_cast<size_t>(unit)].bytes);
  return copies;
}

absl::Status LatencyChoice::setBuckets() {
  plan::Plan resident = in_.empty;
  Candidate none = alike({}, in_.target->choice);
  none.name = "none";
  const absl::StatusOr<Evaluation> played = in_.evaluate(none, resident, /*gaps=*/false);
  if (!played.ok())
    return played.status();
  uint64_t layerTransferNs = 0;
  const auto firstUnit = static_cast<size_t>(in_.layout->layerUnit(0, model::UnitRole::Qkv));
  for (size_t unit = firstUnit; unit < firstUnit + model::kUnitsPerLayer; ++unit)
    layerTransferNs += in_.prices->copyNs(in_.layout->units[unit].bytes, /*hostToDevice=*/true);
  for (size_t i = 0; i < resident.variants.size(); ++i) {
    const plan::Variant &v = resident.variants[i];
    Objective objective;
    objective.bucket = {v.newTokens, v.sequences, v.context, plan::actRows(resident, v)};
    objective.decode = resident.schedules[v.schedule].iterationClass == plan::IterationClass::Decode;
    objective.residentNs = played->predictedNs[i];
    objective.sloNs = objectiveNs(in_.request->goal, objective.decode, objective.residentNs);
    objective.layerComputeNs = layerComputeNs(resident, v);
    objective.layerTransferNs = layerTransferNs;
    buckets_.push_back(objective);
  }
  return absl::OkStatus();
}

SearchRequest LatencyChoice::searchRequest(const Goals &goals, bool embedding) const {
  SearchRequest asked;
  asked.model = &*in_.request->model;
  asked.layout = in_.layout;
  asked.target = in_.target;
  asked.deviceKind = in_.request->hardware.kind;
  for (const auto &[bucket, sloNs] : goals)
    (bucket->decode ? asked.decode : asked.mixed).push_back({bucket->bucket, sloNs});
  const uint64_t table = in_.layout->units[static_cast<size_t>(in_.layout->embeddingUnit())].bytes;
  asked.embedding = embedding && in_.request->policy.offloadEmbedding != model::AutoOnOff::Off && table <= hostBytes();
  asked.mostBytes = hostBytes() - (asked.embedding && !in_.request->model->tiedEmbeddings ? table : 0);
  asked.head = in_.request->policy.offloadHead != model::AutoOnOff::Off;
  return asked;
}

absl::StatusOr<std::optional<Candidate>> LatencyChoice::search(const Goals &goals) {
  if (const auto known = searched_.find(goals); known != searched_.end())
    return known->second;
  absl::StatusOr<std::optional<Candidate>> found = searchAnew(goals);
  if (found.ok())
    searched_.emplace(goals, *found);
  return found;
}

absl::StatusOr<std::optional<Candidate>> LatencyChoice::searchAnew(const Goals &goals) const {
  absl::StatusOr<SearchedPlacement> found = searchPlacement(searchRequest(goals, true), *in_.prices);
  // An embedding that is read over the link frees much for next to nothing, which an objective as short as the resident
  // iteration has not: copies can hide, this read cannot.
  constexpr uint64_t kTight = 64; // the objective is less than one part in so many above the resident iteration
  const bool tight = std::any_of(goals.begin(), goals.end(), [&](const auto &goal) {
    return goal.second < goal.first->residentNs + goal.first->residentNs / kTight;
  });
  if (in_.request->policy.offloadEmbedding == model::AutoOnOff::Auto && !in_.request->model->tiedEmbeddings &&
      (absl::IsResourceExhausted(found.status()) || tight)) {
    absl::StatusOr<SearchedPlacement> kept = searchPlacement(searchRequest(goals, false), *in_.prices);
    if (!found.ok() || (kept.ok() && kept->freedBytes > found->freedBytes))
      found = std::move(kept);
  }
  if (absl::IsResourceExhausted(found.status())) // even with nothing offloaded
    return std::optional<Candidate>();
  if (!found.ok())
    return found.status();
  return std::optional(std::move(found->candidate));
}

absl::StatusOr<std::vector<Candidate>>
LatencyChoice::chain(const Objective &bucket, const std::vector<RangeStep> &steps, const Candidate *within) const {
  std::vector<ChainStep> asked;
  asked.reserve(steps.size());
  for (const RangeStep &step : steps)
    asked.emplace_back(static_cast<double>(step.sloNs) / static_cast<double>(steps.front().sloNs), step.mostBytes,
                       step.leastFreed);
  const uint64_t first = plan::predictedWithin(steps.front().sloNs, slowest_);
  const auto search = [&](bool embedding) {
    SearchRequest request = searchRequest({{&bucket, first}}, embedding);
    if (within != nullptr)
      request.only = within->residency.weightsAway();
    return searchChain(request, asked, *in_.prices);
  };
  absl::StatusOr<std::vector<ChainedPlacement>> found =
      search(within == nullptr || awayOf(within->residency, in_.request->model).embedding);
  if (absl::IsResourceExhausted(found.status())) // as search()
    found = search(false);
  if (!found.ok())
    return found.status();
  std::vector<Candidate> candidates;
  for (ChainedPlacement &one : *found)
    candidates.push_back(std::move(one.placement.candidate));
  return candidates;
}

// Where it is not said how: a search decides the slots, and what else to offload. A ring lets units go one by one, but
// of several mini-batches each uses all of a layer.
bool LatencyChoice::searches() const {
  const model::Policy &asked = in_.request->policy;
  return in_.policy->searchesUnits && in_.candidates == nullptr && !asked.slots &&
         in_.target->choice.miniBatches == 1 && asked.offloadHead != model::AutoOnOff::On &&
         !(in_.request->model->tiedEmbeddings && asked.offloadEmbedding == model::AutoOnOff::On);
}

bool LatencyChoice::gapsCount() const {
  // The baselines know nothing of gaps.
  return in_.policy->countsGaps && in_.request->goal.instances == model::Instances::Together &&
         std::any_of(buckets_.begin(), buckets_.end(), [](const Objective &b) { return b.decode && b.sloNs > 0; });
}

bool LatencyChoice::mustServeTogether(const plan::Plan &plan) {
  if (apart_ || !gapsCount())
    return false;
  std::vector<uint32_t> chosen;
  for (const plan::BucketChoice &choice : plan.choices)
    chosen.push_back(choice.variant);
  const sim::TokenGaps gaps(plan);
  const std::vector<sim::TokenGaps::Longest> longest = gaps.longest(chosen);
  for (size_t c = 0; c < chosen.size(); ++c) {
    if (plan.choices[c].sloNs == 0 || longest[c].ns == 0)
      continue;
    const plan::Placement &from = plan.placements[plan.variants[longest[c].from].placement];
    const uint32_t permille = plan::slowestPermille(plan, plan.variants[longest[c].to].placement);
    const BrokenGap gap{plan::slowestNs(longest[c].ns, permille), plan.choices[c].sloNs,
                        *gaps.wayNs(longest[c].from, longest[c].to), from.name,
                        plan.placements[plan.variants[longest[c].to].placement].name};
    if (gap.ns > gap.sloNs && (!apart_ || gap.ns - gap.sloNs > apart_->ns - apart_->sloNs))
      apart_ = gap;
  }
  return apart_.has_value();
}

void LatencyChoice::record(plan::Plan &plan) const {
  const plan::Variant *decisive = nullptr;
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const Objective &objective = buckets_[b];
    const auto key = std::tuple(static_cast<uint32_t>(chosen_.of[b]), objective.bucket.tokens,
                                objective.bucket.sequences, objective.bucket.context);
    // Of those for what may be in use of KV the last: any of it.
    auto at = std::prev(std::partition_point(plan.variants.begin(), plan.variants.end(), [&](const plan::Variant &v) {
      return std::tuple(v.placement, v.newTokens, v.sequences, v.context) <= key;
    }));
    const auto phaseOf = [&](const plan::Variant &v) { return plan.schedules[v.schedule].phase; };
    for (auto phase = at; phaseOf(*phase) > 0;) // of a cycle the slowest
      if (--phase; phase->predictedNs > at->predictedNs)
        at = phase;
    plan.choices.push_back({static_cast<uint32_t>(at - plan.variants.begin()), objective.sloNs, objective.residentNs,
                            objective.layerComputeNs, objective.layerTransferNs});
    if (b == chosen_.decisive)
      decisive = &*at;
  }
  std::sort(plan.choices.begin(), plan.choices.end(), [&](const plan::BucketChoice &a, const plan::BucketChoice &b) {
    const plan::Variant &x = plan.variants[a.variant], &y = plan.variants[b.variant];
    return std::tie(x.newTokens, x.sequences, x.context) < std::tie(y.newTokens, y.sequences, y.context);
  });
  const Objective &objective = buckets_[chosen_.decisive];
  absl::StatusOr<LinkUse> link = absl::NotFoundError("nothing is searched, or gaps decide");
  if (searches() && !apart_ && objective.sloNs > 0)
    link = linkUse(searchRequest({{&objective, plan::predictedWithin(objective.sloNs, slowest_)}}, true),
                   chosen_.placements.front().residency.weightsAway(), *in_.prices);
  plan.reason =
      explainObjective(*in_.policy, chosen_.placements.front(), {chosen_.compared, chosen_.evaluated, chosen_.inOrder},
                       objective, *decisive, plan, apart_, link.ok() ? &*link : nullptr);
  plan.limitingResource = decisive->linkAloneNs > decisive->computeAloneNs ? "link h2d" : "compute";
}

} // namespace headrace::compiler
