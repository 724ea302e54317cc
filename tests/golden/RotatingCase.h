// SPDX-License-Identifier: Apache-2.0
//
// Golden models whose tails of caches rotate through fewer places than there are layers.
#pragma once

#include <cstdint>
#include <ostream>
#include <vector>

#include "passes/algorithms/RotatePlaces.h"
#include "runtime/plan/Plan.h"
#include "tests/golden/SplitCase.h"

namespace headrace::golden {

struct RotatingCase {
  SplitCase split;
  int64_t places = 2;
  algorithms::WriteBack decode = algorithms::WriteBack::Mirror, mixed = algorithms::WriteBack::Mirror;
};

inline std::ostream &operator<<(std::ostream &out, const RotatingCase &c) {
  return out << c.places << " places, " << c.split << ", decode written back " << static_cast<int>(c.decode)
             << ", mixed " << static_cast<int>(c.mixed);
}

inline RunSetup withCase(RunSetup setup, const RotatingCase &c, int64_t blocks) {
  setup = withCase(std::move(setup), c.split, blocks);
  algorithms::Residency &residency = setup.placement->residency;
  residency.kvSlots = 0;
  residency.kvPlaces = c.places;
  residency.decodeWriteBack = c.decode;
  residency.mixedWriteBack = c.mixed;
  return setup;
}

// All numbers of places that a plan can have: 2, 3, 4, 5 and 6 of 7 layers, 2, 3, 4, ... of 12; cycles of 1 to 30.
inline std::vector<int64_t> placesOf(int64_t layers) {
  std::vector<int64_t> places;
  for (int64_t p = 2; p < layers; ++p)
    if (algorithms::rotationPeriod(layers, p) <= plan::kMostPhases)
      places.push_back(p);
  return places;
}

} // namespace headrace::golden
