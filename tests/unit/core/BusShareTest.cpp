// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/BusShare.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace headrace::core {
namespace {

using testing::ElementsAre;

constexpr double kNone = std::numeric_limits<double>::infinity();

PathLimits each(double h2d, double d2h, double both) { return {h2d, d2h, both}; }

std::vector<LinkShare> shared(const PathLimits &bus, const std::vector<PathLimits> &links) {
  std::vector<LinkShare> shares;
  for (const PathLimits &limits : links)
    shares.push_back({.limits = limits, .rates = {-7, 7}, .byBus = {true, true}}); // what was there does not count
  shareBus(bus, absl::MakeSpan(shares));
  return shares;
}

// Of each link: h2d, d2h. A limit of 0 is a direction in which nothing is copied.
std::vector<std::pair<double, double>> rates(const PathLimits &bus, const std::vector<PathLimits> &links) {
  std::vector<std::pair<double, double>> all;
  for (const LinkShare &share : shared(bus, links))
    all.emplace_back(share.rates[0], share.rates[1]);
  return all;
}
std::vector<double> h2dRates(const PathLimits &bus, const std::vector<PathLimits> &links) {
  std::vector<double> all;
  for (const auto &[h2d, d2h] : rates(bus, links))
    all.push_back(h2d);
  return all;
}

TEST(BusShare, ACopyAloneGetsTheNarrowestPartOfItsPath) {
  EXPECT_THAT(h2dRates(each(24, 24, 40), {each(16, 0, 32)}), ElementsAre(16));
  EXPECT_THAT(h2dRates(each(12, 24, 40), {each(16, 0, 32)}), ElementsAre(12));
  EXPECT_THAT(h2dRates(each(24, 24, 10), {each(16, 0, 32)}), ElementsAre(10));
  EXPECT_THAT(h2dRates(each(24, 24, 40), {each(16, 0, 8)}), ElementsAre(8));
}

TEST(BusShare, TwoDevicesGetHalfTheBusEach) {
  EXPECT_THAT(h2dRates(each(24, 24, 48), {each(24, 0, 48), each(24, 0, 48)}), ElementsAre(12, 12));
}

TEST(BusShare, WhatANarrowLinkCannotTakeGoesToTheOthers) {
  // The bus has 24: link 0 takes its 4, links 1 and 2 share 20.
  EXPECT_THAT(h2dRates(each(24, 24, 48), {each(4, 0, 8), each(16, 0, 32), each(16, 0, 32)}), ElementsAre(4, 10, 10));
  // A fair sixth of 60 is 10: 1 and 6 are less and leave 53 to four, 13.25 each; 12 and 13 are less than that and leave
  // 28 to two.
  EXPECT_THAT(h2dRates({60}, {{1, 0}, {6, 0}, {12, 0}, {13, 0}, {30, 0}, {30, 0}}), ElementsAre(1, 6, 12, 13, 14, 14));
}

TEST(BusShare, DirectionsHaveLimitsOfTheirOwnAndOneTogether) {
  const std::vector<PathLimits> links = {each(24, 24, 48)};
  EXPECT_THAT(rates(each(24, 24, 48), links), ElementsAre(std::pair(24, 24)));
  EXPECT_THAT(rates(each(24, 24, 30), links), ElementsAre(std::pair(15, 15)));
  // d2h stops at 10; of the 30 together h2d gets 20.
  EXPECT_THAT(rates(each(24, 10, 30), links), ElementsAre(std::pair(20, 10)));
}

TEST(BusShare, ALinksDirectionsShareWhatItHasForBoth) {
  EXPECT_THAT(rates({}, {each(24, 24, 30)}), ElementsAre(std::pair(15, 15)));
  // The bus stops h2d at 4, so of the link's 10 together d2h gets 6, not 5.
  EXPECT_THAT(rates({4}, {each(10, 10, 10)}), ElementsAre(std::pair(4, 6)));
  // Link 0's copies stop at 5 each by their link; of the bus's 40 together link 1's get 15 each.
  EXPECT_THAT(rates(each(kNone, kNone, 40), {each(20, 20, 10), each(20, 20, 40)}),
              ElementsAre(std::pair(5, 5), std::pair(15, 15)));
}

TEST(BusShare, SaysWhomTheBusStops) {
  // h2d: link 0 at its own 4, link 1 at 8 by the bus. d2h: link 0 at 6 by what it has for both, link 1 at its own 9.
  const std::vector<LinkShare> shares = shared({12}, {each(4, 9, 10), each(9, 9, 18)});
  EXPECT_THAT(shares[0].rates, ElementsAre(4, 6));
  EXPECT_THAT(shares[1].rates, ElementsAre(8, 9));
  EXPECT_THAT(shares[0].byBus, ElementsAre(false, false));
  EXPECT_THAT(shares[1].byBus, ElementsAre(true, false));
  // Where its own limit is all that the bus has for it, nobody is the slower for the bus; rounding (3 x 0.1 > 0.3) does
  // not count.
  for (const LinkShare &share : shared({0.3}, {{0.1, 0}, {0.1, 0}, {0.1, 0}})) {
    EXPECT_EQ(share.rates[0], 0.1);
    EXPECT_FALSE(share.byBus[0]);
  }
}

TEST(BusShare, WhatNothingLimitsIsInfinite) {
  EXPECT_THAT(rates({}, {{}, each(3, 0, kNone)}), ElementsAre(std::pair(kNone, kNone), std::pair(3, 0)));
  // Beside one that is, limits still hold: 8 of the bus's d2h for two.
  EXPECT_THAT(rates(each(kNone, 8, kNone), {{}, {}}), ElementsAre(std::pair(kNone, 4), std::pair(kNone, 4)));
}

TEST(BusShare, ABusOfZeroStopsOnlyWhatIsUnderIt) {
  EXPECT_THAT(rates(each(0, 24, 48), {each(24, 24, 48)}), ElementsAre(std::pair(0, 24)));
  EXPECT_THAT(rates(each(24, 24, 48), {each(24, 0, 0), each(24, 0, 48)}),
              ElementsAre(std::pair(0, 0), std::pair(24, 0)));
}

TEST(BusShare, NoCopiesNoRates) {
  EXPECT_TRUE(rates(each(1, 1, 1), {}).empty());
  EXPECT_THAT(rates(each(1, 1, 1), {each(0, 0, 1)}), ElementsAre(std::pair(0, 0)));
}

TEST(MemoryLevel, WhoAsksForLessThanAnEqualPartLeavesTheOthersMore) {
  EXPECT_EQ(memoryLevel(26, {{15, 20}}), 13);
  // 24 among three is 8: 6 is less and leaves 18 to two.
  EXPECT_EQ(memoryLevel(24, {{6, 12, 18}}), 9);
  EXPECT_EQ(memoryLevel(24, {{0, 6, 0, 12, 18}}), 9); // who asks for nothing has no part
  EXPECT_EQ(memoryLevel(36, {{6, 12, 18}}), kNone);
  EXPECT_EQ(memoryLevel(kNone, {{6, 12, 18}}), kNone);
  EXPECT_EQ(memoryLevel(5, {}), kNone);
}

// Of all limits at once: each holds, and each copy either has all that its own link's direction gives or is under a
// limit that is used up and in which nobody has more: raising it would lower one that has no more than it.
RC_GTEST_PROP(BusShareProperty, LimitsHoldAndNobodyCanHaveMoreUnlessOneWithNoMoreHasLess, ()) {
  const auto below = [](int limit) { return *rc::gen::inRange(0, limit); };
  // Eighths as well as tenths, whose sums are rounded; few enough that limits coincide.
  const double unit = below(2) == 0 ? 0.125 : 0.1;
  const auto amount = [&](int most) { return (1 + below(most)) * unit; };
  const auto limit = [&](int most) { return below(3) == 0 ? kNone : amount(most); };
  const PathLimits bus = {limit(100), limit(100), limit(160)};
  std::vector<PathLimits> links;
  for (int n = below(7); n > 0; --n)
    links.push_back({below(4) == 0 ? 0 : amount(40), below(2) == 0 ? 0 : amount(40), limit(60)});
  const std::vector<LinkShare> shares = shared(bus, links);

  std::vector<std::array<bool, 2>> stopped(links.size()), stoppedByBus(links.size());
  // A limit on what `applies` to, a link and a direction.
  const auto check = [&](double limit, std::vector<std::array<bool, 2>> &marks, auto &&applies) {
    double sum = 0, largest = 0;
    for (size_t l = 0; l < links.size(); ++l)
      for (size_t d = 0; d < 2; ++d)
        if (applies(l, d)) {
          sum += shares[l].rates[d];
          largest = std::max(largest, shares[l].rates[d]);
        }
    RC_ASSERT(sum <= limit + 1e-9);
    for (size_t l = 0; l < links.size(); ++l)
      for (size_t d = 0; d < 2; ++d)
        marks[l][d] = marks[l][d] || (applies(l, d) && sum >= limit - 1e-9 && shares[l].rates[d] >= largest - 1e-9);
  };
  check(bus.h2d, stoppedByBus, [](size_t, size_t d) { return d == 0; });
  check(bus.d2h, stoppedByBus, [](size_t, size_t d) { return d == 1; });
  check(bus.both, stoppedByBus, [](size_t, size_t) { return true; });
  for (size_t link = 0; link < links.size(); ++link)
    check(links[link].both, stopped, [&](size_t l, size_t) { return l == link; });
  for (size_t l = 0; l < links.size(); ++l)
    for (size_t d = 0; d < 2; ++d) {
      const double own = d == 0 ? links[l].h2d : links[l].d2h, rate = shares[l].rates[d];
      RC_ASSERT(rate >= 0 && rate <= own);
      RC_ASSERT(rate == own || stopped[l][d] || stoppedByBus[l][d]);
      RC_ASSERT(shares[l].byBus[d] == (rate < own && !stopped[l][d]));
    }
}

// The same with host memory, which copies and the CPU share: flows 0 to 5 are links' directions, flow 6 is the CPU's.
RC_GTEST_PROP(BusShareProperty, WithHostMemoryNobodyCanHaveMoreUnlessOneWithNoMoreHasLess, ()) {
  const auto below = [](int limit) { return *rc::gen::inRange(0, limit); };
  const auto amount = [&](int most) { return (1 + below(most)) * 0.125; };
  const auto limit = [&](int most) { return below(3) == 0 ? kNone : amount(most); };
  const PathLimits bus = {limit(100), limit(100), limit(160)};
  std::vector<PathLimits> links;
  for (int n = 0; n < 3; ++n)
    links.push_back({below(4) == 0 ? 0 : amount(40), below(2) == 0 ? 0 : amount(40), limit(60)});
  const double memory = limit(160);
  std::vector<double> own, asks;
  for (const LinkShare &share : shared(bus, links)) {
    own.insert(own.end(), {share.limits.h2d, share.limits.d2h});
    asks.insert(asks.end(), share.rates.begin(), share.rates.end());
  }
  own.push_back(below(2) == 0 ? 0 : amount(60));
  asks.push_back(own.back());
  const double level = memoryLevel(memory, asks);
  std::vector<double> rates;
  for (const double ask : asks)
    rates.push_back(std::min(ask, level));

  std::vector<bool> stopped(rates.size());
  const auto check = [&](double most, auto &&applies) {
    double sum = 0, largest = 0;
    for (size_t f = 0; f < rates.size(); ++f)
      if (applies(f)) {
        sum += rates[f];
        largest = std::max(largest, rates[f]);
      }
    RC_ASSERT(sum <= most + 1e-9);
    for (size_t f = 0; f < rates.size(); ++f)
      stopped[f] = stopped[f] || (applies(f) && sum >= most - 1e-9 && rates[f] >= largest - 1e-9);
  };
  check(memory, [](size_t) { return true; });
  check(bus.h2d, [](size_t f) { return f < 6 && f % 2 == 0; });
  check(bus.d2h, [](size_t f) { return f % 2 == 1; });
  check(bus.both, [](size_t f) { return f < 6; });
  for (size_t link = 0; link < links.size(); ++link)
    check(links[link].both, [&](size_t f) { return f / 2 == link; });
  for (size_t f = 0; f < rates.size(); ++f)
    RC_ASSERT(rates[f] >= own[f] - 1e-12 || stopped[f]);
}

} // namespace
} // namespace headrace::core
