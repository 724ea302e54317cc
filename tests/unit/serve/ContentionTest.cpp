// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/fleet/Contention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "runtime/core/BusShare.h"
#include "tests/unit/serve/BusReplay.h"

namespace headrace::serve {
namespace {

using testing::ElementsAre;

constexpr double kSecond = 1e9;

// Compute of 4 s that hides copies for 2 s; 6 bytes.
BusPlacement six() { return {1, 6, 0, 6, 4 * kSecond, 2 * kSecond, 4 * kSecond, 8}; }

TEST(Contention, APlacementTakesItsComputeAndWhatOfItsCopiesIsNotHidden) {
  EXPECT_EQ(timeAtRate(six(), 3), 4 * kSecond); // 2 s of copies, all hidden
  EXPECT_EQ(timeAtRate(six(), 2), 5 * kSecond);
  EXPECT_EQ(timeAtRate(six(), 1), 8 * kSecond);
  BusPlacement none = six();
  none.linkBytes = 0;
  EXPECT_EQ(timeAtRate(none, 1e-9), 4 * kSecond);
  EXPECT_EQ(aloneNs({2, {1, 5}}, 0, six()), 8 * kSecond); // its link is narrower
  EXPECT_EQ(aloneNs({2, {1, 5}}, 1, six()), 5 * kSecond);
}

TEST(Contention, FairRatesAreThoseOfTheBus) {
  // The bus has 24: link 0 takes its 4, links 1 and 2 share 20.
  const Bus bus{24, {4, 16, 16}};
  EXPECT_EQ(fairRate(bus, 0b111, 0), 4);
  EXPECT_EQ(fairRate(bus, 0b111, 1), 10);
  EXPECT_EQ(fairRate(bus, 0b110, 2), 12);
  EXPECT_EQ(fairRate(bus, 0b100, 2), 16);
  EXPECT_EQ(fairRate(bus, 0b011, 2), 10); // the device itself is always counted
}

TEST(Contention, FairRatesAreThoseOfTheBusForAllWhoCopy) {
  EXPECT_TRUE(rc::check([] {
    Bus bus{static_cast<double>(*rc::gen::inRange(1, 60)), {}};
    std::vector<core::LinkShare> shares;
    uint64_t copying = 0;
    for (uint32_t d = 0; d < 6; ++d) {
      bus.links.push_back(*rc::gen::inRange(1, 30));
      const bool copies = *rc::gen::arbitrary<bool>() || d == 0;
      copying |= uint64_t{copies} << d;
      shares.push_back({.limits = {.h2d = copies ? bus.links[d] : 0, .d2h = 0}});
    }
    core::shareBus({bus.bandwidth}, absl::MakeSpan(shares));
    for (uint32_t d = 0; d < 6; ++d)
      RC_ASSERT(((copying >> d) & 1) == 0 || fairRate(bus, copying, d) == shares[d].rates[0]);
  }));
}

TEST(Contention, SelectNsPlacementTakesWhatItsClosedFormDoesAtEveryRate) {
  EXPECT_TRUE(rc::check([] {
    const double rate = *rc::gen::inRange(1, 100);
    const uint64_t layerBytes = *rc::gen::inRange<uint64_t>(1, 5000);
    const cost::LayerTimes t = {*rc::gen::inRange<int64_t>(1, 80), *rc::gen::inRange(1, 200) * 1e9,
                                static_cast<double>(layerBytes) / rate * 1e9, *rc::gen::inRange(0, 50) * 1e9};
    const int64_t interval = *rc::gen::inRange<int64_t>(0, t.layers + 2);
    const BusPlacement p = selectNPlacement(t, layerBytes, interval);
    const double ns = timeAtRate(p, rate), exact = cost::emptyStartNs(t, interval);
    if (interval == 1 && t.transferNs < t.computeNs)
      RC_ASSERT(ns >= exact * (1 - 1e-12) && ns <= exact + t.computeNs);
    else
      RC_ASSERT(std::abs(ns - exact) <= 1e-9 * exact);
  }));
}

TEST(Contention, SelectNsPlacementCountsSlots) {
  // 8 layers of 100 bytes, interval 4: 2 offloaded, one slot.
  const BusPlacement p = selectNPlacement({8, 10, 50, 0}, 100, 4);
  EXPECT_EQ(p.linkBytes, 200u);
  EXPECT_EQ(p.freedBytes, 100u);
  EXPECT_EQ(p.deviceBytes, 700u);
  EXPECT_EQ(p.hiddenNs, 60); // 2 x 3 layers
  EXPECT_EQ(selectNPlacement({8, 10, 50, 0}, 100, 0).deviceBytes, 800u);
  EXPECT_EQ(selectNPlacement({8, 10, 50, 0}, 100, 1).freedBytes, 600u);
}

TEST(Contention, APlansTimeIsExtendedFromOneRateToLowerOnes) {
  // 100 bytes, 30 s at 10 bytes/s, compute 25: 20 s more of copying at 10 / 3 bytes/s.
  const BusPlacement p = planPlacement(25 * kSecond, 100, 30 * kSecond, 10);
  EXPECT_DOUBLE_EQ(timeAtRate(p, 10), 30 * kSecond);
  EXPECT_DOUBLE_EQ(timeAtRate(p, 10.0 / 3), 50 * kSecond);
  EXPECT_DOUBLE_EQ(timeAtRate(planPlacement(25 * kSecond, 0, 25 * kSecond, 10), 1), 25 * kSecond);
  // Compute is no longer than the whole, whatever its steps add up to.
  EXPECT_DOUBLE_EQ(timeAtRate(planPlacement(30 * kSecond, 100, 25 * kSecond, 10), 10), 25 * kSecond);
}

TEST(Contention, ATransitionComesBeforeAnIterationOfTheOtherPlacement) {
  const BusPlacement a = six();
  BusPlacement b = six();
  b.linkBytes = 2, b.computeNs = 5 * kSecond, b.hiddenNs = 1 * kSecond, b.shortestNs = 3 * kSecond;
  const BusPlacement t = transitionOf(a, b, {10, 3});
  // Itself: 10 bytes that nothing hides, then 5 s and 2 bytes of which 1 s is hidden.
  EXPECT_EQ(timeAtRate(t, 2), 5 * kSecond + 3 + 5 * kSecond);
  EXPECT_EQ(timeAtRate(t, 1), 10 * kSecond + 3 + 6 * kSecond);
  // To neighbours: an iteration of 3 s or more, with 10 bytes and 6 or 2 more. A window of 5 s touches 3.
  EXPECT_EQ(t.shortestNs, 3 * kSecond);
  EXPECT_EQ(mostBytesIn(5 * kSecond, t).h2d, 48);
  EXPECT_EQ(mostBytesIn(5 * kSecond, transitionOf(t, b, {1, 0})).h2d, 3 * 17);
  // Memory for both sides; freed, and tokens made, only what either does.
  b.deviceBytes = 9, b.freedBytes = 3, b.tokens = 5;
  BusPlacement a9 = a;
  a9.deviceBytes = 7, a9.freedBytes = 4, a9.tokens = 8;
  for (const BusPlacement &p : {transitionOf(a9, b, {}), transitionOf(b, a9, {})}) {
    EXPECT_EQ(p.deviceBytes, 9u);
    EXPECT_EQ(p.freedBytes, 3u);
    EXPECT_EQ(p.tokens, 5);
  }
  BusPlacement none = six();
  none.linkBytes = 0;
  EXPECT_TRUE(copies(transitionOf(a, none, {})));
  EXPECT_EQ(timeAtRate(transitionOf(a, none, {}), 1), 4 * kSecond);
}

TEST(Contention, BytesThatNothingHidesTakeTheirTime) {
  BusPlacement p = six();
  p.exposedBytes = 4;
  EXPECT_EQ(timeAtRate(p, 2), 7 * kSecond); // 4 + 4 / 2 + (6 / 2 - 2)
  // A window of 8 s touches 3 iterations of 4 s or more: 3 x (6 + 4), and once what the first stage copies.
  EXPECT_EQ(mostBytesIn(8 * kSecond, p).h2d, 30);
  p.first = {0, 5, 0, 2};
  EXPECT_EQ(mostBytesIn(8 * kSecond, p).h2d, 37);
  p.linkBytes = p.exposedBytes = 0;
  EXPECT_EQ(mostBytesIn(8 * kSecond, p).h2d, 7); // and never again
  EXPECT_TRUE(copies(p));
}

// Six, and 3 bytes back.
BusPlacement sixAndBack() {
  BusPlacement p = six();
  p.d2hBytes = 3;
  return p;
}

TEST(Contention, CopiesToTheHostTakeTheirTimeAtTheirRate) {
  // 4 + (6 / 3 + 3 / 1 - 2), and what nothing hides: 2 / 1.
  BusPlacement p = sixAndBack();
  EXPECT_EQ(timeAtRate(p, {3, 1}), 7 * kSecond);
  p.exposedD2hBytes = 2;
  EXPECT_EQ(timeAtRate(p, {3, 1}), 9 * kSecond);
  EXPECT_EQ(timeAtRate(p, 3), 4 * kSecond); // nothing is said of that direction: it limits nothing
  // Alone, on a link of 3 and 2 bytes/s: 4 + 2 / 2 + (6 / 3 + 3 / 2 - 2). Where the link has 3/4 of each for both at
  // once, 2.25 and 1.5.
  Bus bus{9, {3}};
  bus.d2hLinks = {2};
  EXPECT_EQ(aloneNs(bus, 0, p), 6.5 * kSecond);
  bus.bothShares = {0.75};
  EXPECT_NEAR(aloneNs(bus, 0, p), (4 + 2 / 1.5 + 6 / 2.25 + 3 / 1.5 - 2) * kSecond, 1);
  EXPECT_EQ(aloneNs(bus, 0, six()), 4 * kSecond); // what copies in one direction has all of that
  EXPECT_EQ(stageBytes(stageOf(p, Stage::Iteration)).d2h, 5u);
  EXPECT_EQ(movedBytes(p), 11u);
  EXPECT_TRUE(copies(p, Direction::DeviceToHost));
  EXPECT_FALSE(copies(six(), Direction::DeviceToHost));
  // A plan's time, extended to lower rates of both directions: 30 s at 10 and 5 bytes/s, 100 bytes and 10.
  const BusPlacement of = planPlacement(25 * kSecond, {100, 10}, 30 * kSecond, {10, 5});
  EXPECT_DOUBLE_EQ(timeAtRate(of, {10, 5}), 30 * kSecond);
  EXPECT_DOUBLE_EQ(timeAtRate(of, {5, 2}), (30 + 10 + 3) * kSecond);
}

TEST(Contention, FairRatesAreThoseOfBothDirections) {
  // The bus has 24, 10 back, 26 together.
  Bus bus{24, {16, 16, 16}, 10, 26};
  bus.d2hLinks = {16, 16, 16};
  FairRates rates(bus);
  EXPECT_EQ(rates.of({0b011, 0}, 0).h2d, 12);
  EXPECT_EQ(rates.of({0b011, 0}, 0).d2h, 16); // it is not counted with those: what its link has
  // Four copies of 26 would have 6.5 each; two back have 5 of 10, the others 8 of what is left.
  EXPECT_EQ(rates.of({0b011, 0b011}, 0).h2d, 8);
  EXPECT_EQ(rates.of({0b011, 0b011}, 0).d2h, 5);
  // Of the link of device 0 half is left of each direction while both copy: 8 and 8. Others have all of theirs.
  bus.bothShares = {0.5, 1, 1};
  EXPECT_EQ(FairRates(bus).of({0b001, 0b001}, 0).h2d, 8);
  EXPECT_EQ(FairRates(bus).of({0b001, 0b001}, 0).d2h, 8);
  EXPECT_EQ(FairRates(bus).of({0b001, 0}, 0).h2d, 16);
}

TEST(Contention, CopiesLoseToThoseOfTheirDirectionAndToWhatBothShare) {
  const OwnBytes own{6, 0, false}, bothWays{6, 3, true};
  // Directions apart: 4 of 6 bytes, at 2 bytes/s.
  EXPECT_EQ(lostNs({2, {}}, own, {4, 100}), 2 * kSecond);
  EXPECT_EQ(lostNs({2, {}, 1}, bothWays, {4, 100}), (2 + 3) * kSecond); // and 3 at 1 byte/s
  // 2 bytes/s for both together: 4 to the device and 6 of those back.
  EXPECT_EQ(lostNs({2, {}, 2, 2}, own, {4, 100}), (2 + 3) * kSecond);
  // Own copies may have half of 4 of it: 4 + 6 at 2 bytes/s, 3 + 3 of those back.
  EXPECT_EQ(lostNs({4, {}, 4, 4}, bothWays, {4, 100}), (2 + 3 + 1.5 + 1.5) * kSecond);
  EXPECT_EQ(lostNs({2, {}, 2, 2}, own, {}), 0);
}

// What is handed over beside iterations is on the bus once, and nothing of its own device's time.
TEST(Contention, WhatIsCopiedBesideIterationsCountsOnceToOthers) {
  BusPlacement p = six();
  p.besideBytes = 5;
  p.besideD2hBytes = 7;
  // A window of 8 s touches 3 iterations of 4 s or more.
  EXPECT_EQ(mostBytesIn(8 * kSecond, p).h2d, 3 * 6 + 5);
  EXPECT_EQ(mostBytesIn(8 * kSecond, p).d2h, 7);
  EXPECT_EQ(timeAtRate(p, {3, 1}), 4 * kSecond);
  EXPECT_EQ(transitionOf(six(), p, {10, 3}).besideBytes, 5u);
  BusPlacement back = six();
  back.d2hBytes = 1;
  EXPECT_TRUE(ownBytes(back, Stage::Iteration).bothWays);
  back.linkBytes = 0;
  EXPECT_FALSE(ownBytes(back, Stage::Iteration).bothWays);
  back.besideBytes = 5;
  EXPECT_TRUE(ownBytes(back, Stage::Iteration).bothWays);
}

TEST(Contention, AFirstStageHasItsOwnObjective) {
  // 12 bytes of KV cache at 3 bytes/s: 4 s alone; 8 s at half the bus, or 4 + 6 / 3 beside 6 bytes that the neighbour,
  // which prefills, moves once.
  const Bus bus{3, {3, 3}};
  BusPlacement decode = six(), prefill = six();
  decode.first = {0, 0, 0, 12};
  prefill.linkBytes = 0;
  prefill.first = {1 * kSecond, 6, 0, 0};
  std::vector<BusLoad> loads = {{0, 20 * kSecond, {decode}, 7 * kSecond}, {1, 20 * kSecond, {prefill}}};
  EXPECT_EQ(contendedNs(bus, loads, {0, 0}, Stage::First)[0], 6 * kSecond);
  EXPECT_TRUE(admissible(bus, loads, {0, 0}));
  loads[0].firstSloNs = 5 * kSecond;
  EXPECT_FALSE(admissible(bus, loads, {0, 0}));
  // The neighbour's iterations wait for the 12 bytes once; its own compute is not delayed.
  EXPECT_EQ(contendedNs(bus, loads, {0, 0})[1], 4 * kSecond);
}

// To neighbours a change may show either side's first stage; its own objective has the worse of each part.
TEST(Contention, AFirstStageOfTwoPlacementsIsTheWorseOfEachPart) {
  BusPlacement a = six(), b = six();
  a.first = {3 * kSecond, 5, 2 * kSecond, 1};
  b.first = {2 * kSecond, 7, 1 * kSecond, 4};
  const BusStage worse = transitionOf(a, b, {}).first;
  EXPECT_EQ(worse.computeNs, 3 * kSecond);
  EXPECT_EQ(worse.linkBytes, 7u);
  EXPECT_EQ(worse.hiddenNs, 1 * kSecond); // what hides least
  EXPECT_EQ(worse.exposedBytes, 4u);
  EXPECT_EQ(timeAtRate(worse, 1), 3 * kSecond + 4 * kSecond + 6 * kSecond);
  // What copies nothing has nothing to hide: the other one's time counts, not the smaller.
  b.first = {2 * kSecond, 0, 0, 4};
  EXPECT_EQ(transitionOf(a, b, {}).first.hiddenNs, 2 * kSecond);
  EXPECT_EQ(transitionOf(b, a, {}).first.hiddenNs, 2 * kSecond);
  // What is known of both alone is known of the worse; of one only, of neither.
  a.first.soloNs = 5 * kSecond, a.first.soloRate = 2;
  EXPECT_EQ(transitionOf(a, b, {}).first.soloNs, 0);
  b.first.soloNs = 4 * kSecond, b.first.soloRate = 3;
  EXPECT_EQ(transitionOf(a, b, {}).first.soloNs, 5 * kSecond);
  EXPECT_EQ(transitionOf(a, b, {}).first.soloRate, 3);
}

TEST(Contention, WhatIsKnownAloneCountsWhereNobodyElseSlowsACopy) {
  // By its bytes 4 + 6 / 3 + (2 - 2) = 6 s; alone 5 s at 3 bytes/s or more.
  BusPlacement p = six();
  p.exposedBytes = 6, p.soloNs = 5 * kSecond, p.soloRate = 3;
  EXPECT_EQ(timeAtRate(p, 3), 5 * kSecond);
  EXPECT_EQ(timeAtRate(p, 2), 8 * kSecond); // 4 + 3 + (3 - 2)
  EXPECT_EQ(delayableNs(stageOf(p, Stage::Iteration), 3), 6 * kSecond);
  BusPlacement other = six();
  const std::vector<BusLoad> loads = {{0, 20 * kSecond, {p}}, {1, 20 * kSecond, {other}}};
  EXPECT_EQ(contendedNs({6, {3, 3}}, loads, {0, 0})[0], 5 * kSecond); // the bus has room for both links
  // Of 4 bytes/s each may have 2: 8 s. Delays add to the 6 s: 12 bytes at 4 bytes/s are 3 s.
  EXPECT_EQ(contendedNs({4, {3, 3}}, loads, {0, 0})[0], 8 * kSecond);
  EXPECT_EQ(transitionOf(p, p, {}).soloNs, 0); // what a change adds is not known so
  // Neither beats the other where only one is known alone.
  EXPECT_FALSE(noWorse(stageOf(other, Stage::Iteration), stageOf(p, Stage::Iteration)) &&
               noWorse(stageOf(p, Stage::Iteration), stageOf(other, Stage::Iteration)));
  other.exposedBytes = 6;
  EXPECT_FALSE(noWorse(stageOf(other, Stage::Iteration), stageOf(p, Stage::Iteration)));
  EXPECT_TRUE(noWorse(stageOf(p, Stage::Iteration), stageOf(other, Stage::Iteration)));
}

// Device 0 prefills what device 1 decodes: 6 bytes in its prompts, 2 in a transition, 12 of KV cache, 6 an iteration.
TEST(Contention, APairIsNotItsOwnNeighbour) {
  const Bus bus{3, {3, 3, 3}};
  BusPlacement decode = six();
  decode.first = {0, 0, 0, 14};
  std::vector<BusLoad> loads = {{0, 20 * kSecond, {six()}}, {1, 20 * kSecond, {decode}, 20 * kSecond}};
  loads[0].decodedBy = 1;
  loads[1].handoverBytes = 12;
  // The prefill: 4 s and 2 bytes of the transition beside its own. The iterations: 4 s, with nothing beside them.
  EXPECT_DOUBLE_EQ(contendedNs(bus, loads, {0, 0})[0], (4 + 2 / 3.0) * kSecond);
  EXPECT_EQ(contendedNs(bus, loads, {0, 0})[1], 4 * kSecond);
  // The transition runs while the prompts do: 14 bytes beside at least 6.
  EXPECT_EQ(mostBytesBeside(loads[1], Stage::First, loads[0], six()).h2d, 6 * 6);
  // A third device has both beside it, and both have it: 1.5 bytes/s, 6 s, or 6 bytes each.
  loads.push_back({2, 20 * kSecond, {six()}});
  EXPECT_EQ(contendedNs(bus, loads, {0, 0, 0})[2], 8 * kSecond);
  EXPECT_EQ(contendedNs(bus, loads, {0, 0, 0})[1], 6 * kSecond);
  // Two requests: the prefill of the one runs beside the decoding of the other.
  loads.pop_back();
  loads[0].decodedBy = kNoDevice;
  EXPECT_EQ(contendedNs(bus, loads, {0, 0})[1], 6 * kSecond);
}

TEST(Contention, TheSmallerOfTheTwoBoundsCounts) {
  // Alone 6 bytes at 3 bytes/s: 4 s. By share 1.5 bytes/s: 4 + (4 - 2) = 6 s. By delay: the neighbour moves 1 byte an
  // iteration of 4 s or more; a window of 8 s touches 3 of them: 3 bytes, 1 s: 5 s.
  const Bus bus{3, {3, 3}};
  BusPlacement small = six();
  small.linkBytes = 1;
  std::vector<BusLoad> loads = {{0, 8 * kSecond, {six()}}, {1, 8 * kSecond, {small}}};
  EXPECT_EQ(contendedNs(bus, loads, {0, 0})[0], 5 * kSecond);
  loads[1].placements[0].shortestNs = 0; // unknown: as much as its own 6 bytes, so 6 s by either
  EXPECT_EQ(contendedNs(bus, loads, {0, 0})[0], 6 * kSecond);
  loads[1].placements[0].linkBytes = 0;
  EXPECT_EQ(contendedNs(bus, loads, {0, 0})[0], 4 * kSecond);
}

// The printed condition of Figure 8: mean rates, each of an iteration alone, add up to less than the bus.
TEST(Contention, MeanRatesBelowTheBandwidthProveNoSlo) {
  // Two devices, 12 layers of 1 s, one copy of 10 bytes behind 10 s of compute: alone on a bus of 1 byte/s 12 s, a mean
  // rate of 10 / 12. On a bus of 1.7 the rates add up to less. Copies that start together take 11.8 s each: 13.8 s.
  const cost::LayerTimes t = {12, 1 * kSecond, 10 * kSecond, 0};
  BusPlacement p = selectNPlacement(t, 10, 11);
  const Bus bus{1.7, {1, 1}};
  const std::vector<BusLoad> loads = {{0, 12.5 * kSecond, {p}}, {1, 12.5 * kSecond, {p}}};
  double rates = 0; // bytes/s
  for (const BusLoad &load : loads)
    rates += 10 / (contendedNs(bus, {&load, 1}, {0})[0] / kSecond);
  EXPECT_NEAR(rates, 2 * 10.0 / 12, 1e-9);
  EXPECT_LT(rates, bus.bandwidth);
  EXPECT_FALSE(admissible(bus, loads, {0, 0}));
  const std::vector<ReplayDevice> devices = {{12, 11, 1, 10, 0}, {12, 11, 1, 10, 0}};
  EXPECT_GT(longestIterations(bus, devices, 3)[0], 12.5);
}

// Devices that run one iteration after another under Select-N's rule, beginning at any moments, never take longer than
// the bound: played as a fluid with the simulator's rates.
TEST(Contention, BoundsWhatAReplayOnTheBusTakes) {
  EXPECT_TRUE(rc::check([] {
    const auto count = *rc::gen::inRange<uint32_t>(1, 5);
    Bus bus{*rc::gen::inRange(5, 40) / 10.0, {}};
    std::vector<ReplayDevice> devices;
    std::vector<BusLoad> loads;
    for (uint32_t d = 0; d < count; ++d) {
      bus.links.push_back(*rc::gen::inRange(5, 40) / 10.0);
      ReplayDevice r;
      r.layers = *rc::gen::inRange<int64_t>(2, 13);
      r.interval = *rc::gen::inRange<int64_t>(2, 8);
      r.computeSeconds = *rc::gen::inRange(1, 20) / 10.0;
      r.layerBytes = *rc::gen::inRange(1, 12);
      r.offsetSeconds = *rc::gen::inRange(0, 100) / 10.0;
      devices.push_back(r);
      loads.push_back({d,
                       *rc::gen::inRange(1, 60) * kSecond,
                       {selectNPlacement({r.layers, r.computeSeconds * kSecond, 0, 0},
                                         static_cast<uint64_t>(r.layerBytes), r.interval)}});
    }
    const std::vector<double> bounds = contendedNs(bus, loads, std::vector<uint32_t>(count, 0));
    const std::vector<double> longest = longestIterations(bus, devices, 12);
    for (uint32_t d = 0; d < count; ++d) {
      // The delay bound is one of iterations that end within the window.
      const double share = timeAtRate(loads[d].placements[0], fairRate(bus, ~uint64_t{0} >> (64 - count), d));
      RC_ASSERT(longest[d] * kSecond <= share * (1 + 1e-9) + 1);
      if (bounds[d] <= loads[d].sloNs)
        RC_ASSERT(longest[d] * kSecond <= bounds[d] * (1 + 1e-9) + 1);
    }
  }));
}

} // namespace
} // namespace headrace::serve
