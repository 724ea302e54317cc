// SPDX-License-Identifier: Apache-2.0
//
// The same plan with its buffers in another order: what a plan says must not depend on it.
#pragma once

#include <cstdint>

#include "runtime/plan/value/Plan.h"

namespace headrace::plan::test {

Plan withShuffledBuffers(Plan plan, uint64_t seed);

} // namespace headrace::plan::test
