// SPDX-License-Identifier: Apache-2.0
#include "runtime/cost/lm_offload/Decisions.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "runtime/base/Text.h"

namespace headrace::cost {

absl::StatusOr<Decisions> decide(const OffloadModel &model, const OffloadMachine &machine,
                                 const FlexGenRuntime &runtime, absl::Span<const OffloadSetting> settings) {
  if (settings.empty())
    return absl::InvalidArgumentError("settings: none: expected at least 1");
  Decisions decisions;
  std::optional<size_t> best;
  const auto offer = [&](std::optional<size_t> &place, size_t i) {
    if (!place || decisions.forms[i]->tokensPerSecond > decisions.forms[*place]->tokensPerSecond)
      place = i;
  };
  for (size_t i = 0; i < settings.size(); ++i) {
    absl::StatusOr<ClosedForm> form = closedForm(model, machine, runtime, settings[i]);
    if (!form.ok())
      return form.status();
    decisions.forms.emplace_back();
    if (!checkFits(model, machine, settings[i]).ok())
      continue;
    decisions.forms.back() = *std::move(form);
    offer(best, i);
    offer(settings[i].weights ? decisions.packWeights.yes : decisions.packWeights.no, i);
    offer(settings[i].kv ? decisions.packKv.yes : decisions.packKv.no, i);
    const bool onCpu = settings[i].attention == AttentionPlace::kCpu;
    offer(onCpu ? decisions.attendOnCpu.yes : decisions.attendOnCpu.no, i);
  }
  if (!best)
    return checkFits(model, machine, settings.front());
  decisions.best = *best;
  return decisions;
}

std::string decisionsText(const Decisions &decisions) {
  std::string text;
  for (const auto &[what, decision] : {std::pair<const char *, const Decision &>{"pack weights", decisions.packWeights},
                                       {"pack KV", decisions.packKv},
                                       {"attend on the CPU", decisions.attendOnCpu}}) {
    const auto side = [&](const std::optional<size_t> &i) -> std::string {
      if (!i)
        return "nothing fits";
      const ClosedForm &form = *decisions.forms[*i];
      return absl::StrFormat("%.1f tokens/s (%s)", form.tokensPerSecond,
                             std::string(limitingLaneName(form.decodeLayer.limit)));
    };
    const bool yes = decision.yes == decisions.best;
    text += model::cat(what, ": ", yes ? "yes, " : "no, ", side(yes ? decision.yes : decision.no),
                       yes ? "; without " : "; with it ", side(yes ? decision.no : decision.yes), "\n");
  }
  return text;
}

} // namespace headrace::cost
