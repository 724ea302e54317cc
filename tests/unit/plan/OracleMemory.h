// SPDX-License-Identifier: Apache-2.0
//
// Between the two halves of the oracle: memory as an array of granules.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <set>

#include "runtime/plan/PlanVerifier.h"

namespace headrace::plan::test {

inline constexpr uint64_t kGranule = 64;

// The granules of a range of bytes.
struct Granules {
  uint64_t first = 0, last = 0; // half open
  Granules(uint64_t address, uint64_t bytes) : first(address / kGranule), last((address + bytes) / kGranule) {
    if (address % kGranule != 0 || bytes % kGranule != 0)
      std::abort();
  }
};

struct What { // a granule's worth of a buffer
  uint32_t buffer = kNone;
  uint64_t granule = 0;
  bool operator==(const What &) const = default;
};

// The rules that one schedule breaks: places, contents, order, edges. The plan's structure must be right.
void addBrokenRules(const Plan &plan, uint32_t schedule, std::set<Rule> &rules);

} // namespace headrace::plan::test
