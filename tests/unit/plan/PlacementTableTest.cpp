// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/value/PlacementTable.h"

#include "gtest/gtest.h"

namespace headrace::plan {
namespace {

// Three placements: nothing away; 4 of 10 units of 100 bytes away behind a slot of 100 (frees 300); all away behind
// two (frees 800). Decode buckets of 1 and 8 sequences, one of prefill, at context 64; times in ns:
//
//              1       8      prefill 32
//   none      10      20          40
//   four      15      22          41
//   all       90      91          95
Plan threePlacements() {
  Plan plan;
  for (uint32_t b = 0; b < 10; ++b)
    plan.buffers.push_back({"w", BufferKind::Weight, static_cast<int32_t>(b), 100});
  const uint64_t times[3][3] = {{10, 20, 40}, {15, 22, 41}, {90, 91, 95}};
  const uint32_t away[3] = {0, 4, 10}, slots[3] = {0, 1, 2};
  for (uint32_t p = 0; p < 3; ++p) {
    Placement placement;
    for (uint32_t b = 0; b < 10; ++b)
      placement.extents.push_back({b, b < away[p] ? Space::Host : Space::Device, false, 0, 100, uint64_t{b} * 100});
    placement.slots.assign(slots[p], Slot{0, 100});
    plan.placements.push_back(placement);
    Schedule decode, mixed;
    decode.iterationClass = IterationClass::Decode;
    mixed.iterationClass = IterationClass::Mixed;
    plan.schedules.push_back(decode);
    plan.schedules.push_back(mixed);
    plan.variants.push_back({1, 1, 64, p, 2 * p, {}, times[p][0], 0, 0});
    plan.variants.push_back({8, 8, 64, p, 2 * p, {}, times[p][1], 0, 0});
    plan.variants.push_back({32, 8, 64, p, 2 * p + 1, {}, times[p][2], 0, 0});
  }
  return plan;
}

TEST(PlacementTable, FreedIsWhatIsAwayLessTheSlots) {
  const Plan plan = threePlacements();
  EXPECT_EQ(freedBytes(plan, 0), 0);
  EXPECT_EQ(freedBytes(plan, 1), 4 * 100 - 100);
  EXPECT_EQ(freedBytes(plan, 2), 10 * 100 - 2 * 100);
  EXPECT_EQ(PlacementTable(plan).byFreed(), (std::vector<uint32_t>{2, 1, 0}));
}

TEST(PlacementTable, OneLayerBehindASlotOfItsSizeFreesNothingAndBiggerSlotsCost) {
  Plan plan = threePlacements();
  plan.placements[1].slots.assign(5, Slot{0, 100});
  EXPECT_EQ(freedBytes(plan, 1), -100);
  EXPECT_EQ(PlacementTable(plan).byFreed(), (std::vector<uint32_t>{2, 0, 1}));
}

TEST(PlacementTable, ChoosesWhatFreesMostWithinTheObjective) {
  const Plan plan = threePlacements();
  const PlacementTable table(plan);
  const auto placementFor = [&](const IterationSize &size, uint64_t sloNs) {
    const std::optional<uint32_t> variant = table.choose(size, sloNs);
    return variant ? static_cast<int>(plan.variants[*variant].placement) : -1;
  };
  EXPECT_EQ(placementFor({1, 1, 64}, 90), 2);
  EXPECT_EQ(placementFor({1, 1, 64}, 89), 1);
  EXPECT_EQ(placementFor({1, 1, 64}, 15), 1); // exactly
  EXPECT_EQ(placementFor({1, 1, 64}, 14), 0);
  EXPECT_EQ(placementFor({1, 1, 64}, 9), -1);
  EXPECT_EQ(table.leastNs({1, 1, 64}), 10u);
  EXPECT_EQ(placementFor({1, 1, 64}, 0), 2); // no objective
  // Sizes go to the smallest bucket that holds them.
  EXPECT_EQ(placementFor({2, 2, 10}, 22), 1);
  EXPECT_EQ(placementFor({2, 2, 10}, 21), 0);
  // Two rows of one sequence are no decode iteration.
  EXPECT_EQ(placementFor({2, 1, 10}, 40), 0);
  EXPECT_EQ(placementFor({2, 1, 10}, 39), -1);
}

// What offloads has to leave a quarter of its own time: 15 is held by 19 (18.75), 90 by 113 (112.5). What does not, is
// held by what it takes.
TEST(PlacementTable, WhatOffloadsLeavesRoomForItsSlowestIterations) {
  Plan plan = threePlacements();
  plan.slowestPermille = 1250;
  const PlacementTable table(plan);
  const auto placementFor = [&](uint64_t sloNs) {
    const std::optional<uint32_t> variant = table.choose({1, 1, 64}, sloNs);
    return variant ? static_cast<int>(plan.variants[*variant].placement) : -1;
  };
  EXPECT_EQ(placementFor(113), 2);
  EXPECT_EQ(placementFor(112), 1);
  EXPECT_EQ(placementFor(19), 1);
  EXPECT_EQ(placementFor(18), 0);
  EXPECT_EQ(placementFor(10), 0);
  EXPECT_EQ(placementFor(9), -1);
  EXPECT_EQ(placementFor(0), 2);
  EXPECT_EQ(table.leastNs({1, 1, 64}), 10u);
  EXPECT_EQ(slowestPermille(plan, 0), 1000u);
  EXPECT_EQ(slowestPermille(plan, 1), 1250u);
}

// Placement "four" goes round in two phases for decode: 15 and 17 ns of one sequence, 22 and 21 of eight.
TEST(PlacementTable, ACycleTakesWhatItsSlowestPhaseDoes) {
  Plan plan = threePlacements();
  plan.schedules[2].period = 2;
  Schedule second = plan.schedules[2];
  second.phase = 1;
  plan.schedules.push_back(second);
  Variant one = plan.variants[3], eight = plan.variants[4];
  one.schedule = eight.schedule = 6;
  one.predictedNs = 17, eight.predictedNs = 21;
  plan.variants.insert(plan.variants.begin() + 5, eight);
  plan.variants.insert(plan.variants.begin() + 4, one);
  const PlacementTable table(plan);
  EXPECT_EQ(table.variantIn(1, {1, 1, 64}), 3u); // the first phase
  EXPECT_EQ(table.variantIn(1, {8, 8, 64}), 5u);
  EXPECT_EQ(plan.variants[*table.choose({1, 1, 64}, 17)].placement, 1u);
  EXPECT_EQ(plan.variants[*table.choose({1, 1, 64}, 16)].placement, 0u);
  EXPECT_EQ(plan.variants[*table.choose({8, 8, 64}, 22)].placement, 1u);
  EXPECT_EQ(plan.variants[*table.choose({8, 8, 64}, 21)].placement, 0u);
}

TEST(PlacementTable, SlowestAndPredictedAreInverse) {
  EXPECT_EQ(slowestNs(100, 1250), 125u);
  EXPECT_EQ(slowestNs(101, 1250), 127u); // 126.25, up
  EXPECT_EQ(predictedWithin(126, 1250), 100u);
  EXPECT_EQ(predictedWithin(127, 1250), 101u);
  EXPECT_EQ(slowestNs(~uint64_t{0}, 4'000'000'000), uint64_t{1} << 62u);
  for (const uint32_t permille : {1000u, 1001u, 1333u, 2999u, 4'000'000'000u})
    for (uint64_t slo : {uint64_t{0}, uint64_t{1}, uint64_t{999}, uint64_t{1'000'003}, uint64_t{123'456'789'012}}) {
      const uint64_t most = predictedWithin(slo, permille);
      EXPECT_LE(slowestNs(most, permille), slo);
      EXPECT_GT(slowestNs(most + 1, permille), slo);
    }
}

TEST(PlacementTable, AShapeThatNoBucketHoldsIsNone) {
  const Plan plan = threePlacements();
  const PlacementTable table(plan);
  EXPECT_FALSE(table.choose({9, 9, 64}, 0));
  EXPECT_FALSE(table.choose({1, 1, 65}, 1000));
  EXPECT_FALSE(table.leastNs({33, 8, 64}));
}

TEST(ChosenPlacement, IsThatOfTheSmallestBucketOfTheClassThatHoldsTheSize) {
  Plan plan = threePlacements();
  // Decode of 1 in "all", of 8 in "four", prefill of 32 in "none"; variants stand placement by placement.
  plan.choices = {{6, 0, 0, 0, 0}, {4, 0, 0, 0, 0}, {2, 0, 0, 0, 0}};
  EXPECT_EQ(chosenPlacement(plan, {1, 1, 64}), 2U);
  EXPECT_EQ(chosenPlacement(plan, {2, 2, 10}), 1U);
  EXPECT_EQ(chosenPlacement(plan, {8, 8, 64}), 1U);
  EXPECT_EQ(chosenPlacement(plan, {9, 9, 64}), 1U); // no bucket holds it: the class' largest
  EXPECT_EQ(chosenPlacement(plan, {20, 3, 64}), 0U);
  plan.choices.pop_back();
  EXPECT_EQ(chosenPlacement(plan, {20, 3, 64}), std::nullopt);
  plan.choices.clear();
  EXPECT_EQ(chosenPlacement(plan, {1, 1, 64}), std::nullopt);
}

} // namespace
} // namespace headrace::plan
