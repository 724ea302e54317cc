// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/SamplingOf.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "runtime/base/Text.h"
#include "tools/commands/InputErrors.h"

namespace headrace::tools {

absl::Status checkSamplingFlags(const SamplingFlags &flags) {
  if (flags.temperature.value_or(0) > 0)
    return absl::OkStatus();
  constexpr const char *kExpected =
      "--temperature above 0 beside it: at 0 the likeliest token is taken, whatever its share";
  if (flags.topK)
    return badNumber("--top-k", *flags.topK, kExpected);
  for (const auto &[flag, value] : {std::pair("--top-p", flags.topP), std::pair("--min-p", flags.minP)})
    if (value)
      return badNumber(flag, *value, kExpected);
  return absl::OkStatus();
}

serve::Sampling samplingOf(const SamplingFlags &flags, uint64_t seed) {
  const auto number = [](const std::optional<double> &value, float otherwise) {
    return value ? static_cast<float>(*value) : otherwise;
  };
  return {.temperature = number(flags.temperature, 0),
          .topP = number(flags.topP, 1),
          .seed = seed,
          .topK = std::max<int64_t>(flags.topK.value_or(0), 0),
          .minP = number(flags.minP, 0),
          .repetitionPenalty = number(flags.repetitionPenalty, 1),
          .presencePenalty = number(flags.presencePenalty, 0),
          .frequencyPenalty = number(flags.frequencyPenalty, 0)};
}

SamplingFlags withDefaults(SamplingFlags flags, const model::GenerationConfig &defaults) {
  const auto take = [](auto &flag, const auto &byDefault) {
    if (!flag)
      flag = byDefault;
  };
  take(flags.temperature, defaults.temperature);
  take(flags.repetitionPenalty, defaults.repetitionPenalty);
  if (flags.temperature.value_or(0) > 0) {
    take(flags.topK, defaults.topK);
    take(flags.topP, defaults.topP);
    take(flags.minP, defaults.minP);
  }
  return flags;
}

std::string defaultsTaken(const SamplingFlags &flags, const SamplingFlags &withDefaults) {
  std::vector<std::string> taken;
  const auto tell = [&](const char *name, const auto &flag, const auto &now) {
    if (!flag && now)
      taken.push_back(model::cat(name, " ", *now));
  };
  tell("temperature", flags.temperature, withDefaults.temperature);
  tell("top-k", flags.topK, withDefaults.topK);
  tell("top-p", flags.topP, withDefaults.topP);
  tell("min-p", flags.minP, withDefaults.minP);
  tell("repetition penalty", flags.repetitionPenalty, withDefaults.repetitionPenalty);
  return absl::StrJoin(taken, ", ");
}

} // namespace headrace::tools
