// SPDX-License-Identifier: Apache-2.0
//
// Pie's swapping: its Figures 4 and 5, when it waits, against a simulation of the paper's words, and the cycles of
// places.
#include "passes/algorithms/ScheduleKvSwap.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rapidcheck.h"
#include "tests/support/LongRun.h"
#include "tests/unit/algorithms/KvSwapText.h"
#include "tests/unit/algorithms/PlayCycle.h"
#include "tests/unit/algorithms/SwapByTicks.h"
#include "gtest/gtest.h"

namespace headrace::algorithms {
namespace {

KvSwapProblem problem(int32_t layers, int32_t away, int64_t swap, bool endsWithIteration = false) {
  return {layers, layers - away, {1, swap, swap}, endsWithIteration};
}

// Figure 4: nine layers, two of them away, a swap takes two layers' compute. Layers from 0 on: the paper's 8 is 7 here.
// "A swap-out does not occur during the computation of layer 1. During layer 2's, layer 1's swap-out is initiated.
// During layer 3's both are skipped. At layer 4, layer 3 [is swapped out, and] its original GPU space allocated to swap
// in 8."
TEST(ScheduleKvSwap, FigureFour) {
  EXPECT_EQ(kvSwapLog(problem(9, 2, 2), 0, 18),
            R"(time    layer  0 1 2 3 4 5 6 7 8   swaps that begin
0       0      # . . . . . . h h
1       1      o # . . . . . h h   0 out of place 0
2       2      o . # . . . . h h
3       3      h . o # . . . i h   7 into place 0, 2 out of place 2
4       4      h . o . # . . i h
5       5      h . h . o # . . i   8 into place 2, 4 out of place 4
6       6      h . h . o . # . i
7       7      i . h . h . o # .   0 into place 4, 6 out of place 6
8       8      i . h . h . o . #
9       0      # . i . h . h . o   2 into place 6, 8 out of place 2
10      1      . # i . h . h . o
11      2      . o # . i . h . h   4 into place 2, 1 out of place 1
12      3      . o . # i . h . h
13      4      . h . o # . i . h   6 into place 1, 3 out of place 3
14      5      . h . o . # i . h
15      6      . h . h . o # . i   8 into place 3, 5 out of place 5
16      7      . h . h . o . # i
17      8      . i . h . h . o #   1 into place 5, 7 out of place 0
)");
}

// Its text: two layers' compute out, two layers before it in the queue, two in: eight from the start of a swap-out to
// the end of the swap-in behind it; the queue is four long, two on the host and two on their way.
TEST(ScheduleKvSwap, FigureFoursQueue) {
  KvSwap swap(problem(9, 2, 2));
  for (int visit = 0; visit < 9 * 40; ++visit)
    swap.compute();
  std::vector<int64_t> left(9, -1);
  int seen = 0;
  for (const KvSwapCopy &copy : swap.copies()) {
    int64_t &since = left[static_cast<size_t>(copy.layer)];
    if (copy.out) {
      since = copy.begin;
      continue;
    }
    if (since >= 0 && copy.begin > 9) { // the first iteration still takes the two that were away from the start
      EXPECT_EQ(copy.end - since, 8) << "layer " << copy.layer << " at " << copy.begin;
      ++seen;
    }
  }
  EXPECT_EQ(seen, 40 * 9 / 2 - 5); // one every two layers
}

// Figure 3: from the start of its swap-out to its end a layer is in two places, and its space is not free.
TEST(ScheduleKvSwap, TheMappingTableIsUpdatedInTwoPhases) {
  KvSwap swap(problem(4, 1, 2)); // Figure 4's way: 0 goes out when 1 starts
  swap.compute();
  EXPECT_EQ(swap.table()[0].state, KvState::Device);
  swap.compute();
  EXPECT_EQ(kvSwapTable(swap), R"(layer  host  place  state          since
0      0     0      swapping out   1
1      1     1      on the device  0
2      2     2      on the device  0
3      3     -      on the host    0
)");
  swap.compute(); // 2, at time 2; by 3 layer 0 is out
  EXPECT_EQ(swap.table()[0].state, KvState::Host);
  EXPECT_EQ(swap.table()[0].changed, 3);
  EXPECT_EQ(swap.table()[0].place, -1);
  swap.compute(); // 3 is not there: on demand, into 0's place, 3 to 5; it computes from 5 on
  EXPECT_EQ(swap.waited(), 2);
  EXPECT_EQ(swap.copies()[1].layer, 3);
  EXPECT_TRUE(swap.copies()[1].onDemand);
  EXPECT_EQ(swap.table()[3].place, 0);
}

// Figure 5: of six layers four a token are too many, ceil(1) x (4 + 2) > 5, and three are not, 1 x 5 <= 5.
TEST(ScheduleKvSwap, FigureFive) {
  EXPECT_TRUE(kvSwapWaits(problem(6, 4, 1)));
  EXPECT_FALSE(kvSwapWaits(problem(6, 3, 1)));
  EXPECT_GT(kvSwapCycle(problem(6, 4, 1), 50)->waited, 0);
  EXPECT_EQ(kvSwapCycle(problem(6, 3, 1), 50)->waited, 0);
  // Four away: every layer from the third on is waited for. Three away, the second token: nobody waits.
  EXPECT_EQ(kvSwapLog(problem(6, 4, 1), 0, 13), R"(time    layer  0 1 2 3 4 5   swaps that begin
0       0      # . h h h h
1       1      o # h h h h   0 out of place 0
3       2      h o # h h h   2 into place 0 on demand, 1 out of place 1; waited 1
5       3      h h o # h h   3 into place 1 on demand, 2 out of place 0; waited 1
7       4      h h h o # h   4 into place 0 on demand, 3 out of place 1; waited 1
9       5      h h h h o #   5 into place 1 on demand, 4 out of place 0; waited 1
11      0      # h h h h o   0 into place 0 on demand, 5 out of place 1; waited 1
)");
  EXPECT_EQ(kvSwapLog(problem(6, 3, 1), 6, 12), R"(time    layer  0 1 2 3 4 5   swaps that begin
6       0      # i h h h o   1 into place 1, 5 out of place 2
7       1      o # i h h h   2 into place 2, 0 out of place 0
8       2      h o # i h h   3 into place 0, 1 out of place 1
9       3      h h o # i h   4 into place 1, 2 out of place 2
10      4      h h h o # i   5 into place 2, 3 out of place 0
11      5      i h h h o #   0 into place 0, 4 out of place 1
)");
}

// How often places are as they were; of the second case events repeat every iteration.
TEST(ScheduleKvSwap, PeriodsOfPlaces) {
  EXPECT_EQ(kvSwapCycle(problem(9, 2, 2), 100)->period, 14);
  EXPECT_EQ(kvSwapCycle(problem(40, 10, 3), 100)->period, 9);
  EXPECT_EQ(kvSwapCycle(problem(48, 25, 1), 100)->period, 23);
  EXPECT_EQ(kvSwapCycle(problem(9, 2, 2), 10), std::nullopt); // none within ten iterations
}

// The printed protocol swaps whenever the link is free: 40 layers at 2 each are 20 an iteration, however few are away.
TEST(ScheduleKvSwap, SwapsWheneverTheLinkIsFree) {
  for (const int32_t away : {4, 10, 17}) {
    KvSwap swap(problem(40, away, 2));
    for (int visit = 0; visit < 40 * 100; ++visit)
      swap.compute();
    const auto between = [&](bool out) {
      return std::count_if(swap.copies().begin(), swap.copies().end(), [&](const KvSwapCopy &copy) {
        return copy.out == out && copy.visit >= 40 * 20 && copy.visit < 40 * 100;
      });
    };
    EXPECT_EQ(between(false), 20 * 80) << away;
    EXPECT_EQ(between(true), 20 * 80) << away;
    EXPECT_EQ(swap.waited(), 0) << away;
  }
}

// Compute is two ticks: swaps of 1/2, 1, 3/2 ... layers. Once warm it waits exactly where the closed form says.
TEST(ScheduleKvSwap, WaitsExactlyWhenTheFormulaSays) {
  int64_t cases = 0;
  for (int32_t layers = 3; layers <= casesOf(40, 80); ++layers)
    for (int32_t away = 1; away <= layers - 2; ++away)
      for (const int64_t swap : {1, 2, 3, 4, 5, 6, 7, 8, 10, 13}) {
        const KvSwapProblem asked = {layers, layers - away, {2, swap, swap}};
        KvSwap played(asked);
        int64_t warm = 0;
        for (int visit = 0; visit < layers * 20 && played.waited() == warm; ++visit) {
          played.compute();
          if (visit < layers * 2)
            warm = played.waited();
        }
        ASSERT_EQ(played.waited() > warm, kvSwapWaits(asked)) << layers << " " << away << " " << swap << "/2";
        ++cases;
      }
  EXPECT_EQ(cases, casesOf(7410, 30810)); // 10 x the sum of 1 to 38, or to 78
}

// For unequal times by playing: the tick-by-tick simulation sees layers start late, or not.
TEST(ScheduleKvSwap, WaitsForUnequalTimesAsThePapersWordsDo) {
  int waiting = 0, cases = 0;
  for (int layers = 4; layers <= 24; layers += 4)
    for (int places = 2; places < layers; ++places)
      for (const auto &[in, out] : {std::pair(1, 3), std::pair(3, 1), std::pair(2, 5), std::pair(4, 3)}) {
        const test::Ticked ticked = test::swapByTicks(layers, places, 2, in, out, 64 * layers);
        bool late = false;
        for (size_t visit = static_cast<size_t>(2 * layers); visit < ticked.starts.size(); ++visit)
          late |= ticked.starts[visit] > ticked.starts[visit - 1] + 2;
        ASSERT_EQ(kvSwapWaits({layers, places, {2, in, out}}), late)
            << layers << " " << places << " " << in << "/" << out;
        waiting += late;
        ++cases;
      }
  EXPECT_GE(waiting, 50); // of 288, as those that do not
  EXPECT_GE(cases - waiting, 50);
}

// The drawing of ScheduleKvSwap.h, from 8 on.
TEST(ScheduleKvSwap, DirectionsThatShareTheLinkAreSlowerWhileBothAreAtWork) {
  // Four layers, three places; a layer computes for 4. Layer 0 goes out when 1 starts, 3 comes in when it is out.
  KvSwap swap({4, 3, {4, 4, 2, 500}});
  for (int visit = 0; visit < 3; ++visit)
    swap.compute();
  ASSERT_EQ(swap.copies().size(), 3u);
  EXPECT_EQ(swap.copies()[0].end, 4 + 2); // alone
  // At 8 in and out begin: out's 2 are done by 12, by which half of in's 4 are; the other 2 alone, until 14.
  EXPECT_EQ(swap.copies()[1].begin, 8);
  EXPECT_EQ(swap.copies()[2].begin, 8);
  EXPECT_EQ(swap.copies()[2].end, 12);
  EXPECT_EQ(swap.copies()[1].end, 14);
  swap.compute(); // layer 3, there at 14
  EXPECT_EQ(swap.waited(), 2);
}

// On a link that both share a swap takes from its time alone to twice that: by playing, as the paper's words do.
TEST(ScheduleKvSwap, WaitsOnASharedLinkAsThePapersWordsDo) {
  int waiting = 0, cases = 0, sharedOnly = 0;
  for (int layers = 4; layers <= casesOf(16, 24); layers += 4)
    for (int places = 2; places < layers; ++places)
      for (const auto &[in, out] : {std::pair(2, 2), std::pair(3, 4), std::pair(5, 2)})
        for (const long both : {500, 530, 900}) {
          const test::Ticked ticked = test::swapByTicks(layers, places, 4, in, out, 64 * layers, both);
          bool late = false;
          for (size_t visit = static_cast<size_t>(2 * layers); visit < ticked.starts.size(); ++visit)
            late |= ticked.starts[visit] > ticked.starts[visit - 1] + 4;
          ASSERT_EQ(kvSwapWaits({layers, places, {4, in, out, both}}), late)
              << layers << " " << places << " " << in << "/" << out << " at " << both;
          waiting += late;
          sharedOnly += late && !kvSwapWaits({layers, places, {4, in, out}});
          ++cases;
        }
  EXPECT_EQ(cases, 9 * casesOf(2 + 6 + 10 + 14, 2 + 6 + 10 + 14 + 18 + 22));
  EXPECT_GE(waiting, 50);
  EXPECT_GE(cases - waiting, 50);
  EXPECT_GE(sharedOnly, 10); // that would not wait if each had its own
}

// As a plan has it: no swap is under way over an edge. What it makes of 40 layers, 10 away, at 3 each: 13 swaps of 3
// layers fit an iteration, 12 and 11 of the paper's 40 / 3 go over an edge.
TEST(ScheduleKvSwap, EndsWithItsIteration) {
  const KvSwapProblem asked = problem(40, 10, 3, /*endsWithIteration=*/true);
  const std::optional<KvSwapCycle> found = kvSwapCycle(asked, 100);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->period, 3);
  EXPECT_EQ(found->waited, 0);
  const Cycle cycle = cycleOfSwaps(asked, *found);
  for (const Cycle::Phase &phase : cycle.phases) {
    EXPECT_EQ(phase.moves.size(), 13u);
    EXPECT_EQ(phase.exits.size(), 13u);
  }
  EXPECT_EQ(wrongIn(cycle, 40), "");
  // Figure 4 meets the formula with equality: without swaps over edges it waits, 5 layers' compute in 10 iterations.
  const std::optional<KvSwapCycle> four = kvSwapCycle(problem(9, 2, 2, /*endsWithIteration=*/true), 100);
  ASSERT_TRUE(four.has_value());
  EXPECT_EQ(four->period, 10);
  EXPECT_EQ(four->waited, 5);
}

TEST(ScheduleKvSwap, CyclesAreSound) {
  int64_t cycles = 0;
  for (int32_t layers = 3; layers <= casesOf(20, 48); ++layers)
    for (int32_t places = 2; places < layers; ++places)
      for (const auto &[in, out] :
           {std::pair(1, 1), std::pair(2, 2), std::pair(3, 3), std::pair(1, 2), std::pair(3, 2), std::pair(2, 5)}) {
        const KvSwapProblem asked = {layers, places, {1, in, out}, true};
        const std::optional<KvSwapCycle> found = kvSwapCycle(asked, 64);
        if (!found)
          continue;
        ASSERT_EQ(wrongIn(cycleOfSwaps(asked, *found), layers), "")
            << layers << " " << places << " " << in << "/" << out;
        ++cycles;
      }
  EXPECT_GT(cycles, 500);
}

TEST(ScheduleKvSwap, AgainstThePapersWordsTickByTick) {
  rc::check("copies and starts are the oracle's", [] {
    const auto layers = *rc::gen::inRange(3, 24);
    const auto places = *rc::gen::inRange(2, layers);
    const auto compute = *rc::gen::inRange(1, 8), in = *rc::gen::inRange(1, 30), out = *rc::gen::inRange(1, 30);
    const auto both = *rc::gen::element(1000, 500, 750, 333);
    const int visits = layers * 12;
    KvSwap swap({layers, places, {compute, in, out, both}});
    std::vector<long> starts;
    for (int visit = 0; visit < visits; ++visit) {
      swap.compute();
      starts.push_back(swap.now() - compute);
    }
    const test::Ticked ticked = test::swapByTicks(layers, places, compute, in, out, visits, both);
    std::vector<test::TickedSwap> swaps;
    for (const KvSwapCopy &copy : swap.copies())
      swaps.push_back({copy.layer, copy.place, copy.out, copy.begin});
    RC_ASSERT(starts == ticked.starts);
    RC_ASSERT(swaps == ticked.swaps);
  });
}

} // namespace
} // namespace headrace::algorithms
