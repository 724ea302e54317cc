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
#include "runtime/plan/value/Plan.h"
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

// Places and the time of a swap with which layers are swapped as Pie does: first in, first out, or, where compute waits
// for that, in turns.
struct Fifo {
  int64_t places;
  algorithms::SwapVisits visits;
};
inline std::vector<Fifo> fifosOf(int64_t layers) {
  std::vector<Fifo> fifos;
  for (int64_t places = 2; places < layers; ++places)
    for (const algorithms::SwapVisits visits :
         {algorithms::SwapVisits{1, 1}, {2, 2}, {3, 3}, {1, 3}, {2, 1}, {6, 6}, {9, 9, 500}})
      fifos.push_back({places, visits});
  return fifos;
}

} // namespace headrace::golden
