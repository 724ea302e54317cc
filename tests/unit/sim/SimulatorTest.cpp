// SPDX-License-Identifier: Apache-2.0
#include "runtime/sim/Simulator.h"

#include <gtest/gtest.h>

#include "tests/unit/sim/Schedules.h"

namespace headrace::sim {
namespace {

Timeline play(const HandMade &made, double duplexShare = 2.0) {
  return Simulator(made.schedule).run(made.durations, cost::Sharing(duplexShare));
}

TEST(Simulator, StepsOfALaneRunOneAfterAnother) {
  HandMade m;
  m.compute(10);
  m.compute(20);
  m.compute(5);
  const Timeline t = play(m);
  EXPECT_EQ(t.steps[1].startNs, 10u);
  EXPECT_EQ(t.steps[2].startNs, 30u);
  EXPECT_EQ(t.iterationNs, 35u);
  EXPECT_EQ(t.computeBusyNs, 35u);
  EXPECT_EQ(t.stallNs, 0u);
}

TEST(Simulator, LanesRunSideBySideUntilAnEdgeJoinsThem) {
  HandMade m;
  const uint32_t copy = m.h2d(25);
  m.compute(10);
  m.compute(10, {copy});
  const Timeline t = play(m);
  EXPECT_EQ(t.steps[1].startNs, 0u);
  EXPECT_EQ(t.steps[2].startNs, 25u); // computed until 10, waits 15 for the copy
  EXPECT_EQ(t.iterationNs, 35u);
  EXPECT_EQ(t.stallNs, 15u);
  EXPECT_EQ(t.h2dBusyNs, 25u);
  EXPECT_EQ(t.computeBusyNs, 20u);
}

TEST(Simulator, WaitingForTheCpuLaneIsNotAStallOfCopies) {
  HandMade m;
  const uint32_t copy = m.h2d(30);
  const uint32_t cpu = m.add(plan::Lane::Cpu, 20);
  m.compute(10);
  m.compute(10, {copy, cpu});
  // Idle from 10 to 30; until 20 the cpu lane was missing as well, so the copy alone costs 30 - 20.
  EXPECT_EQ(play(m).stallNs, 10u);
}

TEST(Simulator, IdleAfterTheLastComputeStepIsNoStall) {
  HandMade m;
  m.compute(10);
  m.h2d(100);
  const Timeline t = play(m);
  EXPECT_EQ(t.stallNs, 0u);
  EXPECT_EQ(t.iterationNs, 100u);
}

TEST(Simulator, TokensAreVisibleAtThePublishStepBeforeTheTailCopiesEnd) {
  HandMade m;
  const uint32_t last = m.compute(10);
  m.publish(2);
  m.h2d(40, {last});
  const Timeline t = play(m);
  EXPECT_EQ(t.publishNs, 12u);
  EXPECT_EQ(t.iterationNs, 50u);
}

TEST(Simulator, WithoutAPublishStepThePublishTimeIsTheEnd) {
  HandMade m;
  m.h2d(40);
  EXPECT_EQ(play(m).publishNs, 40u);
}

TEST(Simulator, AnEmptyScheduleTakesNoTime) {
  const HandMade m;
  const Timeline t = play(m);
  EXPECT_EQ(t.iterationNs, 0u);
  EXPECT_EQ(t.publishNs, 0u);
  EXPECT_TRUE(t.steps.empty());
}

TEST(Simulator, WritesIntoATimelineItHasUsedBefore) {
  HandMade m;
  m.compute(10);
  m.compute(20);
  HandMade small;
  small.compute(7);
  Timeline t;
  Simulator(m.schedule).run(m.durations, cost::Sharing(), t);
  Simulator(small.schedule).run(small.durations, cost::Sharing(), t);
  EXPECT_EQ(t.steps.size(), 1u);
  EXPECT_EQ(t.iterationNs, 7u);
  EXPECT_EQ(t.computeBusyNs, 7u);
}

// Select-N: of every i layers the last is offloaded; its copy may start when the first layer of its interval starts,
// that is when the layer before that has ended; one slot; nothing is copied across the iteration's edge.
HandMade selectN(int layers, int interval, uint64_t computeNs, uint64_t transferNs) {
  HandMade m;
  std::vector<uint32_t> compute;
  uint32_t copy = plan::kNone;
  for (int layer = 0; layer < layers; ++layer) {
    const bool startsInterval = layer % interval == 0 && layer + interval <= layers;
    if (startsInterval)
      copy = layer == 0 ? m.h2d(transferNs) : m.h2d(transferNs, {compute.back()});
    const bool offloaded = (layer + 1) % interval == 0;
    compute.push_back(offloaded ? m.compute(computeNs, {copy}) : m.compute(computeNs));
  }
  return m;
}

TEST(Simulator, SelectNTakesItsClosedFormForEveryInterval) {
  // T(i) = n (max((i - 1) t_c, t_t) + t_c) + (L - n i) t_c with n = floor(L / i).
  for (const int layers : {1, 7, 12, 32}) {
    for (int i = 2; i <= layers; ++i) {
      for (const uint64_t tc : {10u, 100u}) {
        for (const uint64_t tt : {0u, 35u, 100u, 350u}) {
          const uint64_t n = static_cast<uint64_t>(layers / i), rest = static_cast<uint64_t>(layers) - n * i;
          const uint64_t expected = n * (std::max<uint64_t>((i - 1) * tc, tt) + tc) + rest * tc;
          const uint64_t stall = n * (tt > (i - 1) * tc ? tt - (i - 1) * tc : 0);
          const Timeline t = play(selectN(layers, i, tc, tt));
          EXPECT_EQ(t.iterationNs, expected) << layers << " layers, interval " << i << ", " << tc << ", " << tt;
          EXPECT_EQ(t.stallNs, stall) << layers << " layers, interval " << i << ", " << tc << ", " << tt;
        }
      }
    }
  }
}

TEST(Simulator, SelectNAtFigure11sShape) {
  // 32 layers, interval 8, t_c = 5 ms, t_t = 16.8 ms: n = 4; (8 - 1) x 5 = 35 > 16.8, so nothing waits: 32 x 5 = 160
  // ms.
  EXPECT_EQ(play(selectN(32, 8, 5'000'000, 16'800'000)).iterationNs, 160'000'000u);
  // Interval 3: n = 10; (3 - 1) x 5 = 10 < 16.8: 10 x (16.8 + 5) + 2 x 5 = 228 ms, of which 10 x 6.8 = 68 ms stalls.
  const Timeline t = play(selectN(32, 3, 5'000'000, 16'800'000));
  EXPECT_EQ(t.iterationNs, 228'000'000u);
  EXPECT_EQ(t.stallNs, 68'000'000u);
}

TEST(Simulator, IntervalOneTakesTheSlowerOfComputeAndTransferALayer) {
  // Two slots: the copy of layer l may start when layer l - 1 starts, that is when layer l - 2 has ended. The first
  // copy and the last compute overlap nothing: t_t + (L - 1) max(t_c, t_t) + t_c; per layer max(t_c, t_t), as the paper
  // has it.
  for (const auto &[tc, tt] : {std::pair<uint64_t, uint64_t>{10, 30}, {30, 10}, {20, 20}}) {
    HandMade m;
    std::vector<uint32_t> compute;
    for (int layer = 0; layer < 8; ++layer) {
      const uint32_t copy = layer < 2 ? m.h2d(tt) : m.h2d(tt, {compute[static_cast<size_t>(layer) - 2]});
      compute.push_back(m.compute(tc, {copy}));
    }
    EXPECT_EQ(play(m).iterationNs, tt + 7 * std::max(tc, tt) + tc);
  }
}

} // namespace
} // namespace headrace::sim
