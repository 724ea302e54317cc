// SPDX-License-Identifier: Apache-2.0
//
// The same plan with its buffers in another order: what a plan says must not depend on it.
#pragma once

#include <cstdint>

#include "runtime/plan/value/Plan.h"

namespace headrace::plan::test {

// Buffers of kinds that no step uses (packed, staging) stand between the others, resident behind the arena, which
// grows by their bytes; so does the device memory that the plan may use.
Plan withShuffledBuffers(Plan plan, uint64_t seed);

} // namespace headrace::plan::test
