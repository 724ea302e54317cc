// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/PlanCut.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "passes/algorithms/AssignSlots.h"
#include "passes/algorithms/PickLayers.h"
#include "gtest/gtest.h"
#include <rapidcheck/gtest.h>

namespace headrace::algorithms {
namespace {

// A link of 1 byte/ns without latency, and a cut at any byte.
CutProblem problemOf(std::vector<CutUnit> units, const std::vector<uint64_t> &compute) {
  CutProblem problem;
  problem.units = std::move(units);
  problem.computeNs = {compute};
  problem.copyNs = [](uint64_t bytes) { return bytes; };
  problem.alignment = 1;
  return problem;
}

TEST(PlanCut, ALinkBoundIterationCopiesAheadWhileItsLastStepsCompute) {
  // Two layers of 100 bytes with a slot each, 10 ns of compute for each layer and for the head. Without a prefix the
  // second layer's weights are there at 200, then 10 + 10: 220, the link idle for 20. With 20 bytes copied ahead: there
  // at 180, computed at 200, the link busy until 200.
  std::vector<uint64_t> compute{10, 10, 10};
  CutProblem problem = problemOf({{100, 0, -1, 0}, {100, 1, -1, 1}}, compute);
  EXPECT_EQ(iterationNs(problem, 0, {0, 0}), 220u);
  EXPECT_EQ(planCut(problem), (Cut{0, 20}));
  EXPECT_EQ(iterationNs(problem, 0, {0, 20}), 200u);
}

TEST(PlanCut, WhatDoesNotDivideIsThereWholeOrNotAtAll) {
  // The same, but the first layer's bytes come whole: with all of them ahead the second's are there at 100, computed at
  // 110, the head at 120; the first's for the next iteration come behind them, from 100 to 200.
  std::vector<uint64_t> compute{10, 10, 10};
  CutProblem problem = problemOf({{100, 0, -1, 0, false}, {100, 1, -1, 1, false}}, compute);
  EXPECT_EQ(planCut(problem), (Cut{1, 0}));
  EXPECT_EQ(iterationNs(problem, 0, {1, 0}), 200u);
}

TEST(PlanCut, AComputeBoundIterationHasItsFirstUnitBeforeItStarts) {
  // Copies of 10 hide behind compute of 100, but for the first: it is copied while the second layer computes.
  std::vector<uint64_t> compute{100, 100, 10};
  CutProblem problem = problemOf({{10, 0, -1, 0}, {10, 1, -1, 1}}, compute);
  EXPECT_EQ(iterationNs(problem, 0, {0, 0}), 220u);
  EXPECT_EQ(planCut(problem), (Cut{1, 0}));
  EXPECT_EQ(iterationNs(problem, 0, {1, 0}), 210u);
}

TEST(PlanCut, BalancedLanesEndTogether) {
  // Interval 2 of 4 layers, compute 50 each, copies 100 each: 200 on both lanes. Layer 1 is needed at 50, so half of it
  // must be there at the start, and its slot is free from 100 (its own last use) on.
  std::vector<uint64_t> compute{50, 50, 50, 50};
  CutProblem problem = problemOf({{100, 1, -1, 1}, {100, 3, -1, 3}}, compute);
  EXPECT_EQ(planCut(problem), (Cut{0, 50}));
  EXPECT_EQ(iterationNs(problem, 0, {0, 50}), 200u);
}

TEST(PlanCut, TheShortestPrefixAmongEquals) {
  // One slot for both layers: whatever is copied ahead must wait for the last step, so nothing is gained.
  // 100 + 10 + 100 + 10 = 220.
  std::vector<uint64_t> compute{10, 10};
  CutProblem problem = problemOf({{100, 0, -1, 1}, {100, 1, 0, 1}}, compute);
  EXPECT_EQ(longestPrefix(problem.units), 1u);
  EXPECT_EQ(planCut(problem), (Cut{0, 0}));
  EXPECT_EQ(iterationNs(problem, 0, {0, 0}), 220u);
  EXPECT_EQ(iterationNs(problem, 0, {1, 0}), 220u);
}

TEST(PlanCut, WeighsTheBucketsByTheirWorstRatio) {
  // The first bucket needs 20 bytes copied ahead (220 / 200 without), the second is indifferent above 5: 20 serves
  // both.
  std::vector<uint64_t> slow{10, 10, 10}, fast{2, 2, 3};
  CutProblem problem = problemOf({{100, 0, -1, 0}, {100, 1, -1, 1}}, slow);
  problem.computeNs.push_back(fast);
  EXPECT_EQ(planCut(problem), (Cut{0, 20}));
  problem.computeNs = {fast};
  EXPECT_EQ(planCut(problem), (Cut{0, 5})); // 2 + 3 after the last copy
}

TEST(PlanCut, CutsAtMultiplesOfTheAlignment) {
  std::vector<uint64_t> compute{1000, 1000, 1000};
  CutProblem problem = problemOf({{10240, 0, -1, 0}, {10240, 1, -1, 1}}, compute);
  problem.alignment = 256;
  EXPECT_EQ(planCut(problem), (Cut{0, 2048})); // 2000 would do; the next multiple of 256
}

TEST(PlanCut, NothingOffloadedMeansNothingToCut) {
  std::vector<uint64_t> compute{10, 10};
  CutProblem problem = problemOf({}, compute);
  EXPECT_EQ(planCut(problem), (Cut{0, 0}));
  EXPECT_EQ(iterationNs(problem, 0, {0, 0}), 20u);
}

// Caches' tails that are written back, whole, to the other direction's 1 byte/ns.
CutProblem writtenBack(std::vector<CutUnit> units, const std::vector<uint64_t> &compute) {
  for (CutUnit &unit : units) {
    unit.divides = false;
    unit.writtenBackAfter = unit.firstUse;
  }
  CutProblem problem = problemOf(std::move(units), compute);
  problem.writeBackNs = [](uint64_t bytes) { return bytes; };
  return problem;
}

TEST(PlanCut, WhatIsWrittenBackEndsWithinTheIteration) {
  // Three of 100 bytes with a slot each. With none ahead the first is there at 100, used at 110, back at 210; the
  // others 100 and 200 later: 410. With one ahead the first is used at 10 and back at 110, when the second is; the
  // third back at 310, and the first for the next iteration has been there since 300. A second ahead gains nothing: its
  // own home is current at 210 only.
  std::vector<uint64_t> compute{10, 10, 10, 10};
  CutProblem problem = writtenBack({{100, 0, -1, 0}, {100, 1, -1, 1}, {100, 2, -1, 2}}, compute);
  for (int64_t unit = 0; unit < 3; ++unit)
    problem.units[static_cast<size_t>(unit)].heldLast = unit;
  EXPECT_EQ(iterationNs(problem, 0, {0, 0}), 410u);
  EXPECT_EQ(iterationNs(problem, 0, {1, 0}), 310u);
  EXPECT_EQ(iterationNs(problem, 0, {2, 0}), 310u);
  EXPECT_EQ(planCut(problem), (Cut{1, 0}));
}

TEST(PlanCut, ARangeIsFreeOnceWhatWasThereIsBackAtHome) {
  // The third where the first was: that is back at 210, the third there at 310, used at 320, back at 420. With one
  // ahead it is back at 320, and only then the first for the next iteration goes there: 420 as well.
  std::vector<uint64_t> compute{10, 10, 10, 10};
  CutProblem problem = writtenBack({{100, 0, -1, 2}, {100, 1, -1, 1}, {100, 2, 0, 2}}, compute);
  problem.units[2].heldBefore = 0;
  problem.units[0].heldLast = problem.units[2].heldLast = 2;
  problem.units[1].heldLast = 1;
  EXPECT_EQ(iterationNs(problem, 0, {0, 0}), 420u);
  EXPECT_EQ(iterationNs(problem, 0, {1, 0}), 420u);
  EXPECT_EQ(planCut(problem), (Cut{0, 0}));
}

TEST(PlanCut, ALongestPrefixEndsWhereARangeIsUsedAgain) {
  EXPECT_EQ(longestPrefix(std::vector<CutUnit>{{1, 0, -1, 2}, {1, 1, -1, 3}, {1, 2, 0, 2}, {1, 3, 1, 3}}), 2u);
  EXPECT_EQ(longestPrefix(std::vector<CutUnit>{}), 0u);
}

// A model of `layers` layers with units of these sizes (one compute step each), offloaded by interval, s slots wanted.
struct Model {
  std::vector<uint64_t> unitBytes;
  std::vector<uint64_t> unitNs;
  uint64_t headNs = 0;
  int64_t layers = 1, interval = 1, slots = 2;

  std::vector<uint64_t> compute() const {
    std::vector<uint64_t> steps;
    for (int64_t layer = 0; layer < layers; ++layer)
      steps.insert(steps.end(), unitNs.begin(), unitNs.end());
    steps.push_back(headNs);
    return steps;
  }
  std::vector<CutUnit> units() const {
    std::vector<int64_t> picked = intervalLayers(layers, interval);
    uint64_t layerBytes = std::accumulate(unitBytes.begin(), unitBytes.end(), uint64_t(0));
    SlotAssignment slots = assignSlotsInCircle(std::vector<uint64_t>(picked.size(), layerBytes), this->slots);
    std::vector<CutUnit> units;
    const auto perLayer = static_cast<int64_t>(unitBytes.size());
    for (size_t item = 0; item < picked.size(); ++item)
      for (int64_t u = 0; u < perLayer; ++u) {
        int64_t before = -1, last = -1; // the items that had, and that have last, this item's slot
        for (size_t other = 0; other < picked.size(); ++other)
          if (slots.slotOf[other] == slots.slotOf[item]) {
            last = picked[other];
            if (other < item)
              before = picked[other];
          }
        units.push_back({unitBytes[static_cast<size_t>(u)], static_cast<uint32_t>(picked[item] * perLayer + u),
                         before < 0 ? -1 : before * perLayer + u, last * perLayer + u});
      }
    return units;
  }
};

RC_GTEST_PROP(PlanCut, IsTheBestOfAllCutsInSmallModels, ()) {
  Model model;
  const int perLayer = *rc::gen::inRange(1, 5);
  model.unitBytes = *rc::gen::container<std::vector<uint64_t>>(perLayer, rc::gen::inRange<uint64_t>(1, 40));
  model.unitNs = *rc::gen::container<std::vector<uint64_t>>(perLayer, rc::gen::inRange<uint64_t>(0, 40));
  model.headNs = *rc::gen::inRange<uint64_t>(0, 60);
  model.layers = *rc::gen::inRange<int64_t>(1, 9);
  model.interval = *rc::gen::inRange<int64_t>(1, model.layers + 1);
  model.slots = *rc::gen::inRange<int64_t>(1, 4);
  std::vector<uint64_t> compute = model.compute();
  CutProblem problem = problemOf(model.units(), compute);
  uint64_t least = std::numeric_limits<uint64_t>::max();
  size_t longest = longestPrefix(problem.units);
  for (size_t units = 0; units <= longest; ++units)
    for (uint64_t bytes = 0; bytes < (units < longest ? problem.units[units].bytes : 1); ++bytes)
      least = std::min(least, iterationNs(problem, 0, {units, bytes}));
  Cut cut = planCut(problem);
  RC_ASSERT(cut.units + (cut.bytes ? 1 : 0) <= longest);
  RC_ASSERT(iterationNs(problem, 0, cut) == least);
}

// What the project promises of the eager rule: both lanes end within 5% of the longer one's work, for every interval,
// where the layers are many and the head is no longer than a layer.
RC_GTEST_PROP(PlanCut, EndsWithinFivePercentOfTheLongerLane, ()) {
  Model model;
  model.unitBytes = {3000, 1000, 6000, 2000};
  uint64_t scale = *rc::gen::inRange<uint64_t>(1, 200); // compute from 1/100 to twice a layer's copy
  model.unitNs = {30 * scale, 10 * scale, 60 * scale, 20 * scale};
  model.headNs = *rc::gen::inRange<uint64_t>(0, 120 * scale);
  model.layers = *rc::gen::inRange<int64_t>(28, 81);
  model.interval = *rc::gen::inRange<int64_t>(1, model.layers + 1);
  std::vector<uint64_t> compute = model.compute();
  CutProblem problem = problemOf(model.units(), compute);
  problem.alignment = 256;
  uint64_t link = 0;
  for (const CutUnit &unit : problem.units)
    link += unit.bytes;
  uint64_t bound = std::max(link, std::accumulate(compute.begin(), compute.end(), uint64_t(0)));
  RC_ASSERT(iterationNs(problem, 0, planCut(problem)) * 100 <= bound * 105);
}

} // namespace
} // namespace headrace::algorithms
