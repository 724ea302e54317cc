// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/RequestTimes.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "runtime/base/StatusMacros.h"
#include "runtime/core/Runtime.h"
#include "runtime/plan/value/PlacementTable.h"
#include "runtime/serve/engine/BatchEngine.h"
#include "runtime/sim/SimDevice.h"

namespace headrace::tools {

using std::chrono::nanoseconds;

absl::StatusOr<RequestTime> requestTime(const plan::Plan &plan, int64_t prompt, int64_t newTokens) {
  const auto placementOf = [&plan](const plan::IterationSize &size) {
    return plan::chosenPlacement(plan, size).value_or(0);
  };
  const std::unique_ptr<core::Device> device = sim::makeSimDevice();
  core::LoadOptions loading;
  loading.placement = placementOf({prompt, 1, prompt});
  ASSIGN_OR_RETURN(runtime,
                   core::Runtime::load(plan, *device, {.pricing = core::Pricing::Rows}, /*weights=*/nullptr, loading));
  serve::GenerateRequest request;
  request.prompts = {std::vector<int32_t>(static_cast<size_t>(prompt), 0)};
  request.maxNewTokens = newTokens;
  request.placementOf = placementOf;
  RETURN_IF_ERROR(serve::generate(*runtime, request).status());
  ASSIGN_OR_RETURN(result, serve::generate(*runtime, request));
  return RequestTime{prompt, newTokens, result.prefillIterations, nanoseconds(result.firstTokenNs[0]), result.tpotMs};
}

absl::StatusOr<std::vector<RequestTime>> requestTimes(const plan::Plan &plan) {
  constexpr int64_t kShort = 512, kNewTokens = 8;
  const int64_t newTokens = std::min(kNewTokens, std::max<int64_t>(1, plan.maxContext / 2));
  const int64_t longest = plan.maxContext - newTokens;
  std::vector<RequestTime> times;
  for (int64_t prompt = kShort; longest > 0; prompt *= 8) {
    ASSIGN_OR_RETURN(time, requestTime(plan, std::min(prompt, longest), newTokens));
    times.push_back(time);
    if (prompt >= longest)
      break;
  }
  return times;
}

} // namespace headrace::tools
