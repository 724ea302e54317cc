// SPDX-License-Identifier: Apache-2.0
//
// How copies of several devices share what lies between them and host memory, as a fluid: at every moment each copy has
// a rate, and the rates are max-min fair.
//
//   host memory ==[ bus: h2d, d2h, both ]==+-- link 0 [h2d, d2h, both] -- device 0
//                                          +-- link 1 [h2d, d2h, both] -- device 1
//
// Max-min fair: all rates grow together from zero; where a limit is reached the copies under it stop growing, the
// others go on. No rate can then be raised without lowering one that is not larger.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/types/span.h"

namespace headrace::sim {

enum class Direction : uint8_t { HostToDevice = 0, DeviceToHost = 1 };

// Bytes per second; the defaults do not limit.
struct PathLimits {
  double h2d = std::numeric_limits<double>::infinity();
  double d2h = std::numeric_limits<double>::infinity();
  double both = std::numeric_limits<double>::infinity(); // h2d + d2h
};

struct Flow {
  uint32_t link = 0; // into the links given
  Direction direction = Direction::HostToDevice;
  double limit = std::numeric_limits<double>::infinity(); // bytes/s, where the copy is paced
};

// One rate a flow, bytes/s. Every flow must be limited by something; every flow's link must be one of `links`.
std::vector<double> fairRates(const PathLimits &bus, absl::Span<const PathLimits> links, absl::Span<const Flow> flows);

// The same where the links' limits are in what each flow asks for (bytes/s, or of any unit that the bus is given in):
// the levels of the two directions. A flow's rate is the smaller of its direction's level and what it asks for; a level
// is infinite where the bus slows nobody. Allocates nothing.
std::array<double, 2> fairLevels(const PathLimits &bus, absl::Span<const double> h2d, absl::Span<const double> d2h);

struct Transfer {
  Flow flow;
  double startSeconds = 0;
  double bytes = 0;
};

// When each transfer ends, in seconds, the rates being fair again whenever one starts or ends.
std::vector<double> transferEnds(const PathLimits &bus, absl::Span<const PathLimits> links,
                                 absl::Span<const Transfer> transfers);

} // namespace headrace::sim
