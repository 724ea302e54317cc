// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/LapsOfChanges.h"

#include <algorithm>
#include <random>

#include "gtest/gtest.h"

namespace headrace::algorithms {
namespace {

constexpr uint32_t kNone = LapsOfChanges::kNone;

// One after another, each lap as full as can be.
size_t lapsOf(const std::vector<uint64_t> &sizes, uint64_t capacity) {
  size_t laps = 1;
  uint64_t lap = 0;
  for (const uint64_t size : sizes) {
    if (size > capacity)
      return LapsOfChanges::kNever;
    laps += lap + size > capacity;
    lap = lap + size > capacity ? size : lap + size;
  }
  return laps;
}

// Units 1, 2, 4, 5, 7 and 8 of 3 2 2 1 3 2 bytes; the others have 4.
TEST(LapsOfChanges, CountsNearbyOnly) {
  const std::vector<uint32_t> units = {1, 2, 4, 5, 7, 8};
  const std::vector<uint64_t> bytes = {4, 3, 2, 4, 2, 1, 4, 3, 2};
  LapsOfChanges laps(units, bytes);
  EXPECT_EQ(laps.least(5, kNone, 5), 3u);                // 3 2 | 2 3 | 2
  EXPECT_EQ(laps.least(kNone, 6, 5), 4u);                // 3 2 | 2 1 | 4 | 3 2
  EXPECT_EQ(laps.least(1, 0, 5), 3u);                    // 4 | 2 2 1 | 3 2
  EXPECT_EQ(laps.least(8, kNone, 13), 1u);               // 3 2 2 1 3
  EXPECT_GE(laps.least(5, 6, 3), LapsOfChanges::kNever); // 4 > 3
}

TEST(LapsOfChanges, IsWhatCountingAllOfThemGives) {
  std::mt19937 generator(7);
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(generator() % n); };
  for (int problem = 0; problem < 300; ++problem) {
    std::vector<uint64_t> bytes;
    std::vector<uint32_t> units, others;
    for (uint32_t unit = 0, n = 2 + below(30); unit < n; ++unit) {
      bytes.push_back(1 + below(6));
      (below(3) > 0 ? units : others).push_back(unit);
    }
    LapsOfChanges laps(units, bytes);
    for (int change = 0; change < 40; ++change) {
      const uint32_t out = units.empty() || below(4) == 0 ? kNone : units[below(static_cast<uint32_t>(units.size()))];
      const uint32_t in = others.empty() || below(4) == 0 ? kNone : others[below(static_cast<uint32_t>(others.size()))];
      std::vector<uint64_t> sizes;
      for (uint32_t unit = 0; unit < bytes.size(); ++unit)
        if (unit == in || (unit != out && std::binary_search(units.begin(), units.end(), unit)))
          sizes.push_back(bytes[unit]);
      const uint64_t capacity = 3 + below(12);
      const size_t least = laps.least(out, in, capacity), all = lapsOf(sizes, capacity);
      if (all == LapsOfChanges::kNever)
        EXPECT_GE(least, LapsOfChanges::kNever);
      else
        EXPECT_EQ(least, all) << "out " << out << ", in " << in << ", a ring of " << capacity;
    }
  }
}

} // namespace
} // namespace headrace::algorithms
