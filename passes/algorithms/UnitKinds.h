// SPDX-License-Identifier: Apache-2.0
//
// Units of one role and size are of a kind: any of them does as well as another, but for where it stands.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "passes/algorithms/UnitTimes.h"

namespace headrace::algorithms {

struct UnitKind {
  std::vector<uint32_t> units; // indices, ascending: those that may be taken
  uint64_t bytes = 0;          // of each
  uint64_t copyNs = 0;         // of each
};

// By role and size. A kind may be without units that may be taken; `kindOf` is by unit.
struct UnitKinds {
  std::vector<UnitKind> kinds;
  std::vector<uint32_t> kindOf;
};
UnitKinds kindsOf(const UnitProblem &problem, const UnitTimes &times, const std::vector<bool> &may);

// A set of kinds (a bit each) and a ring for them, with a bound on what units of these kinds can free through it.
struct KindRing {
  uint64_t bound = 0;
  uint64_t ringBytes = 0;
  uint32_t kinds = 0;
};

// For every set of at most eight kinds that has all of `needed` (bits): the rings that one to four of its units make,
// the largest bound first. At most `mostBytes` are offloaded.
std::vector<KindRing> kindRings(const UnitKinds &kinds, uint32_t needed, uint64_t mostBytes);

// The most bytes of units of these kinds whose copies take `ns` together, the last one cut off.
uint64_t bytesWithin(const UnitKinds &kinds, uint32_t set, uint64_t ns);

} // namespace headrace::algorithms
