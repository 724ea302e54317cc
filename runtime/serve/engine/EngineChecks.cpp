// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/job/Capabilities.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/value/PlacementTable.h"
#include "runtime/serve/engine/BatchEngine.h"
#include "runtime/serve/engine/Engine.h"

namespace headrace::serve {
namespace {

absl::Status refuse(const std::string &message) { return absl::InvalidArgumentError(message); }

absl::Status checkPrompt(const RequestBounds &bounds, const std::string &name, absl::Span<const int32_t> prompt,
                         int64_t maxNewTokens) {
  if (prompt.empty())
    return refuse(absl::StrCat(name, " is empty, expected at least one token id"));
  for (size_t t = 0; t < prompt.size(); ++t)
    if (prompt[t] < 0 || prompt[t] >= bounds.vocab)
      return refuse(absl::StrCat(name, ": token id ", prompt[t], " at position ", t,
                                 " is outside the vocabulary, expected 0 to ", bounds.vocab - 1));
  if (static_cast<int64_t>(prompt.size()) > bounds.context ||
      maxNewTokens > bounds.context - static_cast<int64_t>(prompt.size()))
    return refuse(absl::StrCat(name, ": ", prompt.size(), " tokens and ", maxNewTokens,
                               " new ones are more than the plan's context of ", bounds.context));
  return absl::OkStatus();
}

absl::Status checkSampling(int64_t maxNewTokens, const Sampling &sampling) {
  if (maxNewTokens < 1)
    return refuse(absl::StrCat("max new tokens = ", maxNewTokens, ", expected at least 1"));
  if (!std::isfinite(sampling.temperature) || sampling.temperature < 0)
    return refuse(absl::StrCat("temperature = ", sampling.temperature, ", expected 0 or more"));
  if (!(sampling.topP > 0 && sampling.topP <= 1))
    return refuse(absl::StrCat("top-p = ", sampling.topP, ", expected more than 0 and at most 1"));
  if (sampling.topK < 0)
    return refuse(absl::StrCat("top-k = ", sampling.topK, ", expected 0 for all, or more"));
  if (!(sampling.minP >= 0 && sampling.minP <= 1))
    return refuse(absl::StrCat("min-p = ", sampling.minP, ", expected 0 to 1"));
  if (!(sampling.repetitionPenalty > 0 && std::isfinite(sampling.repetitionPenalty)))
    return refuse(absl::StrCat("repetition penalty = ", sampling.repetitionPenalty, ", expected more than 0"));
  for (const auto &[name, penalty] :
       {std::pair("presence", sampling.presencePenalty), std::pair("frequency", sampling.frequencyPenalty)})
    if (!(penalty >= -2 && penalty <= 2))
      return refuse(absl::StrCat(name, " penalty = ", penalty, ", expected -2 to 2"));
  return absl::OkStatus();
}

int64_t blocksFor(const plan::Plan &plan, absl::Span<const int32_t> prompt, int64_t maxNewTokens) {
  return (static_cast<int64_t>(prompt.size()) + maxNewTokens + plan.blockTokens - 1) / plan.blockTokens;
}

// What one device has, and stages have not.
absl::Status checkStaged(const EngineOptions &options) {
  for (const auto &[what, given] : {std::pair("static batches", options.batching == Batching::Static),
                                    {"swap space", options.swapBytes > 0},
                                    {"preemption = swap", options.preemption == Preemption::Swap},
                                    {"placements that the caller chooses", options.placementOf != nullptr},
                                    {"a callback for launches", options.onLaunch != nullptr}})
    if (given)
      return refuse(absl::StrCat(what, " beside stages: expected none"));
  return absl::OkStatus();
}

} // namespace

absl::Status checkEngineOptions(const Executor &on, const EngineOptions &options) {
  if (on.isStaged())
    RETURN_IF_ERROR(checkStaged(options));
  const plan::Plan &plan = on.plan();
  const EngineBounds bounds = engineBounds(plan);
  const int64_t seqs = options.maxNumSeqs == 0 ? bounds.maxNumSeqs : options.maxNumSeqs;
  const int64_t tokens = options.maxNumBatchedTokens, ofOne = ofOneMiniBatch(plan, seqs);
  if (seqs < 1 || seqs > bounds.maxNumSeqs)
    return refuse(absl::StrCat("max_num_seqs = ", seqs, ", expected 1 to the plan's batch of ", bounds.maxNumSeqs));
  if (tokens != 0 && (tokens < ofOne || tokens > bounds.maxNumBatchedTokens))
    return refuse(absl::StrCat("max_num_batched_tokens = ", tokens, ", expected max_num_seqs = ", ofOne,
                               plan.miniBatches == 1 ? "" : " of a mini-batch",
                               " to the plan's largest mixed bucket of ", bounds.maxNumBatchedTokens));
  if (!(options.watermark >= 0 && options.watermark < 1))
    return refuse(absl::StrCat("watermark = ", options.watermark, ", expected 0 or more and less than 1"));
  if (const uint64_t slot = plan::movedBlockBytes(plan);
      (options.preemption == Preemption::Swap || (options.preemption == Preemption::Auto && options.swapBytes > 0)) &&
      options.swapBytes < slot)
    return refuse(absl::StrCat("swap space = ", options.swapBytes, " bytes, expected at least ", slot,
                               ", a KV block of all layers"));
  if (options.preemption == Preemption::Swap && plan.actBlocks > 0)
    return refuse(model::cat("preemption = swap beside activation blocks of the plan: expected recompute: ",
                             model::whyNotBeside(model::Mechanism::ActBlocks, model::Mechanism::SwapSpace)));
  if (options.depth < 1 || options.depth > 2)
    return refuse(absl::StrCat("depth = ", options.depth, ", expected 1 or 2 iterations in flight"));
  return absl::OkStatus();
}

absl::Status checkPrompts(const RequestBounds &bounds, const GenerateRequest &request) {
  if (request.prompts.empty())
    return refuse("no prompts, expected at least one");
  RETURN_IF_ERROR(checkSampling(request.maxNewTokens, request.sampling));
  for (size_t i = 0; i < request.prompts.size(); ++i)
    RETURN_IF_ERROR(checkPrompt(bounds, absl::StrCat("prompt ", i), request.prompts[i], request.maxNewTokens));
  return absl::OkStatus();
}

absl::Status checkPrompts(const plan::Plan &plan, const GenerateRequest &request, uint32_t placement) {
  const int64_t batch = engineBounds(plan).maxNumSeqs;
  RETURN_IF_ERROR(checkPrompts({plan.model->vocab, batch, plan.maxContext}, request));
  const bool fewer = placement != plan::kNone && plan.placements[placement].kvBlocks < plan.kvBlocks;
  const int64_t most = fewer ? plan.placements[placement].kvBlocks - 1 : plan.mostContextBlocks();
  for (size_t i = 0; i < request.prompts.size(); ++i)
    if (const int64_t blocks = blocksFor(plan, request.prompts[i], request.maxNewTokens); blocks > most)
      return refuse(absl::StrCat(
          "prompt ", i, " and its new tokens need ", blocks, " KV blocks of ", plan.blockTokens, " tokens, ",
          fewer ? absl::StrCat("placement '", plan.placements[placement].name, "' has ") : "the plan has ", most));
  return absl::OkStatus();
}

absl::Status checkRequest(const plan::Plan &plan, const GenerateRequest &request) {
  const int64_t batch = engineBounds(plan).maxNumSeqs;
  RETURN_IF_ERROR(checkPrompts({plan.model->vocab, batch, plan.maxContext}, request));
  if (static_cast<int64_t>(request.prompts.size()) > batch)
    return refuse(absl::StrCat(request.prompts.size(), " prompts, the plan's batch is ", batch));
  int64_t blocks = 0;
  for (const std::vector<int32_t> &prompt : request.prompts)
    blocks += blocksFor(plan, prompt, request.maxNewTokens);
  if (const int64_t most = plan.miniBatches * plan.mostContextBlocks(); blocks > most)
    return refuse(absl::StrCat("the prompts and their new tokens need ", blocks, " KV blocks of ", plan.blockTokens,
                               " tokens, the plan has ", most));
  return absl::OkStatus();
}

absl::Status checkRequest(const plan::Plan &plan, const EngineRequest &request) {
  RETURN_IF_ERROR(checkSampling(request.maxNewTokens, request.sampling));
  RETURN_IF_ERROR(checkPrompt({.vocab = plan.model->vocab, .sequences = 1, .context = plan.maxContext}, "the prompt",
                              request.prompt, request.maxNewTokens));
  if (const int64_t blocks = blocksFor(plan, request.prompt, request.maxNewTokens); blocks > plan.mostContextBlocks())
    return refuse(absl::StrCat("the prompt and its new tokens need ", blocks, " KV blocks of ", plan.blockTokens,
                               " tokens, the plan has ", plan.mostContextBlocks(),
                               plan.miniBatches == 1 ? "" : " for each mini-batch"));
  return absl::OkStatus();
}

} // namespace headrace::serve
