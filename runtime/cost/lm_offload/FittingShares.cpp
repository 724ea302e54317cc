// SPDX-License-Identifier: Apache-2.0
#include "runtime/cost/lm_offload/FittingShares.h"

#include <algorithm>

namespace headrace::cost {

std::optional<model::Percent> sharesWithAway(const OffloadModel &model, const OffloadMachine &machine,
                                             OffloadSetting setting, int64_t away) {
  model::Percent &percent = setting.percent;
  percent.wc = 100 * static_cast<double>(away) / static_cast<double>(model.layers);
  percent.wg = 100 - percent.wc;
  const auto device = [&](double cg) {
    percent.cg = cg;
    percent.cc = 100 - cg;
    return static_cast<double>(offloadBytes(model, setting).device);
  };
  const double memory = static_cast<double>(machine.deviceBytes), none = device(0), all = device(100);
  if (all > memory) {
    if (none > memory)
      return std::nullopt;
    device(std::clamp(100 * (memory - none) / (all - none), 0.0, 100.0));
  }
  if (setting.attention == AttentionPlace::kCpu)
    device(0);
  if (offloadBytes(model, setting).host > machine.hostBytes)
    return std::nullopt;
  return percent;
}

std::optional<model::Percent> fastestShares(const OffloadModel &model, const OffloadMachine &machine,
                                            const FlexGenRuntime &runtime, const OffloadSetting &setting) {
  OffloadSetting mean = setting; // one iteration of decode there
  mean.prompt = setting.prompt + setting.output / 2 - 1;
  mean.output = 2;
  std::optional<model::Percent> best;
  double least = 0;
  for (int64_t away = 0; away <= model.layers; ++away) {
    const std::optional<model::Percent> percent = sharesWithAway(model, machine, setting, away);
    if (!percent)
      continue;
    mean.percent = *percent;
    const auto form = closedForm(model, machine, runtime, mean);
    if (form.ok() && (!best || form->iteration < least)) {
      best = percent;
      least = form->iteration;
    }
  }
  return best;
}

std::optional<int64_t> attendsOnCpuFrom(const OffloadModel &model, const OffloadMachine &machine,
                                        const FlexGenRuntime &runtime, OffloadSetting setting) {
  // None where neither fits.
  const auto onCpu = [&](int64_t prompt) -> std::optional<bool> {
    setting.prompt = prompt;
    std::optional<double> seconds[2];
    for (const AttentionPlace place : {AttentionPlace::kDevice, AttentionPlace::kCpu}) {
      setting.attention = place;
      const std::optional<model::Percent> percent = fastestShares(model, machine, runtime, setting);
      if (!percent)
        continue;
      setting.percent = *percent;
      if (const auto form = closedForm(model, machine, runtime, setting); form.ok())
        seconds[place == AttentionPlace::kCpu] = form->iteration;
    }
    if (!seconds[1])
      return seconds[0] ? std::optional(false) : std::nullopt;
    return !seconds[0] || *seconds[1] < *seconds[0];
  };
  int64_t last = model.longestContext - setting.output; // that memory holds
  for (int64_t none = last + 1, held = 0; none - held > 1;) {
    const int64_t middle = held + (none - held) / 2;
    (onCpu(middle) ? held : none) = middle;
    last = held;
  }
  if (last < 1 || !*onCpu(last))
    return std::nullopt;
  int64_t device = 0, cpu = last;
  while (cpu - device > 1) {
    const int64_t middle = device + (cpu - device) / 2;
    (*onCpu(middle) ? cpu : device) = middle;
  }
  return cpu;
}

} // namespace headrace::cost
