// SPDX-License-Identifier: Apache-2.0
#include "compiler/Compile.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "compiler/CompileInOrder.h"
#include "compiler/CompileSearched.h"
#include "compiler/CompileStated.h"
#include "compiler/CompileThroughput.h"
#include "compiler/CompileWithKv.h"
#include "compiler/choice/AmountText.h"
#include "compiler/choice/Packing.h"
#include "compiler/choice/Resolve.h"
#include "compiler/emit/CompileDraft.h"
#include "compiler/search/Explain.h"
#include "compiler/search/generators/Generators.h"
#include "compiler/search/generators/MechanismsInUse.h"
#include "kernels/Kernels.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/cost/CostModel.h"
#include "runtime/model/KvEncoding.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"

namespace headrace::compiler {
namespace {

// What is best to a policy, or what is stated.
absl::StatusOr<Draft> choose(const CompileRequest &request, const Generator &policy) {
  if (!request.placements.empty())
    return compileStated(request, askedChoice(request));
  if (policy.order != Order::LeastAim)
    return compileInOrder(request, policy);
  return request.policy.prefer == model::Prefer::Throughput ? compileMostTokens(request, policy)
                                                            : compileSearched(request, policy);
}

// The first of what a policy makes of a request that memory holds, which is then the request.
absl::StatusOr<Draft> chooseFirst(CompileRequest &request, const Generator &policy) {
  if (policy.requests == nullptr || !request.placements.empty())
    return choose(request, policy);
  ASSIGN_OR_RETURN(requests, policy.requests(request));
  absl::StatusOr<Draft> draft;
  for (const CompileRequest &one : requests) {
    RETURN_IF_ERROR(model::checkBeside(mechanismsInUse(one, policy)));
    draft = choose(one, policy);
    if (lacksDeviceMemory(draft.status()))
      continue;
    if (draft.ok())
      request = one;
    break;
  }
  return draft;
}

// "Keys and values are in q4: 72 bytes of a head of 128, 0.281 of 16 bits".
std::string explainPackedKv(const plan::Plan &plan) {
  const uint64_t head = plan.kvEncoding.bytes(1, plan.model->headDim);
  return absl::StrFormat("Keys and values are in %s: %d bytes of a head of %d, %.3f of 16 bits",
                         model::kvEncodingText(plan.kvEncoding), head, plan.model->headDim,
                         static_cast<double>(head) / static_cast<double>(2 * plan.model->headDim));
}

// "Weights are in q4: 680.30 MiB, in bf16 2.05 GiB; each of 4 passes unpacks them in 12.000 ms of compute", one pass a
// mini-batch.
std::string explainPackedWeights(const Draft &draft) {
  const model::ModelSpec &spec = draft.model;
  model::ModelSpec whole = spec;
  whole.encodings = {};
  const cost::Roofline roofline(spec, draft.hardware, draft.activationDtype, draft.kvEncoding);
  double seconds = 0;
  for (const model::UnitRole unit :
       {model::UnitRole::Qkv, model::UnitRole::Out, model::UnitRole::Up, model::UnitRole::Down, model::UnitRole::Head})
    seconds += static_cast<double>(unit == model::UnitRole::Head ? 1 : spec.layers) *
               roofline.unpackSeconds({kernels::Op::Linear, unit}, {.tokens = 1, .sampled = 1});
  return absl::StrCat("Weights are in ", model::weightEncodingText(spec), ": ",
                      bytesText(model::layoutWeights(spec).totalBytes()), ", in ",
                      std::string(model::dtypeName(spec.dtype)), " ",
                      bytesText(model::layoutWeights(whole).totalBytes()), "; ",
                      draft.miniBatches > 1 ? absl::StrCat("each of ", draft.miniBatches, " passes unpacks them in ")
                                            : "a pass unpacks them in ",
                      msText(cost::wholeNs(seconds * 1e9)), " of compute");
}

// With what KV takes of the device, where that is not said yet, and what is packed.
absl::StatusOr<plan::Plan> compileExplained(Draft draft, const Generator &policy) {
  if (!draft.goal.expansion && !policy.swapsLayers && plan::kvBytesByHome(draft, 0).host > 0)
    absl::StrAppend(&draft.reason, ". ", explainKvOnDevice(draft));
  if (draft.model->encodings.any())
    absl::StrAppend(&draft.reason, ". ", explainPackedWeights(draft));
  if (draft.kvEncoding.packed())
    absl::StrAppend(&draft.reason, ". ", explainPackedKv(draft));
  return compileDraft(draft);
}

// What a stage has not stays where it is not.
absl::StatusOr<CompileRequest> withoutAbsent(const CompileRequest &asked) {
  CompileRequest request = asked;
  const auto stays = [](model::AutoOnOff &key, const char *name, bool has) {
    if (!has && key == model::AutoOnOff::On)
      return absl::InvalidArgumentError(
          absl::StrCat("policy.offload_", name, " = \"on\": expected \"auto\" or \"off\" of a stage without ", name));
    key = has ? key : model::AutoOnOff::Off;
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(stays(request.policy.offloadEmbedding, "embedding", request.model->embeds()));
  RETURN_IF_ERROR(stays(request.policy.offloadHead, "head", request.model->hasHead()));
  return request;
}

} // namespace

absl::StatusOr<plan::Plan> compile(const CompileRequest &stated) {
  RETURN_IF_ERROR(model::validate(stated.model, "model"));
  RETURN_IF_ERROR(model::validate(stated.hardware, "hardware"));
  ASSIGN_OR_RETURN(asked, withoutAbsent(stated));
  ASSIGN_OR_RETURN(policy, policyFor(asked.policy, asked.goal));
  RETURN_IF_ERROR(checkPolicy(asked.policy, asked.goal));
  RETURN_IF_ERROR(model::checkBeside(mechanismsInUse(asked, *policy)));
  RETURN_IF_ERROR(checkAllowed(asked));
  if (asked.goal.autoKvTokens)
    return compileWithKvThatFits(asked, compile);
  CompileRequest request = asked;
  if (policy->keepsActivations) {
    if (!request.policy.actRatio)
      request.policy.actRatio = model::kAutoActRatio;
    if (!request.goal.kvDeviceMemory && !request.goal.expansion && !request.policy.kvPlaces)
      request.goal.kvDeviceMemory = 0;
  }
  if (policy->order == Order::LeastAim && request.placements.empty() && asked.policy.name == "auto" &&
      !asked.policy.actRatio &&
      asked.policy.actHome == model::ActHome::Auto) // whoever runs it may want swap space, or hand over
    request.policy.actRatio = model::ActRatio();
  ASSIGN_OR_RETURN(draft, chooseFirst(request, *policy));
  if (request.policy.prefer == model::Prefer::Throughput) { // whose batch is found now
    request.goal.batch = draft.goal.batch;
    request.policy.prefer = draft.policy.prefer;
  }
  const int64_t chunk = draft.target.choice.largestChunk;
  absl::StatusOr<plan::Plan> plan = compileExplained(std::move(draft), *policy);
  if (!absl::IsUnimplemented(plan.status()) || chunk == kLargestChunk)
    return plan;
  // For a larger chunk weights leave, and caches fill what they had: they may span more than kernels of the device
  // take.
  ASSIGN_OR_RETURN(usual, resolve(request));
  request.buckets.newTokens = usual.choice.buckets.newTokens;
  ASSIGN_OR_RETURN(again, choose(request, *policy));
  return compileExplained(std::move(again), *policy);
}

} // namespace headrace::compiler
