// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/UnitKinds.h"

#include "passes/algorithms/SpreadUnits.h"
#include "tests/unit/algorithms/UnitProblems.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace::algorithms {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Four layers of a unit of 512 and one of 1000 B, which takes 1024 in a ring; then a head of 4096.
UnitProblem fourLayers() {
  std::vector<uint64_t> bytes;
  for (int layer = 0; layer < 4; ++layer)
    bytes.insert(bytes.end(), {512, 1000});
  bytes.push_back(4096);
  UnitProblem problem = unitProblem(bytes, std::vector<uint64_t>(18, 100), 0, 2);
  problem.units.back() = {4096, -1, 2};
  return problem;
}

UnitKinds kindsOf(const UnitProblem &problem) {
  return kindsOf(problem, UnitTimes(problem), std::vector<bool>(problem.units.size(), true));
}

TEST(UnitKinds, AreOfOneRoleAndSize) {
  UnitProblem problem = fourLayers();
  problem.units[6].bytes = 256; // the small one of the last layer
  std::vector<bool> may(9, true);
  may[1] = false;
  const UnitKinds found = kindsOf(problem, UnitTimes(problem), may);
  ASSERT_EQ(found.kinds.size(), 4u); // in order of role, then size
  EXPECT_THAT(found.kindOf, ElementsAre(1, 2, 1, 2, 1, 2, 0, 2, 3));
  EXPECT_THAT(found.kinds[0].units, ElementsAre(6));
  EXPECT_THAT(found.kinds[1].units, ElementsAre(0, 2, 4));
  EXPECT_THAT(found.kinds[2].units, ElementsAre(3, 5, 7));
  EXPECT_EQ(found.kinds[2].bytes, 1000u);
  EXPECT_EQ(found.kinds[3].copyNs, 4096u);
}

TEST(KindRings, BoundWhatASetOfKindsFrees) {
  const UnitKinds kinds = kindsOf(fourLayers());
  // Small alone: 2048 B in all, rings of one to three (four would leave nothing). Small and large: 6048 B, each sum of
  // one to four of 512 and 1024 that holds the large one.
  std::vector<std::pair<uint64_t, uint64_t>> small, both; // ring, bound
  uint64_t before = ~uint64_t{0};
  for (const KindRing &ring : kindRings(kinds, 0, 100'000)) {
    EXPECT_LE(ring.bound, before); // the largest first
    before = ring.bound;
    if (ring.kinds == 1)
      small.emplace_back(ring.ringBytes, ring.bound);
    if (ring.kinds == 3)
      both.emplace_back(ring.ringBytes, ring.bound);
  }
  EXPECT_THAT(small, ElementsAre(std::pair(512, 1536), std::pair(1024, 1024), std::pair(1536, 512)));
  ASSERT_EQ(both.size(), 7u); // 1024, 1536, ... 4096
  EXPECT_EQ(both.front(), std::pair(uint64_t{1024}, uint64_t{5024}));
  EXPECT_EQ(both.back(), std::pair(uint64_t{4096}, uint64_t{1952}));
}

TEST(KindRings, HaveWhatIsNeededAndNoMoreThanTheMost) {
  const UnitKinds kinds = kindsOf(fourLayers());
  for (const KindRing &ring : kindRings(kinds, 4, 6000)) {
    EXPECT_TRUE(ring.kinds & 4);
    EXPECT_GE(ring.ringBytes, 4096u); // the head's
    EXPECT_LE(ring.bound, 6000 - ring.ringBytes);
  }
  EXPECT_EQ(kindRings(kinds, 4, 6000).front().bound, 6000u - 4096);
  EXPECT_THAT(kindRings(kinds, 4, 4096), IsEmpty());
}

TEST(SpreadUnits, TakesTheLastOfEachGroupShiftedByKind) {
  const UnitKinds kinds = kindsOf(fourLayers());
  // Two of four small, one of four large, the head.
  EXPECT_THAT(spreadUnits(kinds.kinds, {2, 1, 1}, 0), ElementsAre(2, 6, 7, 8));
  // Kind 1 by half of a gap of four layers: the second of them; kind 2 by a whole one, which is none.
  EXPECT_THAT(spreadUnits(kinds.kinds, {2, 1, 1}, 4), ElementsAre(2, 3, 6, 8));
  EXPECT_THAT(spreadUnits(kinds.kinds, {0, 0, 0}, 2), IsEmpty());
  EXPECT_EQ(spreadUnits(kinds.kinds, {4, 4, 1}, 5).size(), 9u);
}

TEST(SpreadUnits, VisitsEveryCountOfAllKindsButOne) {
  UnitProblem problem = fourLayers();
  problem.units.pop_back();
  problem.schedules[0].uses.pop_back();
  const UnitKinds kinds = kindsOf(problem); // 512 ns and 1000 ns to copy, four of each
  std::vector<KindCounts> visited;
  forEachCounts(kinds.kinds, 2, 2512, [&](const KindCounts &counts) { visited.push_back(counts); });
  // As many small ones as 0, 2 and 4 large ones leave time for (4000 ns are too long), and one less: 4, 3; 1, 0. Then
  // as many large ones beside 0, 2 and 4 small ones: (2512 - 0) / 1000 = 2, 1488 / 1000 = 1, 464 / 1000 = 0.
  EXPECT_THAT(visited,
              ElementsAre(ElementsAre(4, 0), ElementsAre(3, 0), ElementsAre(1, 2), ElementsAre(0, 2), ElementsAre(0, 2),
                          ElementsAre(0, 1), ElementsAre(2, 1), ElementsAre(2, 0), ElementsAre(4, 0)));
}

} // namespace
} // namespace headrace::algorithms
