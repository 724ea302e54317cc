// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/serve/engine/BatchEngine.h"

namespace headrace::serve {
namespace {

absl::Status refuse(const std::string &message) { return absl::InvalidArgumentError(message); }

absl::Status checkPrompt(const RequestBounds &bounds, const GenerateRequest &request, size_t index) {
  const std::vector<int32_t> &prompt = request.prompts[index];
  const std::string name = absl::StrCat("prompt ", index);
  if (prompt.empty())
    return refuse(absl::StrCat(name, " is empty, expected at least one token id"));
  for (size_t t = 0; t < prompt.size(); ++t)
    if (prompt[t] < 0 || prompt[t] >= bounds.vocab)
      return refuse(absl::StrCat(name, ": token id ", prompt[t], " at position ", t,
                                 " is outside the vocabulary, expected 0 to ", bounds.vocab - 1));
  if (static_cast<int64_t>(prompt.size()) > bounds.context ||
      request.maxNewTokens > bounds.context - static_cast<int64_t>(prompt.size()))
    return refuse(absl::StrCat(name, ": ", prompt.size(), " tokens and ", request.maxNewTokens,
                               " new ones are more than the plan's context of ", bounds.context));
  return absl::OkStatus();
}

} // namespace

absl::Status checkRequest(const RequestBounds &bounds, const GenerateRequest &request) {
  if (request.prompts.empty())
    return refuse("no prompts, expected at least one");
  if (request.maxNewTokens < 1)
    return refuse(absl::StrCat("max new tokens = ", request.maxNewTokens, ", expected at least 1"));
  if (!std::isfinite(request.sampling.temperature) || request.sampling.temperature < 0)
    return refuse(absl::StrCat("temperature = ", request.sampling.temperature, ", expected 0 or more"));
  if (!(request.sampling.topP > 0 && request.sampling.topP <= 1))
    return refuse(absl::StrCat("top-p = ", request.sampling.topP, ", expected more than 0 and at most 1"));
  if (static_cast<int64_t>(request.prompts.size()) > bounds.sequences)
    return refuse(absl::StrCat(request.prompts.size(), " prompts, the plan's batch is ", bounds.sequences));
  for (size_t i = 0; i < request.prompts.size(); ++i)
    RETURN_IF_ERROR(checkPrompt(bounds, request, i));
  return absl::OkStatus();
}

absl::Status checkRequest(const plan::Plan &plan, const GenerateRequest &request, uint32_t placement) {
  int64_t batch = 0;
  for (const plan::Variant &variant : plan.variants)
    batch = std::max(batch, variant.sequences);
  RETURN_IF_ERROR(
      checkRequest({plan.model->vocab, std::min(batch, plan.metaLayout.maxSequences), plan.maxContext}, request));
  int64_t blocks = 0;
  for (const std::vector<int32_t> &prompt : request.prompts) {
    const int64_t tokens = static_cast<int64_t>(prompt.size()) + request.maxNewTokens;
    blocks += (tokens + plan.blockTokens - 1) / plan.blockTokens;
  }
  if (placement != plan::kNone && plan.placements[placement].kvBlocks < plan.kvBlocks &&
      blocks > plan.placements[placement].kvBlocks - 1)
    return refuse(absl::StrCat("the prompts and their new tokens need ", blocks, " KV blocks of ", plan.blockTokens,
                               " tokens, placement '", plan.placements[placement].name, "' has ",
                               plan.placements[placement].kvBlocks - 1));
  if (blocks > plan.kvBlocks - 1)
    return refuse(absl::StrCat("the prompts and their new tokens need ", blocks, " KV blocks of ", plan.blockTokens,
                               " tokens, the plan has ", plan.kvBlocks - 1));
  return absl::OkStatus();
}

} // namespace headrace::serve
