// SPDX-License-Identifier: Apache-2.0
#include "runtime/sim/BusShare.h"

#include <cmath>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace headrace::sim {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::Pointwise;

constexpr Direction kIn = Direction::HostToDevice, kOut = Direction::DeviceToHost;
PathLimits each(double h2d, double d2h, double both) { return {h2d, d2h, both}; }

TEST(BusShare, ACopyAloneGetsTheNarrowestPartOfItsPath) {
  EXPECT_THAT(fairRates(each(24, 24, 40), {each(16, 16, 32)}, {{0, kIn}}), ElementsAre(16));
  EXPECT_THAT(fairRates(each(12, 24, 40), {each(16, 16, 32)}, {{0, kIn}}), ElementsAre(12));
}

TEST(BusShare, TwoDevicesGetHalfTheBusEach) {
  const PathLimits link = each(24, 24, 48);
  EXPECT_THAT(fairRates(each(24, 24, 48), {link, link}, {{0, kIn}, {1, kIn}}), ElementsAre(12, 12));
}

TEST(BusShare, WhatANarrowLinkCannotTakeGoesToTheOthers) {
  // The bus has 24: link 0 takes its 4, links 1 and 2 share 20.
  EXPECT_THAT(
      fairRates(each(24, 24, 48), {each(4, 4, 8), each(16, 16, 32), each(16, 16, 32)}, {{0, kIn}, {1, kIn}, {2, kIn}}),
      ElementsAre(4, 10, 10));
}

TEST(BusShare, DirectionsHaveLimitsOfTheirOwnAndOneTogether) {
  const std::vector<PathLimits> links = {each(24, 24, 48)};
  EXPECT_THAT(fairRates(each(24, 24, 48), links, {{0, kIn}, {0, kOut}}), ElementsAre(24, 24));
  EXPECT_THAT(fairRates(each(24, 24, 30), links, {{0, kIn}, {0, kOut}}), ElementsAre(15, 15));
  // d2h stops at 10; of the 30 together h2d gets 20.
  EXPECT_THAT(fairRates(each(24, 10, 30), links, {{0, kIn}, {0, kOut}}), ElementsAre(20, 10));
}

TEST(BusShare, APacedCopyLeavesTheRest) {
  const PathLimits link = each(24, 24, 48);
  EXPECT_THAT(fairRates(each(24, 24, 48), {link, link}, {{0, kIn, 6}, {1, kIn}}), ElementsAre(6, 18));
}

TEST(BusShare, ALimitOfZeroStopsOnlyWhatIsUnderIt) {
  EXPECT_THAT(fairRates(each(24, 24, 48), {each(0, 24, 24), each(24, 24, 48)}, {{0, kIn}, {1, kIn}}),
              ElementsAre(0, 24));
}

TEST(BusShare, NoFlowsNoRates) { EXPECT_TRUE(fairRates(each(1, 1, 1), {each(1, 1, 1)}, {}).empty()); }

TEST(BusShare, TransfersShareWhileTheyOverlap) {
  const PathLimits link = each(10, 10, 20);
  // Bus 10 bytes/s. The first alone for 2 s (20 of 60 bytes), then both at 5: the second's 20 bytes end at 6, the
  // first then has 60 - 20 - 20 = 20 left at 10: 8.
  EXPECT_THAT(transferEnds(each(10, 10, 20), {link, link}, {{{0, kIn}, 0, 60}, {{1, kIn}, 2, 20}}),
              Pointwise(DoubleNear(1e-9), {8.0, 6.0}));
}

TEST(BusShare, ATransferOfNothingEndsWhereItStarts) {
  EXPECT_THAT(transferEnds(each(1, 1, 2), {each(1, 1, 2)}, {{{0, kIn}, 3, 0}}), ElementsAre(3));
}

TEST(BusShare, ATransferOverAPathOfNoWidthNeverEnds) {
  EXPECT_EQ(transferEnds(each(0, 1, 1), {each(1, 1, 2)}, {{{0, kIn}, 0, 5}})[0],
            std::numeric_limits<double>::infinity());
}

TEST(BusShare, RatesKeepAllLimitsAndNoneCanBeRaisedWithoutLoweringOneThatIsNotLarger) {
  EXPECT_TRUE(rc::check([] {
    const int linkCount = *rc::gen::inRange(1, 5);
    auto path = [] { return each(*rc::gen::inRange(1, 30), *rc::gen::inRange(1, 30), *rc::gen::inRange(1, 50)); };
    const PathLimits bus = path();
    std::vector<PathLimits> links;
    for (int l = 0; l < linkCount; ++l)
      links.push_back(path());
    std::vector<Flow> flows;
    for (int f = *rc::gen::inRange(1, 9); f > 0; --f)
      flows.push_back({static_cast<uint32_t>(*rc::gen::inRange(0, linkCount)), *rc::gen::element(kIn, kOut),
                       static_cast<double>(*rc::gen::inRange(1, 40))});
    const std::vector<double> rates = fairRates(bus, links, flows);

    // For each flow some limit is used up in which it has the largest rate: the bottleneck that makes it max-min fair.
    std::vector<bool> bottleneck(flows.size(), false);
    auto check = [&](double limit, auto &&applies) {
      double sum = 0, largest = 0;
      for (size_t f = 0; f < flows.size(); ++f) {
        if (applies(flows[f])) {
          sum += rates[f];
          largest = std::max(largest, rates[f]);
        }
      }
      RC_ASSERT(sum <= limit + 1e-9);
      for (size_t f = 0; f < flows.size(); ++f)
        bottleneck[f] = bottleneck[f] || (applies(flows[f]) && sum >= limit - 1e-9 && rates[f] >= largest - 1e-9);
    };
    auto checkPath = [&](const PathLimits &p, auto &&onPath) {
      check(p.h2d, [&](const Flow &f) { return onPath(f) && f.direction == kIn; });
      check(p.d2h, [&](const Flow &f) { return onPath(f) && f.direction == kOut; });
      check(p.both, onPath);
    };
    checkPath(bus, [](const Flow &) { return true; });
    for (uint32_t l = 0; l < links.size(); ++l)
      checkPath(links[l], [l](const Flow &f) { return f.link == l; });
    for (size_t f = 0; f < flows.size(); ++f) {
      RC_ASSERT(rates[f] <= flows[f].limit + 1e-9);
      RC_ASSERT(bottleneck[f] || rates[f] >= flows[f].limit - 1e-9);
    }
  }));
}

RC_GTEST_PROP(BusShareProperty, LevelsGiveTheFairRatesOfFlowsThatOnlyTheBusJoins, ()) {
  const auto below = [](int limit) { return *rc::gen::inRange(0, limit); };
  const auto limit = [&] { return below(3) == 0 ? std::numeric_limits<double>::infinity() : 1 + below(100) / 8.0; };
  const PathLimits bus = {limit(), limit(), limit()};
  std::vector<Flow> flows;
  std::array<std::vector<double>, 2> asked;
  for (int n = below(9); n > 0; --n) {
    const auto direction = static_cast<Direction>(below(2));
    flows.push_back({0, direction, 1 + below(60) / 8.0});
    asked[static_cast<size_t>(direction)].push_back(flows.back().limit);
  }
  const std::vector<double> rates = fairRates(bus, {}, flows);
  const std::array<double, 2> levels = fairLevels(bus, asked[0], asked[1]);
  for (size_t f = 0; f < flows.size(); ++f)
    RC_ASSERT(std::abs(std::min(levels[static_cast<size_t>(flows[f].direction)], flows[f].limit) - rates[f]) < 1e-9);
}

} // namespace
} // namespace headrace::sim
