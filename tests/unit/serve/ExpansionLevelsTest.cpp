// SPDX-License-Identifier: Apache-2.0
//
// Climbing the numbers of blocks that placements have, on a model of a device: how long an iteration takes at each.
#include "runtime/serve/engine/ExpansionLevels.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <utility>
#include <vector>

namespace headrace::serve {
namespace {

// Milliseconds an iteration by blocks. Blocks/ms: 100, 110, 120, 125, 125, 75.
const std::map<int64_t, double> kTimes = {{1000, 10}, {1100, 10}, {1200, 10}, {1500, 12}, {2000, 16}, {3000, 40}};

struct Climb {
  ExpansionLevels levels{{1000, 1100, 1200, 1500, 2000, 3000}};
  std::map<int64_t, double> times = kTimes;
  double blocks = 0, ms = 0;

  void go(int64_t iterations, double slower = 1) {
    for (int64_t i = 0; i < iterations; ++i) {
      const int64_t offered = levels.offered();
      const double took = times.at(offered) * slower;
      blocks += static_cast<double>(offered);
      ms += took;
      levels.saw({.ns = static_cast<int64_t>(took * 1e6), .used = offered, .wanted = true});
    }
  }
  double rateOf(int64_t iterations) {
    blocks = ms = 0;
    go(iterations);
    return blocks / ms;
  }
};

// 80 iterations a level, 16 of which fill it: five levels up, and down from the sixth at once.
TEST(ExpansionLevels, ClimbsToTheLargestThatIsAsGoodAsAny) {
  Climb run;
  EXPECT_EQ(run.levels.offered(), 1000);
  run.go(64);
  EXPECT_EQ(run.levels.offered(), 1100);
  run.go(4 * 80 + 32);
  EXPECT_EQ(run.levels.offered(), 2000); // as good as 1500, and more sequences have blocks
  EXPECT_EQ(run.levels.grown(), 5u);
  EXPECT_EQ(run.levels.shrunk(), 1u);
  EXPECT_GE(run.rateOf(20000), 0.98 * 125);
  // 3000 is tried again after 512, 1024, 2048, 2048 ... iterations.
  EXPECT_LE(run.levels.shrunk(), 13u);
}

// Through a dip of a hundredth, not through one of a twentieth.
TEST(ExpansionLevels, LooksBehindASmallDip) {
  Climb run;
  run.times[1100] = 11.1;
  run.go(2000);
  EXPECT_EQ(run.levels.offered(), 2000);
  Climb stays;
  stays.times[1100] = 11.6;
  stays.go(2000);
  EXPECT_EQ(stays.levels.offered(), 1000);
}

TEST(ExpansionLevels, ADisturbanceOfEightIterationsChangesNothing) {
  for (int64_t at = 0; at < 64; ++at)
    for (const int64_t length : {1, 7, 8}) {
      Climb run;
      run.go(500 + at);
      ASSERT_EQ(run.levels.offered(), 2000);
      run.go(length, 4);
      run.go(200 - length);
      EXPECT_EQ(run.levels.offered(), 2000) << at << ", " << length;
    }
}

// A link of half the bandwidth: what is brought takes twice as long, so levels take 10, 12, 16, 24, 32 and 80 ms.
TEST(ExpansionLevels, ADisturbanceOfTwoHundredIsAnsweredWithin64AndForgotten) {
  for (int64_t at = 0; at < 16; ++at) {
    Climb run;
    run.go(500 + at);
    ASSERT_EQ(run.levels.offered(), 2000);
    run.times = {{1000, 10}, {1100, 12}, {1200, 16}, {1500, 24}, {2000, 32}, {3000, 80}};
    run.go(64);
    EXPECT_LT(run.levels.offered(), 2000);
    run.go(136);
    run.times = kTimes;
    run.go(4000);
    EXPECT_GE(run.rateOf(5000), 0.98 * 125) << at;
  }
}

TEST(ExpansionLevels, WhereNobodyWantsMoreNothingIsTried) {
  Climb run;
  for (int i = 0; i < 5000; ++i)
    run.levels.saw({.ns = 1'000'000, .used = 900});
  EXPECT_EQ(run.levels.offered(), 1000);
}

TEST(ExpansionLevels, PromptsAndWhatHasNotSettledSayNothing) {
  Climb run;
  for (int i = 0; i < 5000; ++i) {
    run.levels.saw({.ns = 1'000'000, .used = 1000, .wanted = true, .prefill = true});
    run.levels.saw({.ns = 1'000'000, .used = 1000, .wanted = true, .settled = false});
  }
  EXPECT_EQ(run.levels.offered(), 1000);
}

TEST(ExpansionLevels, OfOneThereIsNothingToChoose) {
  ExpansionLevels one({500});
  for (int i = 0; i < 1000; ++i)
    one.saw({.ns = 1'000'000, .used = 500, .wanted = true});
  EXPECT_EQ(one.offered(), 500);
  EXPECT_EQ(one.grown() + one.shrunk(), 0u);
}

// The paper gives no figures. From nothing to 20,000 iterations, a fifth of them on half the link.
TEST(ExpansionLevels, EachConstantHalvedOrDoubledCostsAtMostThreePercent) {
  const auto throughput = [](const ExpansionTuning &tuning) {
    Climb run{.levels = ExpansionLevels({1000, 1100, 1200, 1500, 2000, 3000}, tuning)};
    run.go(8000);
    run.times = {{1000, 10}, {1100, 12}, {1200, 16}, {1500, 24}, {2000, 32}, {3000, 80}};
    run.go(4000);
    run.times = kTimes;
    run.go(8000);
    return run.blocks / run.ms;
  };
  const double ours = throughput({});
  const std::vector<std::pair<const char *, std::function<void(ExpansionTuning &, double)>>> constants = {
      {"window", [](ExpansionTuning &t, double by) { t.window = static_cast<int64_t>(16 * by); }},
      {"judgedWindows", [](ExpansionTuning &t, double by) { t.judgedWindows = static_cast<int64_t>(4 * by); }},
      {"lookAgain", [](ExpansionTuning &t, double by) { t.lookAgain = static_cast<int64_t>(512 * by); }},
      {"longestClimbPause", [](ExpansionTuning &t, double by) { t.longestClimbPause = static_cast<int64_t>(4 * by); }},
      {"loses", [](ExpansionTuning &t, double by) { t.loses *= by; }},
      {"drifts", [](ExpansionTuning &t, double by) { t.drifts *= by; }},
      {"falls", [](ExpansionTuning &t, double by) { t.falls *= by; }}};
  for (const auto &[name, change] : constants)
    for (const double by : {0.5, 2.}) {
      ExpansionTuning tuning;
      change(tuning, by);
      EXPECT_GE(throughput(tuning), 0.97 * ours) << name << " x " << by;
    }
}

} // namespace
} // namespace headrace::serve
