// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "bench/figures/Cells.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::bench {

// Milliseconds that are predicted of a cell in one of a plan's variants: of its rows and contexts, which may be fewer
// than the variant's bucket holds. Of caches that are whole on the device.
double predictedMs(const plan::Plan &plan, uint32_t variant, const Cell &cell);

} // namespace headrace::bench
