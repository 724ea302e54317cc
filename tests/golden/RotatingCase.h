// SPDX-License-Identifier: Apache-2.0
//
// Golden models whose tails of caches rotate through fewer places than there are layers.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <utility>
#include <vector>

#include "passes/algorithms/RotationOf.h"
#include "runtime/plan/Plan.h"
#include "tests/golden/SplitCase.h"

namespace headrace::golden {

struct RotatingCase {
  SplitCase split;
  int64_t places = 2;
  algorithms::WriteBack decode = algorithms::WriteBack::Mirror, mixed = algorithms::WriteBack::Mirror;
  std::optional<algorithms::SwapVisits> fifo;
};

inline std::ostream &operator<<(std::ostream &out, const RotatingCase &c) {
  if (c.fifo)
    out << "first in, first out, " << c.fifo->in << " in and " << c.fifo->out << " out, ";
  return out << c.places << " places, " << c.split << ", decode written back " << static_cast<int>(c.decode)
             << ", mixed " << static_cast<int>(c.mixed);
}

inline RunSetup withCase(RunSetup setup, const RotatingCase &c, int64_t blocks) {
  setup = withCase(std::move(setup), c.split, blocks);
  algorithms::Residency &residency = setup.placement->residency;
  residency.kv().setPlaces(c.places, c.fifo);
  residency.kv().decodeBack = c.decode;
  residency.kv().mixedBack = c.mixed;
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

// Places and the time of a swap with which layers are swapped first in, first out, as Pie does, in a cycle that a plan
// can have: compute waits for swaps in some of them.
struct Fifo {
  int64_t places;
  algorithms::SwapVisits visits;
};
inline std::vector<Fifo> fifosOf(int64_t layers) {
  std::vector<Fifo> fifos;
  for (int64_t places = 2; places < layers; ++places)
    for (const auto &[in, out] :
         {std::pair(1, 1), std::pair(2, 2), std::pair(3, 3), std::pair(1, 3), std::pair(2, 1)}) {
      algorithms::Residency residency;
      residency.kv().setPlaces(places, algorithms::SwapVisits{in, out});
      if (algorithms::rotationPeriodOf(residency, layers).value_or(plan::kMostPhases + 1) <= plan::kMostPhases)
        fifos.push_back({places, {in, out}});
    }
  return fifos;
}

} // namespace headrace::golden
