// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/fleet/Combination.h"

#include <cmath>
#include <optional>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace headrace::serve {
namespace {

using testing::ElementsAre;

constexpr double kSecond = 1e9;

BusPlacement placementOf(uint64_t bytes, double computeSeconds, double hiddenSeconds, double tokens = 1) {
  BusPlacement p;
  p.linkBytes = p.freedBytes = bytes;
  p.computeNs = p.shortestNs = computeSeconds * kSecond;
  p.hiddenNs = hiddenSeconds * kSecond;
  p.tokens = tokens;
  return p;
}

TEST(Combination, TakesWhatFreesMostWithinEverySlo) {
  // 10 s of compute hide copies for 8; bus 2 bytes/s. Alone 16 bytes are hidden, 20 take 2 s more.
  const std::vector<BusPlacement> choices = {placementOf(0, 10, 0), placementOf(8, 10, 8), placementOf(16, 10, 8),
                                             placementOf(20, 10, 8)};
  const Bus bus{2, {2, 2}};
  // One device may take 12 s: 20 bytes.
  EXPECT_THAT(chooseCombination(bus, {{0, 12 * kSecond, choices}}, Maximise::FreedMemory).choice, ElementsAre(3));
  // Two: at half the bus 8 bytes each are hidden, 16 take 8 s more.
  const std::vector<BusLoad> both = {{0, 12 * kSecond, choices}, {1, 12 * kSecond, choices}};
  const Combination combination = chooseCombination(bus, both, Maximise::FreedMemory);
  ASSERT_TRUE(combination.feasible);
  EXPECT_EQ(combination.value, 20); // one copies 20, the other nothing, against 8 + 8
  EXPECT_TRUE(combination.exact);
  EXPECT_EQ(combination.bound, 20);
}

TEST(Combination, ThroughputIsTokensOverTheContendedTime) {
  // 4 tokens in 10 s against 6 in 12.
  const std::vector<BusPlacement> choices = {placementOf(0, 10, 0, 4), placementOf(20, 10, 8, 6)};
  const Bus bus{2, {2}};
  const Combination combination = chooseCombination(bus, {{0, 12 * kSecond, choices}}, Maximise::Throughput);
  EXPECT_THAT(combination.choice, ElementsAre(1));
  EXPECT_DOUBLE_EQ(combination.value, 0.5);
}

TEST(Combination, SaysWhereNothingHolds) {
  const Bus bus{2, {2, 2}};
  const std::vector<BusPlacement> only = {placementOf(20, 10, 8)};
  const Combination none =
      chooseCombination(bus, {{0, 12 * kSecond, only}, {1, 12 * kSecond, only}}, Maximise::FreedMemory);
  EXPECT_FALSE(none.feasible);
  EXPECT_TRUE(none.exact);
  EXPECT_FALSE(chooseCombination(bus, {{0, 12 * kSecond, {}}}, Maximise::FreedMemory).feasible);
  EXPECT_TRUE(chooseCombination(bus, {}, Maximise::FreedMemory).feasible); // an idle bus
}

// The best value of all combinations; nothing if none is admissible.
std::optional<double> bruteForce(const Bus &bus, const std::vector<BusLoad> &loads, Maximise objective) {
  std::optional<double> best;
  std::vector<uint32_t> choice(loads.size(), 0);
  for (;;) {
    const std::vector<double> times = contendedNs(bus, loads, choice);
    if (admissible(bus, loads, choice)) {
      const double value = valueOf(loads, choice, times, objective);
      best = best ? std::max(*best, value) : value;
    }
    size_t l = 0;
    while (l < loads.size() && ++choice[l] == loads[l].placements.size())
      choice[l++] = 0;
    if (l == loads.size())
      return best;
  }
}

struct Case {
  Bus bus;
  std::vector<BusLoad> loads;
};

// Devices with placements of any kind, SLOs around the times they take.
// With `stages`, also with first stages and bytes that nothing hides.
Case anyCase(std::mt19937 &random, uint32_t devices, uint32_t mostPlacements, uint32_t leastPlacements = 1,
             bool stages = false) {
  const auto pick = [&](int a, int b) { return std::uniform_int_distribution<int>(a, b)(random); };
  Case c{{pick(5, 40) / 10.0, {}}, {}};
  for (uint32_t d = 0; d < devices; ++d) {
    c.bus.links.push_back(pick(5, 40) / 10.0);
    const double compute = pick(5, 20);
    BusLoad load{d, compute * pick(10, 40) / 10.0 * kSecond, {}};
    const bool staged = stages && pick(0, 1) == 0; // with an objective for what comes before the iterations
    if (staged)
      load.firstSloNs = compute * pick(10, 60) / 10.0 * kSecond;
    const int count = pick(static_cast<int>(leastPlacements), static_cast<int>(mostPlacements));
    for (int i = 0; i < count; ++i) {
      BusPlacement p =
          placementOf(static_cast<uint64_t>(pick(0, 4) == 0 ? 0 : pick(0, 40)), compute, pick(0, 10), pick(1, 50));
      p.hiddenNs = std::min(p.hiddenNs, p.computeNs);
      p.freedBytes += static_cast<uint64_t>(pick(0, 5));
      p.shortestNs = pick(0, 3) == 0 ? 0 : p.computeNs;
      if (stages && pick(0, 3) == 0)
        p.exposedBytes = static_cast<uint64_t>(pick(0, 10));
      if (staged)
        p.first = {pick(0, 20) * kSecond, static_cast<uint64_t>(pick(0, 30)), pick(0, 10) * kSecond,
                   static_cast<uint64_t>(pick(0, 10))};
      load.placements.push_back(p);
    }
    c.loads.push_back(load);
  }
  // Some copy back as well, on a bus and links that limit that.
  if (stages && pick(0, 1) == 0) {
    if (pick(0, 1) == 0)
      c.bus.d2hBandwidth = pick(5, 40) / 10.0;
    if (pick(0, 1) == 0)
      c.bus.bothBandwidth = pick(10, 60) / 10.0;
    for (BusLoad &load : c.loads) {
      c.bus.d2hLinks.push_back(pick(5, 40) / 10.0);
      c.bus.bothShares.push_back(pick(5, 10) / 10.0);
      for (BusPlacement &p : load.placements)
        if (pick(0, 1) == 0) {
          p.d2hBytes = static_cast<uint64_t>(pick(0, 20));
          p.exposedD2hBytes = static_cast<uint64_t>(pick(0, 2) * pick(0, 5));
          p.first.d2hBytes = std::isfinite(load.firstSloNs) ? static_cast<uint64_t>(pick(0, 10)) : 0;
          p.besideBytes = static_cast<uint64_t>(pick(0, 3) == 0 ? pick(0, 20) : 0);
          p.besideD2hBytes = static_cast<uint64_t>(pick(0, 3) == 0 ? pick(0, 20) : 0);
        }
    }
  }
  // Some prefill what the next one decodes.
  for (uint32_t d = 0; stages && d + 1 < devices; d += 2)
    if (std::isfinite(c.loads[d + 1].firstSloNs) && pick(0, 1) == 0) {
      c.loads[d].decodedBy = d + 1;
      c.loads[d + 1].handoverBytes = static_cast<uint64_t>(pick(0, 12));
    }
  for (BusLoad &load : c.loads)
    for (BusPlacement &p : load.placements)
      if (stages && pick(0, 2) == 0) {
        p.soloNs = p.computeNs * pick(10, 15) / 10;
        p.soloRate = pick(5, 40) / 10.0;
      }
  return c;
}

uint32_t placementsFor(uint32_t devices) { return devices <= 2 ? 32 : devices == 3 ? 16 : 8; } // 4096 combinations

TEST(Combination, IsTheOptimumOfAllCombinations) {
  EXPECT_TRUE(rc::check([] {
    std::mt19937 random(*rc::gen::arbitrary<uint32_t>());
    const auto devices = *rc::gen::inRange<uint32_t>(1, 5);
    const Case c = anyCase(random, devices, placementsFor(devices), 1, *rc::gen::arbitrary<bool>());
    for (Maximise objective : {Maximise::FreedMemory, Maximise::Throughput}) {
      const std::optional<double> best = bruteForce(c.bus, c.loads, objective);
      const Combination found = chooseCombination(c.bus, c.loads, objective);
      RC_ASSERT(found.feasible == best.has_value());
      RC_ASSERT(found.exact);
      if (best) {
        RC_ASSERT(std::abs(found.value - *best) <= 1e-9 * *best);
        RC_ASSERT(admissible(c.bus, c.loads, found.choice));
      }
    }
  }));
}

TEST(Combination, IsTheOptimumOfFourDevicesOfThirtyTwoPlacements) {
  std::mt19937 random(20);
  const Case c = anyCase(random, 4, 32, 32); // 1,048,576 combinations
  const std::optional<double> best = bruteForce(c.bus, c.loads, Maximise::FreedMemory);
  const Combination found = chooseCombination(c.bus, c.loads, Maximise::FreedMemory);
  ASSERT_EQ(found.feasible, best.has_value());
  ASSERT_TRUE(best.has_value());
  EXPECT_EQ(found.value, *best);
  EXPECT_TRUE(found.exact);
}

TEST(Combination, WhereNodesRunOutTheOptimumIsAtMostTheBound) {
  EXPECT_TRUE(rc::check([] {
    std::mt19937 random(*rc::gen::arbitrary<uint32_t>());
    const auto devices = *rc::gen::inRange<uint32_t>(1, 5);
    const Case c = anyCase(random, devices, placementsFor(devices), 1, *rc::gen::arbitrary<bool>());
    for (Maximise objective : {Maximise::FreedMemory, Maximise::Throughput}) {
      const std::optional<double> best = bruteForce(c.bus, c.loads, objective);
      const Combination found = chooseCombination(c.bus, c.loads, objective, {0, *rc::gen::inRange<uint64_t>(0, 30)});
      RC_ASSERT(best.has_value() || !found.feasible);
      if (!best)
        continue;
      RC_ASSERT(found.feasible || !found.exact);
      RC_ASSERT(found.bound >= *best * (1 - 1e-9));
      RC_ASSERT(found.value <= *best * (1 + 1e-9));
      if (found.exact)
        RC_ASSERT(std::abs(found.value - *best) <= 1e-9 * *best);
    }
  }));
}

// Eight Select-N devices on one bus, what they can take from nothing to interval 1.
Case eightDevices(std::mt19937 &random) {
  const auto pick = [&](int a, int b) { return std::uniform_int_distribution<int>(a, b)(random); };
  Case c{{96e9, std::vector<double>(8, 24e9)}, {}};
  for (uint32_t d = 0; d < 8; ++d) {
    const cost::LayerTimes t = {64, pick(5, 40) * 1e5, 0, 0};
    BusLoad load{d, cost::residentNs(t) * pick(102, 300) / 100.0, {}};
    for (int64_t interval = 0; interval < 64; ++interval)
      load.placements.push_back(selectNPlacement(t, 400'000'000, interval));
    c.loads.push_back(load);
  }
  return c;
}

TEST(Combination, OfEightSelectNDevicesIsProvenToBeTheOptimum) {
  std::mt19937 random(1);
  for (int i = 0; i < 40; ++i) {
    const Case c = eightDevices(random);
    const Combination found = chooseCombination(c.bus, c.loads, Maximise::FreedMemory);
    ASSERT_TRUE(found.feasible);
    EXPECT_TRUE(admissible(c.bus, c.loads, found.choice));
    EXPECT_LE(found.nodes, SearchLimits{}.nodes);
    EXPECT_TRUE(found.exact) << i;
    EXPECT_EQ(found.value, found.bound);
  }
}

// Placements that nothing orders: more than the nodes can settle.
TEST(Combination, OfEightDevicesOfAnyPlacementsIsWithinFortyPercentOfItsBound) {
  std::mt19937 random(2);
  int answered = 0, open = 0;
  for (int i = 0; i < 40; ++i) {
    Case c = anyCase(random, 8, 64, 64);
    c.bus.bandwidth *= 4;
    const Combination found = chooseCombination(c.bus, c.loads, Maximise::FreedMemory);
    answered += found.feasible;
    open += !found.exact;
    if (found.feasible) {
      EXPECT_TRUE(admissible(c.bus, c.loads, found.choice));
      EXPECT_GE(found.value, 0.6 * found.bound) << i;
    }
  }
  EXPECT_GT(answered, 30);
  EXPECT_GT(open, 0);
}

// Beyond the devices whose sets are enumerated there is still an answer, and a bound.
TEST(Combination, OfTwelveDevicesHasAnAnswerAndABound) {
  std::mt19937 random(3);
  for (int i = 0; i < 10; ++i) {
    Case c = anyCase(random, 12, 8, 4);
    c.bus.bandwidth *= 12;
    for (BusLoad &load : c.loads)
      load.placements.push_back(placementOf(0, load.sloNs / kSecond / 2, 0));
    const Combination found = chooseCombination(c.bus, c.loads, Maximise::FreedMemory);
    ASSERT_TRUE(found.feasible);
    EXPECT_TRUE(admissible(c.bus, c.loads, found.choice));
    EXPECT_LE(found.value, found.bound);
  }
}

} // namespace
} // namespace headrace::serve
