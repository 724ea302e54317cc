// SPDX-License-Identifier: Apache-2.0
//
// Adaptive expansion on a model of a device. 1,000 blocks are the device's, 3,000 there are at most, all of them
// wanted.
//
//   compute   1 ms + 500 ns a block in use
//   link      2 us a block above 1,000: as long as compute at 2,000 blocks, 2 us x 1,000 = 1 ms + 500 ns x 2,000
//   tokens    one an iteration for ten blocks, so tokens/s rise to 2,000 blocks and fall from there on
#include "runtime/serve/engine/Expansion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <utility>
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

// The paper gives no figures. Throughput over the time from nothing to 20,000 iterations, with the link halved for a
// fifth of it.
TEST(Expansion, EachConstantHalvedOrDoubledCostsAtMostThreePercent) {
  const auto throughput = [](const ExpansionTuning &tuning) {
    Play run{.expansion = Expansion(kBounds, tuning)};
    run.model.swings = 0.01;
    run.go(8000);
    run.model.slower = 2;
    run.go(4000);
    run.model.slower = 1;
    run.go(8000);
    return static_cast<double>(run.tokens) / static_cast<double>(run.ns);
  };
  const double ours = throughput({});
  const std::vector<std::pair<const char *, std::function<void(ExpansionTuning &, double)>>> constants = {
      {"window", [](ExpansionTuning &t, double by) { t.window = static_cast<int64_t>(16 * by); }},
      {"waits", [](ExpansionTuning &t, double by) { t.waits *= by; }},
      {"room", [](ExpansionTuning &t, double by) { t.room *= by; }},
      {"scales", [](ExpansionTuning &t, double by) { t.scales *= by; }},
      {"judged", [](ExpansionTuning &t, double by) { t.judged *= by; }},
      {"firstStep", [](ExpansionTuning &t, double by) { t.firstStep *= by; }},
      {"judgedWindows", [](ExpansionTuning &t, double by) { t.judgedWindows = static_cast<int64_t>(4 * by); }},
      {"longestPause", [](ExpansionTuning &t, double by) { t.longestPause = static_cast<int64_t>(16 * by); }},
      {"lookAgain", [](ExpansionTuning &t, double by) { t.lookAgain = static_cast<int64_t>(512 * by); }},
  };
  for (const auto &[name, scale] : constants)
    for (const double by : {0.5, 2.0}) {
      ExpansionTuning tuning;
      scale(tuning, by);
      EXPECT_GE(throughput(tuning), 0.97 * ours) << name << " x " << by;
    }
}

} // namespace
} // namespace headrace::serve
