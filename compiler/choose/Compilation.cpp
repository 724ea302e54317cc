// SPDX-License-Identifier: Apache-2.0
#include "compiler/choose/Compilation.h"

#include <algorithm>
#include <functional>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/evaluate/CheckDurations.h"
#include "compiler/evaluate/PlanTransitions.h"
#include "compiler/search/Explain.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/sim/TokenGaps.h"

namespace headrace::compiler {
Compilation::Compilation(const CompileRequest &request, const Generator &policy, Target target,
                         model::WeightLayout layout, const cost::CostModel &costs)
    : request_(request), policy_(policy), target_(std::move(target)), layout_(std::move(layout)), prices_(costs),
      iterations_(request_, target_, layout_, prices_),
      family_(request.model, layout_, target_, iterations_.memoryUses(),
              [this](const Candidate &candidate) { return packedBytes(candidate); }),
      inputs_{request_, target_, layout_, family_, steps_, prices_} {
  if (LatencyChoice::applies(request_, policy_))
    steps_ = iterations_.pricedSteps();
}

absl::StatusOr<Draft> Compilation::run(const ToChooseFrom &of) {
  of_ = of;
  if (!of.candidates.empty())
    split_ = of.candidates;
  return choose();
}

absl::StatusOr<Draft> Compilation::choose() {
  std::vector<Attempt> choices;
  if (!of_.found.empty())
    choices.push_back({of_.found, of_.found.size() - 1});
  for (const Candidate &candidate : request_.placements)
    choices.push_back({{candidate}, 0});
  const bool searched = policy_.order == Order::LeastAim && choices.size() == 1 && request_.goal.hasSlo();
  std::vector<Candidate> one;
  if (!of_.found.empty() || searched)
    one = {choices.front().candidate()};
  if (choices.empty() || !one.empty()) {
    if (LatencyChoice::applies(request_, policy_)) {
      latency_.emplace(
          LatencyChoice::Inputs{.policy = &policy_,
                                .request = &request_,
                                .target = &target_,
                                .layout = &layout_,
                                .family = &family_,
                                .prices = &prices_,
                                .empty = emptyPlan(),
                                .steps = steps_,
                                .candidates = !one.empty() ? &one
                                              : split_     ? &*split_
                                                           : nullptr,
                                .inOrder = !one.empty() || of_.inOrder,
                                .smallest = of_.smallest,
                                .evaluate = [this](const Candidate &candidate, plan::Plan &plan, bool gaps) {
                                  return evaluate(candidate, plan, gaps);
                                }});
      RETURN_IF_ERROR(chooseByLatency(choices));
    } else if (choices.empty()) {
      choices.push_back(firstThatFits());
    }
  }
  for (;;) {
    absl::StatusOr<Draft> plan = tryPlan(choices);
    if (!plan.ok())
      return plan.status();
    if (!overBudget_ && latency_ && latency_->mustServeTogether(*plan)) {
      RETURN_IF_ERROR(chooseByLatency(choices));
      continue;
    }
    if (!overBudget_) {
      RETURN_IF_ERROR(checkDurations(*plan));
      return plan;
    }
    if (latency_ && choices.size() > 1) {
      RETURN_IF_ERROR(chooseCloser(choices));
      continue;
    }
    return exhausted(choices[overBudget_->choice], overBudget_->bytes);
  }
}

// A range first with as many that are nested in the one that decides, then with room for what these take more together,
// and only then with one less.
absl::Status Compilation::chooseCloser(std::vector<Attempt> &choices) {
  constexpr int kMostRoomier = 2;
  if (!request_.policy.placements)
    return chooseByLatency(choices, choices.size() - 1);
  if (!std::exchange(nested_, true))
    return chooseByLatency(choices, choices.size());
  if (overBudget_->bytes > target_.deviceMemory && roomier_ < kMostRoomier) {
    ++roomier_;
    rangeSpare_ += overBudget_->bytes - target_.deviceMemory;
    return chooseByLatency(choices, choices.size());
  }
  return chooseByLatency(choices, choices.size() - 1);
}

absl::Status Compilation::chooseByLatency(std::vector<Attempt> &choices, size_t most) {
  absl::StatusOr<std::vector<Candidate>> chosen = latency_->choose(most, rangeSpare_);
  if (!chosen.ok())
    return chosen.status();
  choices.clear();
  for (const Candidate &candidate : *chosen)
    choices.push_back({{candidate}, 0});
  return absl::OkStatus();
}

Compilation::Attempt Compilation::firstThatFits() {
  Attempt choice{split_ ? *split_ : candidatesOf(policy_, inputs_), 0};
  while (choice.chosen + 1 < choice.candidates.size() && !family_.fits(choice.candidate(), target_.deviceMemory))
    ++choice.chosen;
  return choice;
}

uint64_t Compilation::packedBytes(const Candidate &candidate) const {
  const HostLayout host = layOutHost({&candidate}, layout_, target_, request_.model, /*all=*/true);
  const absl::StatusOr<PlacedCandidate> placed = placeCandidate(iterations_, candidate, host);
  return placed.ok() ? placed->arenaBytes() : UINT64_MAX;
}

absl::StatusOr<Evaluation> Compilation::evaluate(const Candidate &candidate, plan::Plan &plan, bool gaps) {
  PlanWriter writer(layout_, target_, plan);
  const HostLayout host = layOutHost({&candidate}, layout_, target_, request_.model, /*all=*/true);
  ASSIGN_OR_RETURN(placed, placeCandidate(iterations_, candidate, host));
  addPlaced(writer, iterations_, placed);
  Evaluation evaluation;
  evaluation.arenaBytes = placed.arenaBytes();
  // With all blocks in use; decode, then mixed: in the order of the target. Of a cycle the slowest of its phases.
  std::vector<uint32_t> all;
  std::vector<size_t> bucketOf;
  std::map<std::pair<uint32_t, std::tuple<int64_t, int64_t, int64_t>>, size_t> buckets;
  for (uint32_t v = 0; v < plan.variants.size(); ++v) {
    const plan::Variant &variant = plan.variants[v];
    const plan::Schedule &schedule = plan.schedules[variant.schedule];
    if (schedule.kvBlocks != 0)
      continue;
    all.push_back(v);
    bucketOf.push_back(buckets
                           .try_emplace({static_cast<uint32_t>(schedule.iterationClass),
                                         {variant.newTokens, variant.sequences, variant.context}},
                                        buckets.size())
                           .first->second);
  }
  const auto slowest = [&](std::vector<uint64_t> &of, size_t i, uint64_t ns) {
    of.resize(buckets.size(), 0);
    of[bucketOf[i]] = std::max(of[bucketOf[i]], ns);
  };
  for (size_t i = 0; i < all.size(); ++i)
    slowest(evaluation.predictedNs, i, plan.variants[all[i]].predictedNs);
  if (gaps) {
    addTransitions(writer, prices_, plan);
    const std::vector<sim::TokenGaps::Longest> longest = sim::TokenGaps(plan).longest(all);
    for (size_t i = 0; i < all.size(); ++i)
      slowest(evaluation.gapNs, i, longest[i].ns);
  }
  return evaluation;
}

absl::Status Compilation::exhausted(const Attempt &choice, uint64_t least) const {
  MemoryNeed need = family_.need(choice.candidate());
  need.transients = need.transients + least - need.bytes;
  need.bytes = least;
  const uint64_t host = family_.hostBytes(choice.candidate());
  return deviceMemoryExhausted(request_.model, target_, request_.policy, choice.candidate(), need,
                               host > request_.hardware.hostLimit() ? hostMemoryThatWouldDo(request_.hardware, host)
                                                                    : std::string());
}

absl::StatusOr<Draft> Compilation::tryPlan(const std::vector<Attempt> &choices) {
  overBudget_.reset();
  Draft plan = emptyPlan();
  std::vector<const Candidate *> chosen;
  chosen.reserve(choices.size());
  for (const Attempt &choice : choices)
    chosen.push_back(&choice.candidate());
  const HostLayout host = layOutHost(chosen, layout_, target_, request_.model);
  plan.hostBytes = host.bytes;
  if (plan.hostBytes > request_.hardware.hostLimit() && latency_ && choices.size() > 1) {
    overBudget_ = {0, plan.arenaBytes}; // each fits alone
    return plan;
  }
  ASSIGN_OR_RETURN(together, placeAll(choices, host, plan));
  if (overBudget_)
    return plan;
  RETURN_IF_ERROR(checkHost(host));
  RETURN_IF_ERROR(fillDraft(iterations_, host, std::move(together.placed), plan));
  if (latency_)
    latency_->record(plan);
  else
    explain(choices.front(), 0, plan);
  if (const std::string cycle = explainCycle(plan); !cycle.empty())
    absl::StrAppend(&plan.reason, ". ", cycle);
  return plan;
}

absl::StatusOr<Compilation::Together> Compilation::placeAll(const std::vector<Attempt> &choices, const HostLayout &host,
                                                            plan::Plan &plan) {
  Together together;
  for (size_t i = 0; i < choices.size(); ++i) {
    const Candidate &candidate = choices[i].candidate();
    if (std::any_of(together.placed.begin(), together.placed.end(),
                    [&](const auto &placed) { return placed.candidate->samePlacement(candidate); }))
      continue;
    ASSIGN_OR_RETURN(next, placeCandidate(iterations_, candidate, host));
    together.placed.push_back(std::move(next));
    together.choice.push_back(i);
    if (const uint64_t arena = together.placed.back().arenaBytes(); arena > target_.deviceMemory) {
      overBudget_ = {i, arena};
      return together;
    }
  }
  // Each fits alone; homes that are the same in all of them may take more.
  std::vector<PlacedCandidate *> placed;
  placed.reserve(together.placed.size());
  for (PlacedCandidate &each : together.placed)
    placed.push_back(&each);
  plan.arenaBytes = placeHomesTogether(placed);
  if (plan.arenaBytes > target_.deviceMemory)
    overBudget_ = {mostDemanding(choices, together), plan.arenaBytes};
  return together;
}

absl::Status Compilation::checkHost(const HostLayout &host) const {
  if (host.kvBytes > request_.goal.kvHostMemory.value_or(host.kvBytes))
    return kvHostExhausted(*request_.goal.kvHostMemory, host.kvBytes);
  if (host.bytes > request_.hardware.hostLimit())
    return hostExhausted(request_.model, request_.hardware, host.bytes);
  return absl::OkStatus();
}

Draft Compilation::emptyPlan() const {
  Draft plan = emptyDraft(request_, target_, policy_.name);
  if (policy_.allowsForSlowest)
    plan.slowestPermille = prices_.slowestPermille();
  return plan;
}

size_t Compilation::mostDemanding(const std::vector<Attempt> &choices, const Together &together) {
  size_t most = together.choice.front();
  uint64_t bytes = 0;
  for (size_t p = 0; p < together.placed.size(); ++p)
    if (const Attempt &choice = choices[together.choice[p]];
        choice.chosen + 1 < choice.candidates.size() && together.placed[p].arenaBytes() > bytes) {
      most = together.choice[p];
      bytes = together.placed[p].arenaBytes();
    }
  return most;
}

void Compilation::explain(const Attempt &choice, uint32_t placement, plan::Plan &plan) const {
  // The numbers of the largest decode bucket of the chosen placement.
  const plan::Variant *decisive = nullptr;
  for (const plan::Variant &variant : plan.variants)
    if (variant.placement == placement &&
        plan.schedules[variant.schedule].iterationClass == plan::IterationClass::Decode &&
        (decisive == nullptr || plan.schedules[variant.schedule].phase == 0 ||
         variant.predictedNs > decisive->predictedNs)) // of a cycle the slowest
      decisive = &variant;
  if (!decisive)
    return; // no target is without a decode bucket
  std::optional<MemoryNeed> before;
  if (choice.chosen > 0)
    before = family_.need(choice.candidates[choice.chosen - 1]);
  const bool asked = request_.policy.statesPlacement() || !request_.placements.empty();
  const bool policysOwn = policy_.keepsActivations; // states a placement where nobody does
  const std::string fixedBy = asked        ? "as asked for"
                              : policysOwn ? absl::StrCat("as policy ", std::string(policy_.name), " has it")
                                           : "";
  plan.reason = explainChoice(request_.model, target_, fixedBy, choice.candidate(), plan.arenaBytes,
                              choice.chosen > 0 ? &choice.candidates[choice.chosen - 1] : nullptr,
                              before ? before->bytes : 0, *decisive);
  plan.limitingResource = decisive->linkAloneNs > decisive->computeAloneNs ? "link h2d" : "compute";
}

} // namespace headrace::compiler
