// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "bench/cuda/Report.h"

namespace headrace::bench {

// y[m, n] = x[m, k] w[n, k]^T in BF16 with F32 sums, by the library and the algorithm that plans use: 10^12 operations
// a second. Operands are random: what they hold decides how much power, and so how much clock, the product gets.
double gemmTflops(Timer &timer, int64_t m, int64_t n, int64_t k);

} // namespace headrace::bench
