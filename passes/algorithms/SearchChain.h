// SPDX-License-Identifier: Apache-2.0
//
// Placements for several goals whose sets of units are nested: each offloads all that the one before does, and more.
// Then going from one to another moves only what the larger set has more, and a unit's home changes once along the
// chain.
//
//   goals    1.1 x     1.5 x         2 x         from the tightest
//   units    a d       a b d f       a b c d e f
//
// Nesting has a price, since the best set for a loose goal need not hold the best for a tight one. One link is searched
// freely, those before it among its units only, those behind it with its units kept; each link is tried as that one,
// and of the chains with the most links nested the one whose worst link loses least is taken. Where nesting a link
// would cost more than `mostLoss`, the chain is broken there: the link is searched freely, and the links beyond it are
// nested with it.
#pragma once

#include <optional>
#include <vector>

#include "passes/algorithms/SearchUnits.h"

namespace headrace::algorithms {

struct ChainGoal {
  double sloFactor = 1; // every SLO of the problem times this
  uint64_t mostBytes = std::numeric_limits<uint64_t>::max();
  // As in SearchLimits.
  uint64_t full = 0;
  double enough = 0.985;
  // So much is to be freed, and more is of no use; a link that would free less when nested is not nested. 0: the most.
  uint64_t leastFreed = 0;
};

struct ChainLink {
  std::optional<UnitPlacement> placed; // none where the goal cannot be met
  bool nested = true;                  // holds the units of the link before it (the first: always)
  double share = 1;                    // of what a search for this goal alone frees
};

// Goals from the tightest: neither factors nor bytes fall. mostLoss: 0.02 is two percent of what a link alone would
// free, or one of the smallest units where that is more: nothing finer can be given up. 0: nesting may cost nothing.
std::vector<ChainLink> searchChain(const UnitProblem &problem, const std::vector<ChainGoal> &goals,
                                   double mostLoss = 0.02);

} // namespace headrace::algorithms
