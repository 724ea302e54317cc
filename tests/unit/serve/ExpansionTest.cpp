// SPDX-License-Identifier: Apache-2.0
//
// Adaptive expansion on models of a device. Any number of blocks: 1,000 blocks are the device's, 3,000 there are at
// most, all of them wanted.
//
//   compute   1 ms + 500 ns a block in use
//   link      2 us a block above 1,000: as long as compute at 2,000 blocks, 2 us x 1,000 = 1 ms + 500 ns x 2,000
//   tokens    one an iteration for ten blocks, so tokens/s rise to 2,000 blocks and fall from there on
//
// Levels: how long an iteration takes at each of six.
#include "runtime/serve/engine/Expansion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace headrace::serve {
namespace {

constexpr ExpansionBounds kBounds{1000, 3000};
constexpr int64_t kKnee = 2000;

struct Model {
  double base = 1e6, perBlock = 500, link = 2000, slower = 1; // ns; the link's, of late
  double swings = 0;                                          // compute differs by this part, at random
  bool wanted = true;
  int64_t elseUsed = 0; // where nobody wants more
  std::mt19937_64 random;

  IterationWaits at(int64_t offered) {
    const int64_t used = wanted ? offered : std::min(offered, elseUsed);
    const double swing = 1 + swings * (2 * static_cast<double>(random() >> 11) * 0x1p-53 - 1);
    const double compute = (base + perBlock * static_cast<double>(used)) * swing;
    const double brought = static_cast<double>(std::max<int64_t>(0, used - kBounds.least)) * link;
    const double copies = brought * slower;
    const double ns = std::max(compute, copies);
    // What the engine takes the link to be busy for is bytes by its bandwidth, whoever else is on it.
    return {static_cast<int64_t>(ns),
            static_cast<int64_t>(ns - compute),
            static_cast<int64_t>(brought),
            used,
            std::max<int64_t>(0, used - kBounds.least),
            wanted};
  }
  double rate(int64_t offered) {
    const IterationWaits one = at(offered);
    return static_cast<double>(one.used / 10) / static_cast<double>(one.ns);
  }
};

struct Play {
  Model model;
  Expansion expansion{kBounds};
  int64_t tokens = 0, ns = 0;

  void go(int64_t iterations) {
    for (int64_t i = 0; i < iterations; ++i) {
      const IterationWaits one = model.at(expansion.offered());
      tokens += one.used / 10;
      ns += one.ns;
      expansion.saw(one);
    }
  }
  // Of so many iterations from now on.
  double rateOf(int64_t iterations) {
    tokens = ns = 0;
    go(iterations);
    return static_cast<double>(tokens) / static_cast<double>(ns);
  }
  double best() const { // of all fixed numbers
    Model m = model;
    double most = 0;
    for (int64_t blocks = kBounds.least; blocks <= kBounds.most; ++blocks)
      most = std::max(most, m.rate(blocks));
    return most;
  }
};

TEST(Expansion, BeginsWithTheDevicesOwnAndGrowsToWhereComputeWouldWait) {
  Play run;
  EXPECT_EQ(run.expansion.offered(), 1000);
  run.go(400);
  EXPECT_GE(run.expansion.offered(), 1940);
  EXPECT_LE(run.expansion.offered(), kKnee + 20);
  EXPECT_GE(run.rateOf(5000), 0.98 * run.best());
  EXPECT_GT(run.expansion.grown(), 4u);
}

TEST(Expansion, WhereComputeIsNotSteady) {
  for (const double swings : {0.01, 0.03}) {
    Play run;
    run.model.swings = swings;
    run.go(1500);
    EXPECT_GE(run.rateOf(20000), 0.95 * run.best()) << swings;
  }
}

TEST(Expansion, GrowsNoMoreThanThereIs) {
  Play run;
  run.model.link = 100;
  run.go(2000);
  EXPECT_EQ(run.expansion.offered(), 3000);
}

TEST(Expansion, NobodyWantsMore) {
  Play run;
  run.model.wanted = false;
  run.model.elseUsed = 900;
  run.go(5000);
  EXPECT_EQ(run.expansion.offered(), 1000);
  run.model.wanted = true; // there at once
  run.go(32);
  EXPECT_GT(run.expansion.offered(), 1000);
}

// Up to half a window of them, whenever: as if nothing had been.
TEST(Expansion, ADisturbanceOfEightIterationsChangesNothing) {
  Play undisturbed;
  undisturbed.go(600);
  const int64_t before = undisturbed.expansion.offered();
  for (int64_t at = 0; at < 32; ++at)
    for (const int64_t length : {1, 7, 8}) {
      Play run;
      run.go(600 + at);
      ASSERT_EQ(run.expansion.offered(), before);
      run.model.slower = 4;
      run.go(length);
      run.model.slower = 1;
      const uint64_t shrunk = run.expansion.shrunk();
      run.go(200 - length);
      EXPECT_EQ(run.expansion.offered(), before) << at << ", " << length;
      EXPECT_EQ(run.expansion.shrunk(), shrunk);
    }
}

// The link at half its bandwidth: 4 us x (U - 1,000) = 1 ms + 500 ns x U at 1,428 blocks.
TEST(Expansion, ADisturbanceOfTwoHundredIsAnsweredWithin64AndForgotten) {
  for (int64_t at = 0; at < 16; ++at) {
    Play run;
    run.go(600 + at);
    const int64_t before = run.expansion.offered();
    run.model.slower = 2;
    run.go(64);
    EXPECT_LE(run.expansion.offered(), 1428 + 30) << before;
    EXPECT_GE(run.rateOf(136), 0.97 * run.best());
    run.model.slower = 1;
    run.go(1500);
    EXPECT_GE(run.rateOf(5000), 0.98 * run.best()) << at;
  }
}

// 1 us a block: ten times as many are computed ten times as long, and tokens/s stay.
TEST(Expansion, TakesBackWhatGainsNothing) {
  Play run;
  run.model.base = 0;
  run.model.perBlock = 1000;
  run.model.link = 10;
  run.go(300);
  EXPECT_LE(run.expansion.offered(), 1125 + 250); // an eighth more, in doubling steps
  run.go(500);
  EXPECT_EQ(run.expansion.offered(), 1000);
  EXPECT_GT(run.expansion.shrunk(), 0u);
  // It looks again, later and later.
  run.go(1000);
  const uint64_t shrunk = run.expansion.shrunk();
  run.go(20000);
  EXPECT_GT(run.expansion.shrunk(), shrunk);
  EXPECT_LE(run.expansion.shrunk(), shrunk + 8);
}

// Offloaded weights: compute waits for these anyway, a tenth of the time.
TEST(Expansion, WhatComputeWaitsForWithoutBlocksOnTheHostDoesNotCount) {
  Expansion expansion(kBounds);
  for (int64_t i = 0; i < 16; ++i)
    expansion.saw({1'000'000, 100'000, 500'000, 1000, 0, true});
  EXPECT_GT(expansion.offered(), 1000);
  for (int64_t i = 0; i < 16; ++i)
    expansion.saw({1'000'000, 100'000, 500'000, expansion.offered(), expansion.offered() - 1000, true});
  EXPECT_EQ(expansion.shrunk(), 0u);
  for (int64_t i = 0; i < 16; ++i)
    expansion.saw({1'100'000, 200'000, 500'000, expansion.offered(), expansion.offered() - 1000, true});
  EXPECT_EQ(expansion.shrunk(), 1u);
}

TEST(Expansion, WhatHasNotSettledSaysNothing) {
  Play run;
  run.go(600);
  const int64_t before = run.expansion.offered();
  run.model.slower = 4;
  for (int i = 0; i < 200; ++i) {
    IterationWaits one = run.model.at(run.expansion.offered());
    one.settled = false;
    run.expansion.saw(one);
  }
  EXPECT_EQ(run.expansion.offered(), before);
}

TEST(Expansion, AnotherPlacementsBounds) {
  Play run;
  run.go(600);
  run.expansion.setBounds({500, 1200});
  EXPECT_EQ(run.expansion.offered(), 1200);
  run.expansion.setBounds({2500, 2500}); // all of it on the device
  EXPECT_EQ(run.expansion.offered(), 2500);
  run.go(100);
  EXPECT_EQ(run.expansion.offered(), 2500);
}

// Milliseconds an iteration by blocks. Blocks/ms: 100, 110, 120, 125, 125, 75.
const std::map<int64_t, double> kTimes = {{1000, 10}, {1100, 10}, {1200, 10}, {1500, 12}, {2000, 16}, {3000, 40}};

const std::vector<int64_t> kLevels = {1000, 1100, 1200, 1500, 2000, 3000};
// Of a link of half the bandwidth: what is brought takes twice as long.
const std::map<int64_t, double> kSlowTimes = {{1000, 10}, {1100, 12}, {1200, 16}, {1500, 24}, {2000, 32}, {3000, 80}};

struct Climb {
  Expansion levels{kLevels};
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
TEST(LevelsOfExpansion, ClimbsToTheLargestThatIsAsGoodAsAny) {
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
TEST(LevelsOfExpansion, LooksBehindASmallDip) {
  Climb run;
  run.times[1100] = 11.1;
  run.go(2000);
  EXPECT_EQ(run.levels.offered(), 2000);
  Climb stays;
  stays.times[1100] = 11.6;
  stays.go(2000);
  EXPECT_EQ(stays.levels.offered(), 1000);
}

TEST(LevelsOfExpansion, ADisturbanceOfEightIterationsChangesNothing) {
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

TEST(LevelsOfExpansion, ADisturbanceOfTwoHundredIsAnsweredWithin64AndForgotten) {
  for (int64_t at = 0; at < 16; ++at) {
    Climb run;
    run.go(500 + at);
    ASSERT_EQ(run.levels.offered(), 2000);
    run.times = kSlowTimes;
    run.go(64);
    EXPECT_LT(run.levels.offered(), 2000);
    run.go(136);
    run.times = kTimes;
    run.go(4000);
    EXPECT_GE(run.rateOf(5000), 0.98 * 125) << at;
  }
}

TEST(LevelsOfExpansion, WhereNobodyWantsMoreNothingIsTried) {
  Climb run;
  for (int i = 0; i < 5000; ++i)
    run.levels.saw({.ns = 1'000'000, .used = 900});
  EXPECT_EQ(run.levels.offered(), 1000);
}

TEST(LevelsOfExpansion, PromptsAndWhatHasNotSettledSayNothing) {
  Climb run;
  for (int i = 0; i < 5000; ++i) {
    run.levels.saw({.ns = 1'000'000, .used = 1000, .wanted = true, .prefill = true});
    run.levels.saw({.ns = 1'000'000, .used = 1000, .wanted = true, .settled = false});
  }
  EXPECT_EQ(run.levels.offered(), 1000);
}

TEST(LevelsOfExpansion, OfOneThereIsNothingToChoose) {
  Expansion one(std::vector<int64_t>{500});
  for (int i = 0; i < 1000; ++i)
    one.saw({.ns = 1'000'000, .used = 500, .wanted = true});
  EXPECT_EQ(one.offered(), 500);
  EXPECT_EQ(one.grown() + one.shrunk(), 0u);
}

// The paper gives no figures. Throughput over the time from nothing to 20,000 iterations, with the link halved for a
// fifth of it, of any number of blocks and of levels.
double throughputWithin(const ExpansionTuning &tuning) {
  Play run{.expansion = Expansion(kBounds, tuning)};
  run.model.swings = 0.01;
  run.go(8000);
  run.model.slower = 2;
  run.go(4000);
  run.model.slower = 1;
  run.go(8000);
  return static_cast<double>(run.tokens) / static_cast<double>(run.ns);
}

double throughputOfLevels(const ExpansionTuning &tuning) {
  Climb run{.levels = Expansion(kLevels, tuning)};
  run.go(8000);
  run.times = kSlowTimes;
  run.go(4000);
  run.times = kTimes;
  run.go(8000);
  return run.blocks / run.ms;
}

TEST(Expansion, EachConstantHalvedOrDoubledCostsAtMostThreePercent) {
  using Tuning = ExpansionTuning;
  const std::map<std::string, int64_t Tuning::*> whole = {{"window", &Tuning::window},
                                                          {"judgedWindows", &Tuning::judgedWindows},
                                                          {"lookAgain", &Tuning::lookAgain},
                                                          {"longestPause", &Tuning::longestPause},
                                                          {"longestClimbPause", &Tuning::longestClimbPause}};
  const std::map<std::string, double Tuning::*> parts = {{"waits", &Tuning::waits},         {"room", &Tuning::room},
                                                         {"scales", &Tuning::scales},       {"judged", &Tuning::judged},
                                                         {"firstStep", &Tuning::firstStep}, {"loses", &Tuning::loses},
                                                         {"drifts", &Tuning::drifts},       {"falls", &Tuning::falls}};
  const double within = throughputWithin({}), ofLevels = throughputOfLevels({});
  const auto expectFlat = [&](auto constant, const std::string &name) {
    for (const bool twice : {false, true}) {
      Tuning tuning;
      tuning.*constant = twice ? tuning.*constant * 2 : tuning.*constant / 2;
      EXPECT_GE(throughputWithin(tuning), 0.97 * within) << name << (twice ? " x 2" : " / 2");
      EXPECT_GE(throughputOfLevels(tuning), 0.97 * ofLevels) << name << (twice ? " x 2" : " / 2");
    }
  };
  for (const auto &[name, constant] : whole)
    expectFlat(constant, name);
  for (const auto &[name, constant] : parts)
    expectFlat(constant, name);
}

} // namespace
} // namespace headrace::serve
