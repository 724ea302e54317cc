// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/PackHomes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace headrace::algorithms {
namespace {

using testing::ElementsAre;

// One placement: one after another from where transients and slots end, as LayOutArena has them.
TEST(PackHomes, OfOnePlacementStandInTheirOrder) {
  EXPECT_THAT(packHomes({1024}, {{256, {true}}, {512, {false}}, {768, {true}}}), ElementsAre(1024, 0, 1280));
}

// Placement 0 has all at home, placement 1 offloads units 1 and 3 and has slots up to 1536. Those two lie lowest, from
// 1024 and 1536; what both have comes above: placement 0 needs no byte more than 1024 + 4 x 512 = 3072.
TEST(PackHomes, NestedPlacementsCostNothing) {
  EXPECT_THAT(
      packHomes({1024, 1536}, {{512, {true, true}}, {512, {true, false}}, {512, {true, true}}, {512, {true, false}}}),
      ElementsAre(2048, 1024, 2560, 1536));
}

// Slots of 1024 in placement 1 are larger than what it offloads (512): common homes begin above the slots, and
// placement 0 has a gap from 1536 to 2048.
TEST(PackHomes, SlotsLargerThanWhatIsOffloadedLiftTheRest) {
  EXPECT_THAT(packHomes({1024, 2048}, {{512, {true, true}}, {512, {true, false}}}), ElementsAre(2048, 1024));
}

// Units that are never at home together may lie at the same address.
TEST(PackHomes, OfDifferentPlacementsMayMeet) {
  EXPECT_THAT(packHomes({0, 0}, {{512, {true, false}}, {512, {false, true}}, {256, {true, true}}}),
              ElementsAre(0, 0, 512));
}

// A gap that is too small is passed over, one that fits is taken.
TEST(PackHomes, TakesTheFirstGapThatFits) {
  // Placement 0: [0, 256). Placement 1: [1024, 1280). Placement 2 begins at 0. Units of two placements each.
  EXPECT_THAT(packHomes({0, 1024, 0}, {{256, {true, false, false}},
                                       {256, {false, true, false}},
                                       {512, {true, false, true}},   // 256
                                       {512, {true, false, true}},   // 768
                                       {256, {false, true, true}}}), // above 1024, and placement 2 has up to 1280
              ElementsAre(0, 1024, 256, 768, 1280));
}

struct Case {
  std::vector<uint64_t> below;
  std::vector<HomeUnit> units;
};

Case anyCase() {
  Case c;
  const size_t placements = *rc::gen::inRange<size_t>(1, 7);
  for (size_t p = 0; p < placements; ++p)
    c.below.push_back(256 * *rc::gen::inRange<uint64_t>(0, 12));
  for (size_t units = *rc::gen::inRange<size_t>(0, 25); units > 0; --units) {
    HomeUnit unit{256 * *rc::gen::inRange<uint64_t>(1, 9), {}};
    for (size_t p = 0; p < placements; ++p)
      unit.placement.push_back(*rc::gen::inRange(0, 3) != 0);
    c.units.push_back(std::move(unit));
  }
  return c;
}

// Counted in granules of 256 bytes, placement by placement.
RC_GTEST_PROP(PackHomesProperty, NoTwoShareAByteWhereBothAreAtHome, ()) {
  const Case c = anyCase();
  const std::vector<uint64_t> addresses = packHomes(c.below, c.units);
  RC_ASSERT(addresses.size() == c.units.size());
  for (size_t p = 0; p < c.below.size(); ++p) {
    std::vector<int> owners(4096);
    for (size_t u = 0; u < c.units.size(); ++u) {
      if (!c.units[u].placement[p])
        continue;
      RC_ASSERT(addresses[u] % 256 == 0u);
      RC_ASSERT(addresses[u] >= c.below[p]);
      for (uint64_t g = addresses[u] / 256; g < (addresses[u] + c.units[u].bytes) / 256; ++g)
        RC_ASSERT(++owners[g] == 1);
    }
  }
}

// Sets of homes that contain each other, and slots that are no larger than what is offloaded for them: the arena is
// what the placement that needs most would take alone.
RC_GTEST_PROP(PackHomesProperty, NestedPlacementsTakeWhatTheLargestNeedsAlone, ()) {
  const size_t placements = *rc::gen::inRange<size_t>(1, 7), units = *rc::gen::inRange<size_t>(1, 25);
  std::vector<HomeUnit> homes;
  for (size_t u = 0; u < units; ++u) {
    // At home in the first `in` placements: later ones offload more.
    const size_t in = *rc::gen::inRange<size_t>(0, placements + 1);
    HomeUnit unit{512, std::vector<bool>(placements, false)};
    std::fill_n(unit.placement.begin(), in, true);
    homes.push_back(std::move(unit));
  }
  std::vector<uint64_t> below{1024};
  for (size_t p = 1; p < placements; ++p) {
    uint64_t freed = 0; // beside the placement before
    for (const HomeUnit &unit : homes)
      freed += unit.placement[p - 1] && !unit.placement[p] ? unit.bytes : 0;
    below.push_back(below.back() + 512 * *rc::gen::inRange<uint64_t>(0, freed / 512 + 1));
  }
  const std::vector<uint64_t> addresses = packHomes(below, homes);
  uint64_t top = 0, alone = 0;
  for (size_t u = 0; u < units; ++u)
    top = std::max(top, addresses[u] + (addresses[u] ? homes[u].bytes : 0));
  for (size_t p = 0; p < placements; ++p) {
    uint64_t need = below[p];
    for (const HomeUnit &unit : homes)
      need += unit.placement[p] ? unit.bytes : 0;
    alone = std::max(alone, need);
  }
  RC_ASSERT(std::max(top, below.back()) == alone);
}

} // namespace
} // namespace headrace::algorithms
