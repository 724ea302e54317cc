// SPDX-License-Identifier: Apache-2.0
#include "compiler/evaluate/Evaluate.h"

#include "runtime/base/StatusMacros.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {
namespace {

constexpr char kCompilerVersion[] = "headrace 0.1.0";

} // namespace

Draft emptyDraft(const CompileRequest &request, const Target &target, std::string_view policy) {
  Draft plan;
  plan.request = request;
  plan.target = target;
  plan.compilerVersion = kCompilerVersion;
  plan.model = request.model;
  plan.modelHash = request.modelHash;
  plan.modelPath = request.modelPath;
  plan.hardware = request.hardware;
  if (plan.hardware.threads == 1) // then there is nothing to limit
    plan.hardware.memoryBandwidthLimit = 0;
  plan.goal = request.goal;
  plan.goal.deviceMemory = target.deviceMemory;
  plan.goal.batch = target.sequences();
  plan.goal.context = target.context;
  plan.goal.miniBatches = target.choice.miniBatches;
  plan.goal.autoMiniBatches = false;
  plan.goal.kvTokens = target.kvTokens * target.choice.miniBatches;
  plan.miniBatches = static_cast<uint32_t>(target.choice.miniBatches);
  plan.goal.kvDtype = target.kv;
  plan.policy = request.policy;
  plan.policy.name = std::string(policy);
  if (plan.policy.actShare) // what was found, where it was to be
    plan.policy.actShare = target.choice.act;
  plan.activationDtype = target.activation;
  plan.kvDtype = target.kv;
  plan.blockTokens = target.blockTokens;
  plan.kvBlocks = target.kvBlocks;
  plan.actBlocks = target.actBlocks;
  plan.contextBlocks = target.contextBlocks;
  plan.actShare = target.choice.act;
  plan.metaLayout = target.meta;
  plan.maxContext = target.context;
  plan.deviceMemory = target.deviceMemory;
  return plan;
}

void fillDraft(const CandidateEvaluator &evaluator, const HostLayout &host,
               const std::vector<CandidateEvaluator::Placed> &placed, Draft &draft) {
  PlanWriter writer(evaluator.iterations().layout(), draft.target, draft);
  for (const CandidateEvaluator::Placed &each : placed) {
    evaluator.addTo(writer, each);
    draft.candidates.push_back(*each.candidate);
  }
  closePlan(draft.request, draft.target, host, evaluator.iterations().prices(), writer);
}

absl::StatusOr<Draft> evaluate(Iterations &iterations, const std::vector<Candidate> &placements) {
  const CandidateEvaluator evaluator(iterations);
  Draft draft = emptyDraft(iterations.request(), iterations.target(), iterations.request().policy.name);
  std::vector<const Candidate *> candidates;
  for (const Candidate &candidate : placements)
    candidates.push_back(&candidate);
  const HostLayout host = layOutHost(candidates, iterations.layout(), iterations.target(), iterations.request().model);
  draft.hostBytes = host.bytes;
  std::vector<CandidateEvaluator::Placed> placed;
  for (const Candidate *candidate : candidates) {
    ASSIGN_OR_RETURN(next, evaluator.place(*candidate, host));
    placed.push_back(std::move(next));
  }
  std::vector<CandidateEvaluator::Placed *> together;
  for (CandidateEvaluator::Placed &each : placed)
    together.push_back(&each);
  draft.arenaBytes = CandidateEvaluator::placeHomes(together);
  fillDraft(evaluator, host, placed, draft);
  return draft;
}

} // namespace headrace::compiler
