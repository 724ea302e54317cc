// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/model/ModelSpec.h"
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

} // namespace

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
