// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/SamplingOf.h"

#include <algorithm>
#include <utility>

#include "tools/commands/InputErrors.h"

namespace headrace::tools {

absl::Status checkSamplingFlags(const SamplingFlags &flags) {
  if (flags.temperature > 0)
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
  return {.temperature = static_cast<float>(flags.temperature),
          .topP = number(flags.topP, 1),
          .seed = seed,
          .topK = std::max<int64_t>(flags.topK.value_or(0), 0),
          .minP = number(flags.minP, 0),
          .repetitionPenalty = number(flags.repetitionPenalty, 1),
          .presencePenalty = number(flags.presencePenalty, 0),
          .frequencyPenalty = number(flags.frequencyPenalty, 0)};
}

} // namespace headrace::tools
