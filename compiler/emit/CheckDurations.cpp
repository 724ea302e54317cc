// SPDX-License-Identifier: Apache-2.0
#include "compiler/emit/CheckDurations.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/cost/CostModel.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {

absl::Status checkDurations(const plan::Plan &plan) {
  const model::Hardware &h = plan.hardware;
  constexpr double kLongestSeconds = static_cast<double>(cost::kLongestStepNs) * 1e-9;
  const auto check = [&](uint32_t schedule, absl::Span<const uint64_t> durationsNs) -> absl::Status {
    const plan::Schedule &of = plan.schedules[schedule];
    const auto at =
        std::find_if(durationsNs.begin(), durationsNs.end(), [](uint64_t ns) { return ns >= cost::kLongestStepNs; });
    if (at == durationsNs.end())
      return absl::OkStatus();
    const plan::Step &step = of.steps[static_cast<size_t>(at - durationsNs.begin())];
    const bool memory = static_cast<double>(step.deviceBytes) >= kLongestSeconds * h.bandwidth();
    const auto [key, value] =
        plan::toHost(step.lane) || plan::directToHost(of, step)
            ? std::pair("hardware.d2h_bandwidth", model::bandwidthText(h.d2hBandwidth))
        : step.linkBytes > 0 ? std::pair("hardware.h2d_bandwidth", model::bandwidthText(h.h2dBandwidth))
        : memory             ? std::pair("hardware.memory_bandwidth", model::bandwidthText(h.memoryBandwidth))
        : plan.activationDtype == model::DType::F32 ? std::pair("hardware.flops_f32", model::flopsText(h.flopsF32))
                                                    : std::pair("hardware.flops_f16", model::flopsText(h.flopsF16));
    return absl::InvalidArgumentError(
        absl::StrCat(key, " = ", value, ": expected one by which every step takes less than ", kLongestSeconds, " s"));
  };
  for (const plan::Variant &variant : plan.variants)
    RETURN_IF_ERROR(check(variant.schedule, variant.durationsNs));
  for (const plan::Transition &transition : plan.transitions)
    RETURN_IF_ERROR(check(transition.schedule, transition.durationsNs));
  return absl::OkStatus();
}

} // namespace headrace::compiler
