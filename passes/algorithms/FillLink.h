// SPDX-License-Identifier: Apache-2.0
//
// A set of units that keeps the link busy: the copies of an iteration one behind the other, each of a unit that they
// can bring by the time it is needed.
//
//   compute stretched evenly to T   |  a    b  |  c    d  |  e    f  |       a..f: units in order of use
//   link                            [ b  ][ c  ] [  e  ][ ..                 a comes too late, d and f would; b and e
//                                                                            wait for their place in the ring
//
// Stretched, since compute may wait for T less what it takes in all; evenly, since nothing says where it should. Each
// unit that can be there in time is taken, so the copies run as little ahead as can be and the ring holds little.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "passes/algorithms/UnitTimes.h"

namespace headrace::algorithms {

struct LinkFill {
  size_t schedule = 0, bucket = 0; // whose compute it is filled beside
  uint64_t timeNs = 0;             // T
  uint64_t ringBytes = 0;          // units lie in it as far as they fit, then from its first byte on again
  uint64_t leadBytes = 0;          // of the first unit (or beyond it): copied by the tail of the iteration before
  uint64_t mostBytes = std::numeric_limits<uint64_t>::max();
  std::vector<bool> may, must; // by unit; each that may be taken fits the ring
};

// Indices, ascending.
std::vector<uint32_t> fillLink(const UnitProblem &problem, const UnitTimes &times, const LinkFill &fill);

} // namespace headrace::algorithms
