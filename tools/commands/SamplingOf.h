// SPDX-License-Identifier: Apache-2.0
//
// From the flags of sampling to what an engine is asked.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "runtime/serve/engine/BatchEngine.h"
#include "tools/commands/Commands.h"

namespace headrace::tools {

// Refuses what has no effect at temperature 0.
absl::Status checkSamplingFlags(const SamplingFlags &flags);
serve::Sampling samplingOf(const SamplingFlags &flags, uint64_t seed);

} // namespace headrace::tools
