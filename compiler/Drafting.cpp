// SPDX-License-Identifier: Apache-2.0
#include "compiler/Drafting.h"

#include "absl/strings/str_cat.h"
#include "compiler/choice/CheckStated.h"
#include "compiler/choice/Packing.h"
#include "compiler/choice/Resolve.h"
#include "compiler/evaluate/CheckDurations.h"
#include "compiler/evaluate/Evaluate.h"
#include "compiler/search/BucketChoices.h"
#include "compiler/search/Explain.h"
#include "compiler/search/ExplainObjective.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/value/LimitedBy.h"

namespace headrace::compiler {

absl::StatusOr<std::unique_ptr<Drafting>> Drafting::of(const CompileRequest &asked, const Generator &policy,
                                                       const Choice &choice) {
  CompileRequest request = asChosen(asked, choice);
  RETURN_IF_ERROR(checkStated(request, choice, !policy.swapsLayers));
  ASSIGN_OR_RETURN(target, resolve(request, choice, policy.swapsLayers));
  return std::make_unique<Drafting>(std::move(request), policy, std::move(target));
}

Drafting::Drafting(CompileRequest request, const Generator &policy, Target target)
    : request_(std::move(request)), policy_(policy), target_(std::move(target)),
      layout_(model::layoutWeights(request_.model)),
      prices_(request_.costs ? *request_.costs
                             : roofline_.emplace(request_.model, request_.hardware, target_.activation, target_.kv)),
      iterations_(request_, target_, layout_, prices_),
      family_(request_.model, layout_, target_, iterations_.memoryUses(),
              [this](const Candidate &candidate) { return packedBytes(candidate); }),
      player_(iterations_),
      steps_(iterations_.pricedSteps()), inputs_{request_, target_, layout_, family_, steps_, prices_} {}

uint64_t Drafting::packedBytes(const Candidate &candidate) {
  const auto [it, fresh] = packed_.try_emplace(toText(candidate), UINT64_MAX);
  if (!fresh)
    return it->second;
  const HostLayout host = layOutHost({&candidate}, layout_, target_, request_.model, /*all=*/true);
  const absl::StatusOr<PlacedCandidate> placed = placeCandidate(iterations_, candidate, host);
  if (placed.ok())
    it->second = placed->arenaBytes();
  return it->second;
}

absl::StatusOr<Draft> Drafting::attempt(const std::vector<Candidate> &placements) {
  ASSIGN_OR_RETURN(draft, evaluate(iterations_, placements, policy_.name, target_.deviceMemory));
  if (policy_.allowsForSlowest)
    draft.slowestPermille = prices_.slowestPermille();
  return draft;
}

absl::Status Drafting::check(const Draft &draft, const std::vector<Candidate> &placements) const {
  const model::Hardware &hardware = request_.hardware;
  if (draft.over) {
    const Candidate &candidate = placements[draft.over->placement];
    MemoryNeed need = family_.need(candidate);
    need.transients = need.transients + draft.over->bytes - need.bytes;
    need.bytes = draft.over->bytes;
    return deviceMemoryExhausted(request_.model, hardware, target_, request_.policy, candidate, need,
                                 family_.hostBytes(candidate));
  }
  if (draft.hostKvBytes > request_.goal.kvHostMemory.value_or(draft.hostKvBytes))
    return kvHostExhausted(*request_.goal.kvHostMemory, draft.hostKvBytes);
  if (draft.hostBytes > hardware.hostLimit())
    return hostExhausted(request_.model, hardware, draft.hostBytes);
  return checkDurations(draft);
}

absl::StatusOr<Draft> Drafting::draft(const std::vector<Candidate> &placements) {
  ASSIGN_OR_RETURN(draft, attempt(placements));
  RETURN_IF_ERROR(check(draft, placements));
  return draft;
}

void Drafting::explain(Draft &draft, size_t placement, const std::string &fixed, const Candidate *before) const {
  // The numbers of the largest decode bucket, of a cycle the slowest.
  const plan::Variant *decisive = nullptr;
  for (const plan::Variant &variant : draft.variants) {
    const plan::Schedule &schedule = draft.schedules[variant.schedule];
    if (variant.placement == placement && schedule.iterationClass == plan::IterationClass::Decode &&
        (decisive == nullptr || schedule.phase == 0 || variant.predictedNs > decisive->predictedNs))
      decisive = &variant;
  }
  if (!decisive)
    return; // no target is without a decode bucket
  draft.reason = explainChoice(request_.model, target_, fixed, draft.candidates[placement], draft.arenaBytes, before,
                               before != nullptr ? family_.need(*before).bytes : 0, *decisive);
  draft.limitingResource = plan::limitedBy(draft, *decisive);
}

absl::Status Drafting::explainByBucket(Draft &draft) {
  ASSIGN_OR_RETURN(buckets, objectivesOf(player_, iterations_));
  const plan::Variant &decisive = recordChoices(buckets, std::vector<size_t>(buckets.size(), 0), draft);
  draft.reason = explainObjective(policy_, draft.candidates.front(), {.placements = 1, .played = 1},
                                  buckets[decisiveOf(buckets)], decisive, draft, std::nullopt, nullptr);
  return absl::OkStatus();
}

std::string fixedBy(const CompileRequest &request, const Generator &policy) {
  if (request.policy.statesPlacement() || !request.placements.empty())
    return "as asked for";
  // It states a placement where nobody does.
  return policy.keepsActivations ? absl::StrCat("as policy ", std::string(policy.name), " has it") : "";
}

} // namespace headrace::compiler
