// SPDX-License-Identifier: Apache-2.0
//
// Layers that take turns, what cycles take beside compute, and which way tails are swapped.
#include "passes/algorithms/TakeTurns.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "passes/algorithms/CycleOf.h"
#include "passes/algorithms/CycleTime.h"
#include "rapidcheck.h"
#include "tests/support/LongRun.h"
#include "tests/unit/algorithms/PlayCycle.h"
#include "gtest/gtest.h"

namespace headrace::algorithms {
namespace {

std::string text(const Cycle::Phase &phase) {
  std::string text = "entry";
  for (const int32_t layer : phase.entry)
    text += layer < 0 ? " -" : " " + std::to_string(layer);
  text += "; in";
  for (const PlaceMove &move : phase.moves)
    text += " " + std::to_string(move.layer) + ">" + std::to_string(move.place) + "@" + std::to_string(move.after);
  text += "; out";
  for (const PlaceExit &exit : phase.exits)
    text += " " + std::to_string(exit.layer) + "<" + std::to_string(exit.place) + "@" + std::to_string(exit.after);
  return text;
}

// The header's: 0, 2, 4 and 6 take turns in places 4 and 5.
TEST(TakeTurns, OneGoesWhileAnotherComes) {
  const Cycle cycle = takeTurns(8, 6, 2);
  ASSERT_EQ(cycle.period(), 1u);
  EXPECT_EQ(text(cycle.phases[0]), "entry 1 3 5 7 0 -; in 2>5@-1 4>4@0 6>5@2 0>4@4; out 0<4@0 2<5@2 4<4@4 6<5@6");
  // Five in two: where the first of them is at an edge changes.
  const Cycle five = takeTurns(8, 5, 2);
  ASSERT_EQ(five.period(), 2u);
  EXPECT_EQ(text(five.phases[0]), "entry 2 5 7 0 -; in 1>4@-1 3>3@0 4>4@1 6>3@3 0>4@4; out 0<3@0 1<4@1 3<3@3 4<4@4 "
                                  "6<3@6");
  EXPECT_EQ(text(five.phases[1]), "entry 2 5 7 - 0; in 1>3@-1 3>4@0 4>3@1 6>4@3 0>3@4; out 0<4@0 1<3@1 3<4@3 4<3@4 "
                                  "6<4@6");
  // In one place: each comes once the one before it is home.
  EXPECT_EQ(text(takeTurns(8, 6, 1).phases[0]), "entry 1 3 4 6 7 -; in 0>5@-1 2>5@0 5>5@2; out 0<5@0 2<5@2 5<5@5");
}

TEST(TakeTurns, AreSound) {
  for (int32_t layers = 3; layers <= casesOf(24, 64); ++layers)
    for (int32_t places = 2; places < layers; ++places)
      for (int32_t turning = 1; turning <= std::min(places, 5); ++turning) {
        const Cycle cycle = takeTurns(layers, places, turning);
        const std::string what = std::to_string(layers) + " " + std::to_string(places) + " " + std::to_string(turning);
        ASSERT_EQ(wrongIn(cycle, layers), "") << what;
        ASSERT_LE(cycle.period(), static_cast<uint64_t>(turning)) << what;
        for (const Cycle::Phase &phase : cycle.phases) {
          ASSERT_EQ(phase.moves.size(), static_cast<size_t>(layers - places + turning)) << what;
          ASSERT_EQ(phase.exits.size(), phase.moves.size()) << what;
        }
      }
}

// The header's picture: twelve quarters are three layers' compute. Four pairs, each begun a quarter of a layer late on
// the way out, since the layer writes first: 12, and then 1 + 12 three times or 12, as the ends of pairs meet.
TEST(CycleTime, OfPairs) {
  const Cycle turns = takeTurns(8, 6, 2);
  // The first: in 0 to 12, out 1 to 13. The second: 2 computes from 12 on and has written at 13, in and out 13 to 25.
  // The third: 4 from 25, in from 25 to 37, out 26 to 38; the fourth both 38 to 50.
  EXPECT_EQ(cycleTime(turns, 8, {4, 12, 12}), 50);
  // On a link with half of the rate for each while both are at work: in alone for 1, both until 1 + (12 - 1) x 2, out
  // alone for 1; in two iterations three each.
  EXPECT_EQ(cycleTime(takeTurns(3, 2, 2), 3, {4, 12, 12, 500}), 2 * 3 * 24);
  // In one place, each once the one before it is home: 0 in, 1 written, 0 out: 3 x (12 + 1 + 12).
  EXPECT_EQ(cycleTime(takeTurns(8, 6, 1), 8, {4, 12, 12}), 3 * 25);
  // Nothing waits for short copies: 8 x 4, and the last way home behind the sixth layer.
  EXPECT_EQ(cycleTime(turns, 8, {4, 1, 1}), 32);
  // Longer home than in: each pair takes the way home, and the first layer writes first.
  EXPECT_EQ(cycleTime(turns, 8, {4, 8, 20}), 1 + 4 * 20);
}

// Time goes on by one, and what may begin does: an oracle without events.
int64_t timeByTicks(const Cycle &cycle, int32_t layers, const KvSwapTimes &times) {
  int64_t total = 0;
  for (const Cycle::Phase &phase : cycle.phases) {
    std::map<int32_t, int32_t> here; // by place: the layer in it, -1 while it is on its way
    for (size_t place = 0; place < phase.entry.size(); ++place)
      if (phase.entry[place] >= 0)
        here[static_cast<int32_t>(place)] = phase.entry[place];
    std::map<int32_t, int64_t> computed; // by layer: ticks in this iteration
    size_t in = 0, out = 0, left = 0;    // of those home the place has been left
    int64_t inLeft = 0, outLeft = 0;     // thousandths of ticks
    int64_t time = 0;
    const auto isHere = [&](int32_t layer) {
      return std::any_of(here.begin(), here.end(), [&](const auto &at) { return at.second == layer; });
    };
    for (;; ++time) {
      int32_t layer = 0; // that computes, or is to
      while (layer < layers && computed[layer] == times.compute)
        ++layer;
      // Behind its own exit is who comes into its place.
      if (out < phase.exits.size() && outLeft == 0) {
        const PlaceExit &exit = phase.exits[out];
        if (exit.after < exit.layer || computed[exit.layer] >= times.compute / 4)
          outLeft = times.out * 1000;
      }
      if (in < phase.moves.size() && inLeft == 0) {
        const PlaceMove &move = phase.moves[in];
        if (!here.contains(move.place)) {
          inLeft = times.in * 1000;
          here[move.place] = -1;
        }
      }
      const bool computes = layer < layers && (computed[layer] > 0 || isHere(layer));
      if (!computes && inLeft == 0 && outLeft == 0)
        break;
      if (computes)
        ++computed[layer];
      const int64_t rate = inLeft > 0 && outLeft > 0 ? times.both : 1000;
      if (inLeft > 0 && (inLeft -= rate) <= 0) {
        inLeft = 0;
        here[phase.moves[in].place] = phase.moves[in].layer;
        ++in;
      }
      if (outLeft > 0 && (outLeft -= rate) <= 0) {
        outLeft = 0;
        ++out;
      }
      // A place is empty once its layer is home, and has computed.
      for (; left < out; ++left) {
        const PlaceExit &exit = phase.exits[left];
        if (exit.after >= exit.layer && computed[exit.layer] < times.compute)
          break;
        here.erase(exit.place);
      }
    }
    EXPECT_EQ(in, phase.moves.size());
    EXPECT_EQ(out, phase.exits.size());
    EXPECT_EQ(computed[layers - 1], times.compute);
    total += time;
  }
  return total;
}

TEST(CycleTime, AgainstTicks) {
  rc::check("as tick by tick", [] {
    const auto layers = *rc::gen::inRange(3, 16);
    const auto places = *rc::gen::inRange(2, layers);
    const auto compute = *rc::gen::inRange(1, 12), in = *rc::gen::inRange(1, 40), out = *rc::gen::inRange(1, 40);
    const KvSwapTimes times = {4 * compute, in, out, *rc::gen::element(1000, 500, 750, 333)};
    const Cycle turns = takeTurns(layers, places, *rc::gen::inRange(1, places + 1));
    RC_ASSERT(cycleTime(turns, layers, times) == timeByTicks(turns, layers, times));
    const KvSwapProblem problem = {layers, places, {1, 1 + in / 4, 1 + out / 4}, true};
    if (const std::optional<KvSwapCycle> found = kvSwapCycle(problem, 64)) {
      const Cycle protocol = cycleOfSwaps(problem, *found);
      RC_ASSERT(cycleTime(protocol, layers, times) == timeByTicks(protocol, layers, times));
    }
  });
}

Residency swapped(int64_t places, SwapVisits visits) {
  Residency residency;
  residency.kv().setPlaces(places, visits);
  return residency;
}
// Of an iteration in the mean, by what all compute takes, what both directions take, and what they take at once.
double byItsLimit(const Cycle &cycle, int32_t layers, const KvSwapTimes &times) {
  int64_t limit = 0;
  for (const Cycle::Phase &phase : cycle.phases) {
    const auto in = static_cast<int64_t>(phase.moves.size()) * times.in,
               out = static_cast<int64_t>(phase.exits.size()) * times.out;
    limit += std::max({layers * times.compute, in, out, (in + out) * 500 / times.both});
  }
  return static_cast<double>(cycleTime(cycle, layers, times)) / static_cast<double>(limit);
}

// Llama-3.1-8B, 2 sequences at 32,768 on an H200: a swap takes 27 layers' compute, each way at 0.841 of its rate alone
// while both are at work. 23 places: the protocol brings ten caches through one place, in and out by turns; in turns 11
// go and come at once.
TEST(SwapWay, InTurnsBothDirectionsAreAtWorkAtOnce) {
  const SwapWay way = swapWayOf(swapped(23, {27, 27, 841}), 32);
  EXPECT_EQ(way.turning, 2);
  const KvSwapTimes times = {1000, 27 * 841, 27 * 841, 841};
  EXPECT_LE(byItsLimit(way.cycle, 32, times), 1.01);
  const KvSwapProblem problem = {32, 23, {1, 27, 27}, true};
  const Cycle protocol = cycleOfSwaps(problem, *kvSwapCycle(problem, 128));
  EXPECT_EQ(protocol.phases[0].moves.size(), 10u);
  EXPECT_GE(byItsLimit(protocol, 32, times), 1.6);
}

// Where swaps take three times as long as compute, whatever it is that the link shares: within 1.03 of the limit of
// what is moved, and never slower than the protocol, where its cycle is not too long.
TEST(SwapWay, TakesWhatTheLinkTakes) {
  int64_t cases = 0;
  for (int32_t layers = 16; layers <= casesOf(32, 80); layers += 8)
    for (int32_t places = 2; places < layers; places += 3)
      for (const int64_t visits : {3, 8, 27})
        for (const int64_t both : {1000, 841, 500}) {
          const SwapWay way = swapWayOf(swapped(places, {visits, visits, both}), layers);
          const KvSwapTimes times = {1000, visits * both, visits * both, both};
          const std::string what = std::to_string(layers) + " layers, " + std::to_string(places) + " places, " +
                                   std::to_string(visits) + " visits, " + std::to_string(both);
          const KvSwapProblem problem = {layers, places, {1, visits, visits}, true};
          if (const auto found = kvSwapCycle(problem, kMostPeriod * 4);
              found && found->period <= int64_t{kMostPeriod} && kvSwapWaits({layers, places, problem.times})) {
            ASSERT_LE(cycleTime(way.cycle, layers, times) * found->period,
                      cycleTime(cycleOfSwaps(problem, *found), layers, times) *
                          static_cast<int64_t>(way.cycle.period()))
                << what;
          }
          if (visits < 8 || (layers - places) * visits < 3 * layers)
            continue;
          ++cases;
          // One place, where directions share the link: at each end of an iteration it rests for some layers.
          ASSERT_LE(byItsLimit(way.cycle, layers, times), both == 500 ? 1.06 : 1.03) << what;
        }
  EXPECT_GE(cases, 100);
}

// By the protocol where by the paper it never waits, Figure 4's case with equality; in turns where its cycle is too
// long (39 places of 40 come back after 39 iterations).
TEST(SwapWay, IsTheProtocolWhereItNeverWaits) {
  EXPECT_EQ(swapWayOf(swapped(7, {2, 2}), 9).turning, 0);
  EXPECT_EQ(cyclePeriodOf(swapped(7, {2, 2}), 9), 10u);
  EXPECT_GT(swapWayOf(swapped(7, {3, 3}), 9).turning, 0);
  EXPECT_EQ(swapWayOf(swapped(38, {1, 1}), 40).turning, 0);
  EXPECT_GT(swapWayOf(swapped(39, {1, 1}), 40).turning, 0);
  // One place where both directions share the link: at once they take as long as one after the other.
  EXPECT_EQ(swapWayOf(swapped(33, {6, 6, 500}), 40).turning, 1);
  EXPECT_EQ(swapWayOf(swapped(33, {6, 6}), 40).turning, 2);
  for (int32_t layers = 3; layers <= casesOf(20, 40); ++layers)
    for (int32_t places = 2; places < layers; ++places)
      ASSERT_LE(cyclePeriodOf(swapped(places, {2, 3}), layers), kMostPeriod);
}

} // namespace
} // namespace headrace::algorithms
