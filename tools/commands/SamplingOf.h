// SPDX-License-Identifier: Apache-2.0
//
// From the flags of sampling to what an engine is asked.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "runtime/model/GenerationConfig.h"
#include "runtime/serve/engine/BatchEngine.h"
#include "tools/commands/Commands.h"

namespace headrace::tools {

// Refuses what has no effect at temperature 0.
absl::Status checkSamplingFlags(const SamplingFlags &flags);
serve::Sampling samplingOf(const SamplingFlags &flags, uint64_t seed);

// With the model's own defaults for what no flag says. At temperature 0, by flag or by file, none of those that have no
// effect there.
SamplingFlags withDefaults(SamplingFlags flags, const model::GenerationConfig &defaults);
// What was taken over, for people: "temperature 0.7, top-k 20"; empty: nothing.
std::string defaultsTaken(const SamplingFlags &flags, const SamplingFlags &withDefaults);

} // namespace headrace::tools
