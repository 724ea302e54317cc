// SPDX-License-Identifier: Apache-2.0
//
// Homes for the placements of one plan: what is at home on the device in several placements has one address in all of
// them, so that a change of placement moves only what has no home before it.
//
//             placement "none"      interval 4          Homes that fewer placements have lie lower. Where a placement
//   top     +------------------+------------------+     has no home, its slots may be: no placement needs more than it
//           | all have these   | all have these   |     would alone, where the sets of homes are nested.
//           +------------------+------------------+
//           | only "none" has  |   free           |     <- KV blocks, if the plan says so
//           |                  +------------------+
//           +------------------+ slots            |
//           | transients       | transients       |
//   below   +------------------+------------------+
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace headrace::algorithms {

struct HomeUnit {
  uint64_t bytes = 0;          // a multiple of 256
  std::vector<bool> placement; // by placement: it is at home on the device in this one
};

// An address for each unit, at or above `below[p]` (where what comes before homes ends in placement p) of every
// placement p that has it at home, sharing no byte with another unit that is at home in one of these. Units that no
// placement has at home get 0. First fit: those of the fewest placements first, then in the order given.
std::vector<uint64_t> packHomes(absl::Span<const uint64_t> below, absl::Span<const HomeUnit> units);

} // namespace headrace::algorithms
