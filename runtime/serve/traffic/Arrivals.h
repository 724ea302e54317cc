// SPDX-License-Identifier: Apache-2.0
//
// When requests come: gaps from a gamma distribution, as `vllm bench serve` has them. Its times are scaled so that the
// last of n requests comes at n / rate; these are not: the process is Poisson's where burstiness is 1.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/statusor.h"

namespace headrace::serve {

struct ArrivalProcess {
  double requestRate = std::numeric_limits<double>::infinity(); // requests/s; infinite: all at once
  // The shape of the gaps' gamma distribution, whose scale is 1 / (rate x shape): 1 is Poisson's process, less comes in
  // bursts, more is more regular, infinite is one request each 1 / rate.
  double burstiness = 1;
};

// `count` times in ns from the start, ascending; the first comes a gap after it. InvalidArgument unless both numbers
// are above zero, the count is at least 1 and the last time fits.
absl::StatusOr<std::vector<int64_t>> arrivalTimes(const ArrivalProcess &process, int64_t count, uint64_t seed);

} // namespace headrace::serve
