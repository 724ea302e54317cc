// SPDX-License-Identifier: Apache-2.0
//
// Which placement each device on a bus takes: of all combinations whose contended times (Contention.h) are within every
// SLO, one of the largest objective (Select-N, Figure 8).
//
// Branch and bound, one set of devices that copy at a time (up to 8 devices; all sets together beyond). The set fixes
// the fair rates, and the least that each member delays the others. A node has placements for some devices; each device
// without one counts with its best placement that is still admissible, which no completion can exceed, as more
// neighbours that move more only add contention.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "runtime/serve/fleet/Contention.h"

namespace headrace::serve {

// FreedMemory: bytes of device memory given back, over all devices. Throughput: tokens a second, each device's tokens
// over its contended time.
enum class Maximise : uint8_t { FreedMemory = 0, Throughput = 1 };

struct Combination {
  bool feasible = false;           // one was found
  std::vector<uint32_t> choice;    // into each load's placements
  std::vector<double> iterationNs; // contended bounds
  double value = 0;
  double bound = 0;   // no admissible combination has a larger value; == value when exact
  bool exact = true;  // false: nodes ran out; the optimum is at most `bound`
  uint64_t nodes = 0; // visited
};

// How far a search may go. Up to `exactCombinations` combinations (4 devices of 32 placements) it runs to its end;
// beyond, `nodes` are visited, what a decision of 8 devices of 64 placements has time for within a millisecond.
struct SearchLimits {
  double exactCombinations = 1048576;
  uint64_t nodes = 400;
};

// Within exactCombinations: the optimum. Beyond: the optimum where that is proven within the nodes, else the best
// found, with the bound on the optimum that the search left open. At most 64 loads, of different devices; one without
// placements makes it infeasible. Where neither exact nor feasible, a combination may still exist.
Combination chooseCombination(const Bus &bus, absl::Span<const BusLoad> loads, Maximise objective,
                              const SearchLimits &limits = {});

// The objective of a combination at these contended times.
double valueOf(absl::Span<const BusLoad> loads, absl::Span<const uint32_t> choice, absl::Span<const double> contended,
               Maximise objective);

} // namespace headrace::serve
