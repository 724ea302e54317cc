// SPDX-License-Identifier: Apache-2.0
#include "compiler/evaluate/Evaluate.h"

#include <algorithm>
#include <utility>

#include "compiler/evaluate/GrowCaches.h"
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
  plan.goal.kvEncoding = target.kv;
  plan.goal.allowQuantized = model::AllowQuantized::Nothing;
  plan.policy = request.policy;
  plan.policy.name = std::string(policy);
  if (plan.policy.actRatio) // what was found, where it was to be
    plan.policy.actRatio = target.choice.actRatio;
  plan.activationDtype = target.activation;
  plan.kvEncoding = target.kv;
  plan.blockTokens = target.blockTokens;
  plan.kvBlocks = target.kvBlocks;
  plan.actBlocks = target.actBlocks;
  plan.contextBlocks = target.contextBlocks;
  plan.actRatio = target.choice.actRatio;
  plan.metaLayout = target.meta;
  plan.maxContext = target.context;
  plan.deviceMemory = target.deviceMemory;
  return plan;
}

absl::Status fillDraft(Iterations &iterations, const HostLayout &host, std::vector<PlacedCandidate> placed,
                       Draft &draft) {
  for (const PlacedCandidate &each : placed)
    draft.candidates.push_back(*each.candidate);
  const std::vector<int64_t> blocks = grownBlocks(draft.request, draft.target, host, placed, draft.arenaBytes);
  const int64_t most = blocks.empty() ? 0 : *std::max_element(blocks.begin(), blocks.end());
  if (most <= draft.target.kvBlocks) {
    PlanWriter writer(iterations.layout(), draft.target, draft);
    for (const PlacedCandidate &each : placed)
      addPlaced(writer, iterations, each);
    closePlan(iterations.prices(), writer);
    return absl::OkStatus();
  }
  draft.grown = true;
  draft.kvBlocks = draft.target.kvBlocks = most;
  draft.target.kvBytes = model::alignUp(static_cast<uint64_t>(most) * draft.target.kvBlockBytes);
  HostLayout grownHost = host;
  grownHost.kv.blocks = most;
  grownHost.kv.interleaved = true;
  PlanWriter writer(iterations.layout(), draft.target, draft);
  Iterations grownIterations(draft.request, draft.target, iterations.layout(), iterations.prices());
  for (size_t p = 0; p < placed.size(); ++p) {
    draft.candidates[p].kvBlocks = blocks[p];
    ASSIGN_OR_RETURN(larger, placeCandidate(grownIterations, draft.candidates[p], grownHost));
    larger.homeAddress = std::move(placed[p].homeAddress); // homes stay where they are
    addPlaced(writer, grownIterations, larger);
  }
  closePlan(iterations.prices(), writer);
  return absl::OkStatus();
}

absl::StatusOr<Draft> evaluate(Iterations &iterations, const std::vector<Candidate> &placements,
                               std::string_view policy, uint64_t deviceMemory) {
  Draft draft = emptyDraft(iterations.request(), iterations.target(), policy);
  std::vector<const Candidate *> candidates;
  std::vector<size_t> numbers; // among the placements
  for (size_t p = 0; p < placements.size(); ++p)
    if (std::none_of(candidates.begin(), candidates.end(),
                     [&](const Candidate *of) { return of->samePlacement(placements[p]); })) {
      candidates.push_back(&placements[p]);
      numbers.push_back(p);
    }
  const HostLayout host = layOutHost(candidates, iterations.layout(), iterations.target(), iterations.request().model);
  draft.hostBytes = host.bytes;
  draft.metaOnHost = host.staging.value_or(plan::kNowhere);
  draft.hostKvBytes = host.kvBytes;
  std::vector<PlacedCandidate> placed;
  for (const Candidate *candidate : candidates) {
    ASSIGN_OR_RETURN(next, placeCandidate(iterations, *candidate, host));
    placed.push_back(std::move(next));
    if (const uint64_t bytes = placed.back().arenaBytes(); bytes > deviceMemory) {
      draft.over = {numbers[placed.size() - 1], bytes};
      return draft;
    }
  }
  std::vector<PlacedCandidate *> together;
  together.reserve(placed.size());
  for (PlacedCandidate &each : placed)
    together.push_back(&each);
  draft.arenaBytes = placeHomesTogether(together);
  if (draft.arenaBytes > deviceMemory) { // where homes are the same in all of them they may take more
    draft.over = {0, draft.arenaBytes};
    return draft;
  }
  RETURN_IF_ERROR(fillDraft(iterations, host, std::move(placed), draft));
  return draft;
}

absl::StatusOr<Draft> evaluate(Iterations &iterations, const std::vector<Candidate> &placements) {
  return evaluate(iterations, placements, iterations.request().policy.name, UINT64_MAX);
}

} // namespace headrace::compiler
