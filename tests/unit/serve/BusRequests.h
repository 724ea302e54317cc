// SPDX-License-Identifier: Apache-2.0
//
// One bus of 2 bytes/s. Placements compute for 10 s and hide copies for 8: 16 bytes are hidden alone, 20 make 12 s.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/serve/fleet/Coordinator.h"

namespace headrace::serve {

inline constexpr double kSecond = 1e9;
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A placement named after its bytes; what is not offloaded of 100 bytes is device memory.
inline BusPlacement copying(uint32_t bytes) {
  BusPlacement p;
  p.placement = bytes;
  p.linkBytes = p.freedBytes = bytes;
  p.deviceBytes = 100 - bytes;
  p.computeNs = p.shortestNs = 10 * kSecond;
  p.hiddenNs = bytes == 0 ? 0 : 8 * kSecond;
  p.tokens = 1;
  return p;
}

inline BusRequest requestFor(uint32_t device, double sloSeconds, const std::vector<uint32_t> &bytes) {
  BusRequest request{device, sloSeconds * kSecond, 0, {}};
  for (uint32_t b : bytes)
    request.placements.push_back(copying(b));
  return request;
}

inline Coordinator twoDevices(CoordinatorOptions options = {}) {
  auto made = Coordinator::create(2, {{"left", 2, 100}, {"right", 2, 100}}, std::move(options));
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

inline std::string messageOf(const absl::Status &status) { return std::string(status.message()); }

// Device 0 runs 20 bytes an iteration, and could run none.
inline Coordinator leftRuns(CoordinatorOptions options = {}) {
  Coordinator c = twoDevices(std::move(options));
  EXPECT_TRUE(c.arrive(requestFor(0, 12, {0, 8, 20})).ok());
  EXPECT_EQ(*c.start(0), true);
  EXPECT_EQ(c.nextIteration(0)->placement, 20u);
  return c;
}

// A request that prefills 2 s and 4 bytes beside its decode iterations.
inline BusRequest staged(double firstSloSeconds, const std::vector<uint32_t> &bytes) {
  BusRequest request = requestFor(1, 12, bytes);
  request.firstSloNs = firstSloSeconds * kSecond;
  for (BusPlacement &p : request.placements)
    p.first = {2 * kSecond, 4, 0, 0}; // 4 s alone
  return request;
}

// Device 0 prefills 16 bytes, device 1 decodes 16 an iteration: 10 s each alone, more than 12 beside each other.
inline BusRequest decoding(double sloSeconds = 12) {
  BusRequest request = staged(100, {16});
  request.sloNs = sloSeconds * kSecond;
  request.placements[0].first = {0, 0, 0, 8};
  request.handoverBytes = 8;
  request.name = "request 7";
  return request;
}
inline BusRequest prefilling(double ttftSeconds = 12, double handoverSeconds = 0) {
  BusRequest request = requestFor(0, ttftSeconds, {16});
  request.decodedBy = 1;
  request.handoverNs = handoverSeconds * kSecond;
  request.prompts = true;
  request.name = "request 7";
  return request;
}

} // namespace headrace::serve
