// SPDX-License-Identifier: Apache-2.0
//
// How good the search's placements are, over four models, two devices, decode and prefill of several batches and
// contexts, and goals from 1.02 to 4 times the resident time. Limit: the bytes that the link copies in the goal's time.
#include <algorithm>

#include "tests/unit/compiler/PlacementSweep.h"
#include "gtest/gtest.h"

namespace headrace::compiler {
namespace {

class SearchQuality : public testing::TestWithParam<std::string> {};

TEST_P(SearchQuality, TheLinkIsFilledAndSelectNIsNeverBetter) {
  int large = 0, small = 0, ahead = 0;
  // Every second case, the even ones on one device and the odd ones on the other; bench_search has them all.
  const std::vector<SearchCase> cases = searchCases({GetParam()});
  for (size_t i = GetParam() == "a10" ? 0 : 1; i < cases.size(); i += 2) {
    const SearchCase &asked = cases[i];
    SCOPED_TRACE(asked.name());
    OpenedCase c(asked);
    const absl::StatusOr<SearchedPlacement> found = c.search();
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_LE((asked.decode ? found->decodeNs : found->mixedNs)[0], c.sloNs());
    const uint64_t paper = selectNFreed(c);
    EXPECT_GE(found->freedBytes, paper);
    ahead += found->freedBytes > paper;
    const double layer = c.layerBytes(), limit = c.limitBytes(), moved = static_cast<double>(found->movedBytes);
    if (limit >= static_cast<double>(c.layers()) * layer)
      continue;
    if (limit >= 4 * layer) {
      EXPECT_GE(moved, 0.97 * limit);
      ++large;
    } else if (limit >= layer) {
      // All but the largest gap between sums of units, the smallest unit; of what the smallest units, whose copies'
      // start counts most, can fill.
      uint64_t smallest = ~uint64_t{0};
      for (int unit = 0; unit < model::kUnitsPerLayer; ++unit)
        smallest = std::min(smallest, c.layout().units[static_cast<size_t>(1 + unit)].bytes);
      const double fits =
          static_cast<double>(c.sloNs()) * static_cast<double>(smallest) / static_cast<double>(c.copyNs(smallest));
      EXPECT_GE(moved, fits - static_cast<double>(smallest))
          << "limit " << limit / layer << " layers, moved " << moved / layer;
      ++small;
    }
  }
  EXPECT_GT(large, 40);
  EXPECT_GT(small, 10);
  EXPECT_GT(ahead, 75);
}

TEST_P(SearchQuality, NoSweepOverRingsFreesTwoPercentMore) {
  const std::vector<SearchCase> cases = searchCases({GetParam()});
  int swept = 0;
  for (size_t i = 0; i < cases.size(); i += 9) {
    SCOPED_TRACE(cases[i].name());
    OpenedCase c(cases[i]);
    if (c.limitBytes() < 4 * c.layerBytes() || c.limitBytes() >= static_cast<double>(c.layers()) * c.layerBytes())
      continue;
    const absl::StatusOr<SearchedPlacement> found = c.search();
    ASSERT_TRUE(found.ok()) << found.status();
    const SweepResult sweep = sweepRings(c, 4, found->freedBytes);
    EXPECT_GT(sweep.sets, 0u);
    EXPECT_GE(static_cast<double>(found->freedBytes), 0.98 * static_cast<double>(sweep.freedBytes))
        << "the sweep frees " << static_cast<double>(sweep.freedBytes) / c.layerBytes() << " layers with a ring of "
        << static_cast<double>(sweep.ringBytes) / c.layerBytes();
    ++swept;
  }
  EXPECT_GT(swept, 8);
}

// The sweep finds good placements by itself: without a floor, within 10% of the search's.
TEST(PlacementSweep, IsNoStrawMan) {
  for (const SearchCase &asked : {SearchCase{"opt-6.7b", "a10", {32, 32, 512}, true, 1.5},
                                  SearchCase{"llama-3.1-8b", "a10", {1024, 16, 64}, false, 1.3}}) {
    SCOPED_TRACE(asked.name());
    OpenedCase c(asked);
    const absl::StatusOr<SearchedPlacement> found = c.search();
    ASSERT_TRUE(found.ok()) << found.status();
    const SweepResult sweep = sweepRings(c, 4, 0);
    EXPECT_GE(static_cast<double>(sweep.freedBytes), 0.9 * static_cast<double>(found->freedBytes));
    EXPECT_LE(static_cast<double>(sweep.freedBytes), 1.02 * static_cast<double>(found->freedBytes));
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, SearchQuality, testing::Values("a10", "rtx4090"),
                         [](const auto &info) { return info.param; });

} // namespace
} // namespace headrace::compiler
