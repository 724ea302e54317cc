// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/AssignSlots.h"

#include <algorithm>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <rapidcheck/gtest.h>

namespace headrace::algorithms {
namespace {

using ::testing::ElementsAre;

TEST(AssignSlotsInLine, TakesTurns) {
  SlotAssignment one = assignSlotsInLine({100, 100, 100}, 1);
  EXPECT_THAT(one.slotOf, ElementsAre(0, 0, 0));
  EXPECT_THAT(one.slotBytes, ElementsAre(100));
  SlotAssignment two = assignSlotsInLine({100, 100, 100}, 2);
  EXPECT_THAT(two.slotOf, ElementsAre(0, 1, 0));
  EXPECT_THAT(two.slotBytes, ElementsAre(100, 100));
}

TEST(AssignSlotsInLine, MakesNoSlotWithoutAnOwner) {
  EXPECT_THAT(assignSlotsInLine({100}, 2).slotBytes, ElementsAre(100));
  EXPECT_TRUE(assignSlotsInLine({}, 2).slotBytes.empty());
}

TEST(AssignSlotsInLine, ASlotIsAsLargeAsItsLargestItem) {
  // Two layers and a larger head in one slot: the head decides.
  EXPECT_THAT(assignSlotsInLine({100, 100, 250}, 1).slotBytes, ElementsAre(250));
}

TEST(AssignSlotsInCircle, NeedsNoMoreWhereTheCountIsAMultiple) {
  SlotAssignment a = assignSlotsInCircle({100, 100, 100, 100}, 2);
  EXPECT_THAT(a.slotOf, ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(a.slotBytes, ElementsAre(100, 100));
}

TEST(AssignSlotsInCircle, FiveItemsInTwoSlotsTakeAThird) {
  SlotAssignment a = assignSlotsInCircle({100, 100, 100, 100, 100}, 2);
  EXPECT_THAT(a.slotOf, ElementsAre(0, 1, 0, 1, 2));
  EXPECT_THAT(a.slotBytes, ElementsAre(100, 100, 100));
}

TEST(AssignSlotsInCircle, FewItemsHaveASlotEach) {
  EXPECT_THAT(assignSlotsInCircle({100, 100, 100}, 3).slotOf, ElementsAre(0, 1, 2));
  EXPECT_THAT(assignSlotsInCircle({100, 100}, 3).slotOf, ElementsAre(0, 1));
}

TEST(AssignSlotsInCircle, TheHeadHasTheExtraSlotForItself) {
  // Four layers of 100 and a head of 250: 2 x 100 + 250 = 450, not 250 + 250 + 100.
  EXPECT_THAT(assignSlotsInCircle({100, 100, 100, 100, 250}, 2).slotBytes, ElementsAre(100, 100, 250));
}

TEST(AssignSlotsInCircle, WithOneSlotAllItemsShareIt) {
  SlotAssignment a = assignSlotsInCircle({100, 100, 250}, 1);
  EXPECT_THAT(a.slotOf, ElementsAre(0, 0, 0));
  EXPECT_THAT(a.slotBytes, ElementsAre(250));
}

RC_GTEST_PROP(AssignSlotsInCircle, AnyWantedItemsInARowDifferWithTheFewestSlots, ()) {
  const int n = *rc::gen::inRange(1, 140);
  const int wanted = *rc::gen::inRange(1, 12);
  const auto bytes = *rc::gen::container<std::vector<uint64_t>>(n, rc::gen::inRange<uint64_t>(1, 1000));
  SlotAssignment a = assignSlotsInCircle(bytes, wanted);
  RC_ASSERT(a.slotOf.size() == bytes.size());
  for (int begin = 0; begin < n; ++begin) {
    std::set<uint32_t> row;
    for (int k = 0; k < std::min(n, wanted); ++k)
      row.insert(a.slotOf[static_cast<size_t>((begin + k) % n)]);
    RC_ASSERT(row.size() == static_cast<size_t>(std::min(n, wanted)));
  }
  const int turns = std::max(1, n / wanted);
  RC_ASSERT(a.slotBytes.size() == static_cast<size_t>((n + turns - 1) / turns));
  for (size_t slot = 0; slot < a.slotBytes.size(); ++slot) {
    uint64_t largest = 0;
    for (size_t item = 0; item < bytes.size(); ++item)
      if (a.slotOf[item] == slot)
        largest = std::max(largest, bytes[item]);
    RC_ASSERT(a.slotBytes[slot] == largest);
  }
}

} // namespace
} // namespace headrace::algorithms
