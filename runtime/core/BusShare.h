// SPDX-License-Identifier: Apache-2.0
//
// How copies of several devices share what lies between them and host memory, and host memory with what the CPU reads,
// as a fluid: at every moment each copy has a rate, and the rates are max-min fair. Whoever models a bus (host, sim,
// serve/fleet) asks here.
//
//   host memory ==[ bus: h2d, d2h, both ]==+-- link 0 [h2d, d2h, both] -- device 0
//    [ DRAM ] |                            +-- link 1 [h2d, d2h, both] -- device 1
//             '-- CPU
//
// Max-min fair: all rates grow together from zero; where a limit is reached the copies under it stop growing, the
// others go on. No rate can then be raised without lowering one that is not larger. A link has one copy a direction.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "absl/types/span.h"

namespace headrace::core {

enum class Direction : uint8_t { HostToDevice = 0, DeviceToHost = 1 };

// Of a link or of the bus: bytes per second, or per any other time that all of them are given in. The defaults do not
// limit.
struct PathLimits {
  double h2d = std::numeric_limits<double>::infinity();
  double d2h = std::numeric_limits<double>::infinity();
  double both = std::numeric_limits<double>::infinity(); // h2d + d2h
};

// A link, what its copies may have, and what they get; arrays by Direction.
struct LinkShare {
  PathLimits limits; // 0: nothing is copied in that direction
  std::array<double, 2> rates{};
  std::array<bool, 2> byBus{}; // the bus stopped this rate: the link alone would give more
};

// Sets the rates of all links, and what stopped them. A copy that nothing limits gets an infinite rate. Limits that
// differ by rounding alone (1e-12 of them) are reached together, and a copy whose own limit is one of them gets exactly
// that. Allocates nothing.
void shareBus(const PathLimits &bus, absl::Span<LinkShare> links);

// What of host memory one that reads or writes it gets at most, where all together ask for `asked`: who asks for more
// gets this, who asks for less what it asks. Infinite: all get what they ask. An ask of 0 is nobody's.
//
//   memoryLevel(26, {15, 20}) = 13       memoryLevel(24, {6, 12, 18}) = 9: 6, 9 and 9
//
// All cross host memory, so asks that links and bus have shared already (shareBus) make it max-min fair under all these
// limits: as rates grow together, those whom a narrower limit stops are below the level at which memory is used up, and
// there all others stop at once. Allocates nothing.
double memoryLevel(double bandwidth, absl::Span<const double> asked);

} // namespace headrace::core
