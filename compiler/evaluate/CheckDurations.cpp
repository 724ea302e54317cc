// SPDX-License-Identifier: Apache-2.0
#include "compiler/evaluate/CheckDurations.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Units.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/structure/PlanStructure.h"

namespace headrace::compiler {
namespace {

constexpr double kLongestSeconds = static_cast<double>(plan::kMaxDurationNs) * 1e-9;

struct Figure {
  std::string key, value;
};

// A step takes amount / (rate x efficiency): what makes that long is the efficiency where it is that small.
Figure rateOrEfficiency(Figure rate, std::string_view efficiencyKey, double efficiency) {
  constexpr double kSmall = 0.01;
  return efficiency < kSmall ? Figure{std::string(efficiencyKey), absl::StrCat(efficiency)} : std::move(rate);
}

// The figure of the profile that this step takes longest by.
Figure longestOf(const plan::Plan &plan, const plan::Schedule &schedule, const plan::Step &step) {
  const model::Hardware &h = plan.hardware;
  const bool copy = step.kind == plan::StepKind::Copy;
  if (const double fixed = copy ? h.copyLatency : h.launchOverhead; fixed >= kLongestSeconds / 2)
    return {copy ? "hardware.copy_latency" : "hardware.launch_overhead", model::secondsText(fixed)};
  if (plan::toHost(step.lane) || plan::directToHost(schedule, step))
    return rateOrEfficiency({"hardware.d2h_bandwidth", model::bandwidthText(h.d2hBandwidth)},
                            "hardware.link_efficiency", h.linkEfficiency);
  if (step.linkBytes > 0)
    return rateOrEfficiency({"hardware.h2d_bandwidth", model::bandwidthText(h.h2dBandwidth)},
                            "hardware.link_efficiency", h.linkEfficiency);
  if (static_cast<double>(step.deviceBytes) >= kLongestSeconds / 2 * h.bandwidth() * h.memoryEfficiency)
    return rateOrEfficiency({"hardware.memory_bandwidth", model::bandwidthText(h.memoryBandwidth)},
                            "hardware.memory_efficiency", h.memoryEfficiency);
  return rateOrEfficiency(plan.activationDtype == model::DType::F32
                              ? Figure{"hardware.flops_f32", model::flopsText(h.flopsF32)}
                              : Figure{"hardware.flops_f16", model::flopsText(h.flopsF16)},
                          "hardware.flops_efficiency", h.flopsEfficiency);
}

} // namespace

absl::Status checkDurations(const plan::Plan &plan) {
  const auto check = [&](uint32_t schedule, absl::Span<const uint64_t> durationsNs) -> absl::Status {
    const plan::Schedule &of = plan.schedules[schedule];
    const auto at =
        std::find_if(durationsNs.begin(), durationsNs.end(), [](uint64_t ns) { return ns > plan::kMaxDurationNs; });
    if (at == durationsNs.end())
      return absl::OkStatus();
    const plan::Step &step = of.steps[static_cast<size_t>(at - durationsNs.begin())];
    const auto [key, value] = longestOf(plan, of, step);
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
