// SPDX-License-Identifier: Apache-2.0
//
// Places that cycle: what is there when it is visited, the fewest moves by brute force, and the period by unrolling.
#include "passes/algorithms/CyclePlaces.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "tests/unit/algorithms/PlayCycle.h"
#include "gtest/gtest.h"

namespace headrace::algorithms {
namespace {

size_t movesOf(const Cycle &cycle) {
  size_t moves = 0;
  for (const Cycle::Phase &phase : cycle.phases)
    moves += phase.moves.size();
  return moves;
}

// n = 5, P = 4: m = 1 layer is away at a time, each for n - 2 = 3 visits: 5 x 1 / 3 moves an iteration, 5 in 3. After 3
// iterations the same layer is away, but the 4 places have gone on by one: 3 x 4 = 12 phases, 12 x 5 / 3 = 20 moves.
TEST(CyclePlaces, FiveLayersInFourPlaces) {
  const Cycle cycle = cyclePlaces(5, 4);
  ASSERT_EQ(cycle.period(), 12u);
  EXPECT_EQ(movesOf(cycle), 20u);
  // Layer 2 is away; it is brought into 0's place while 1 is visited, and 3 makes room for the 0 of the next iteration.
  EXPECT_EQ(cycle.phases[0].entry, (std::vector<int32_t>{0, 1, 3, 4}));
  EXPECT_EQ(cycle.phases[0].exits,
            (std::vector<PlaceExit>{{.layer = 0, .place = 0, .after = 0}, {.layer = 3, .place = 2, .after = 3}}));
  EXPECT_EQ(cycle.phases[0].moves,
            (std::vector<PlaceMove>{{.layer = 2, .place = 0, .after = 0}, {.layer = 0, .place = 2, .after = 3}}));
  EXPECT_FALSE(cycle.phases[0].moves[0].forNext());
  EXPECT_TRUE(cycle.phases[0].moves[1].forNext());
  EXPECT_EQ(cycle.phases[1].entry, (std::vector<int32_t>{2, 1, 0, 4}));
  EXPECT_EQ(cycle.phases[1].moves,
            (std::vector<PlaceMove>{{.layer = 3, .place = 1, .after = 1}, {.layer = 1, .place = 3, .after = 4}}));
  EXPECT_EQ(cycle.phases[2].entry, (std::vector<int32_t>{2, 3, 0, 1}));
  EXPECT_EQ(cycle.phases[2].moves, (std::vector<PlaceMove>{{.layer = 4, .place = 0, .after = 2}}));
  EXPECT_EQ(cycle.phases[3].entry, (std::vector<int32_t>{4, 3, 0, 1}));
}

// n = 4, P = 3: layers 0 and 2 share a place, 1 and 3 stay. 4 x 1 / 2 = 2 moves an iteration, all of them the same.
TEST(CyclePlaces, OfFourLayersTwoStay) {
  const Cycle cycle = cyclePlaces(4, 3);
  ASSERT_EQ(cycle.period(), 1u);
  EXPECT_EQ(movesOf(cycle), 2u);
}

// Two places are two slots: every layer is brought in every iteration.
TEST(CyclePlaces, TwoPlacesBringEverything) {
  for (int64_t layers = 3; layers <= 40; ++layers) {
    const Cycle cycle = cyclePlaces(layers, 2);
    EXPECT_EQ(cycle.period(), layers % 2 == 0 ? 1u : 2u) << layers;
    EXPECT_EQ(movesOf(cycle), static_cast<size_t>(layers) * cycle.period());
  }
}

// In place 0 of the case above: phase 0 brings 2 before its visit; in place 2 it brings 0 behind its visit. Place 1
// keeps layer 1, which is visited.
TEST(CyclePlaces, WhatWasVisitedSinceItWasBrought) {
  const Cycle cycle = cyclePlaces(5, 4);
  EXPECT_TRUE(cycle.visitedOnEntry(1, 0));
  EXPECT_TRUE(cycle.visitedOnEntry(1, 1));
  EXPECT_FALSE(cycle.visitedOnEntry(1, 2));
  EXPECT_FALSE(cycle.visitedOnEntry(2, 3)); // phase 1 brings 1 into place 3 behind its visit
  // Phase 0 follows phase 11.
  for (int32_t place = 0; place < 4; ++place) {
    bool visited = true;
    for (const PlaceMove &move : cycle.phases[11].moves)
      if (move.place == place)
        visited = move.layer > move.after;
    EXPECT_EQ(cycle.visitedOnEntry(0, place), visited) << place;
  }
}

// A place that is given on more than once in an iteration: the last of its moves counts. Of four layers in two places 2
// and 3 are brought before their visits, then 0 and 1 behind theirs, for the next iteration.
TEST(CyclePlaces, WhatWasVisitedSinceItWasBroughtLast) {
  const Cycle cycle = cyclePlaces(4, 2);
  ASSERT_EQ(cycle.period(), 1u);
  EXPECT_EQ(cycle.phases[0].moves, (std::vector<PlaceMove>{{.layer = 2, .place = 0, .after = 0},
                                                           {.layer = 3, .place = 1, .after = 1},
                                                           {.layer = 0, .place = 0, .after = 2},
                                                           {.layer = 1, .place = 1, .after = 3}}));
  EXPECT_FALSE(cycle.visitedOnEntry(0, 0));
  EXPECT_FALSE(cycle.visitedOnEntry(0, 1));
}

TEST(CyclePlaces, EveryCaseUpToThirtyLayersIsSoundAndAsShortAsItSays) {
  for (int32_t layers = 3; layers <= 30; ++layers)
    for (int32_t places = 2; places < layers; ++places) {
      SCOPED_TRACE(std::to_string(layers) + " layers, " + std::to_string(places) + " places");
      const Cycle cycle = cyclePlaces(layers, places);
      ASSERT_EQ(cycle.period(), cyclePeriod(layers, places));
      ASSERT_EQ(wrongIn(cycle, layers, /*ahead=*/1), "");
      // n m / (n - 2) moves an iteration.
      EXPECT_EQ(movesOf(cycle) * static_cast<size_t>(layers - 2),
                cycle.period() * static_cast<size_t>(layers * (layers - places)));
      for (uint64_t phase = 1; phase < cycle.period(); ++phase)
        EXPECT_NE(cycle.phases[phase].entry, cycle.phases[0].entry) << phase;
    }
}

// The fewest moves of any way to go round and round, by brute force: at every visit the layer and the next are in some
// place; behind it any places but the next one's may get any layers. Over so many iterations that whole numbers come
// out, from any set of layers back to the same.
size_t fewestMoves(int layers, int places, int iterations) {
  const auto none = std::numeric_limits<size_t>::max() / 2;
  const unsigned sets = 1u << layers;
  const auto pair = [&](int visit) { return 1u << (visit % layers) | 1u << ((visit + 1) % layers); };
  const auto holds = [&](unsigned set, int visit) {
    return __builtin_popcount(set) == places && (set & pair(visit)) == pair(visit);
  };
  size_t best = none;
  for (unsigned start = 0; start < sets; ++start) {
    if (!holds(start, 0))
      continue;
    std::vector<size_t> moves(sets, none);
    moves[start] = 0;
    for (int visit = 0; visit < layers * iterations; ++visit) {
      std::vector<size_t> after(sets, none);
      for (unsigned from = 0; from < sets; ++from)
        for (unsigned to = 0; moves[from] < none && to < sets; ++to)
          if (holds(to, visit + 1))
            after[to] = std::min(after[to], moves[from] + static_cast<size_t>(__builtin_popcount(to & ~from)));
      moves = after;
    }
    best = std::min(best, moves[start]);
  }
  return best;
}

TEST(CyclePlaces, NoWayHasFewerMoves) {
  for (int layers = 3; layers <= 7; ++layers)
    for (int places = 2; places < layers; ++places) {
      const int iterations = layers - 2; // n m / (n - 2) an iteration: n m in all
      EXPECT_EQ(fewestMoves(layers, places, iterations), static_cast<size_t>(layers * (layers - places)))
          << layers << " layers, " << places << " places";
    }
}

// Who is away at the start is chosen so that the cycle is the shortest that the fewest moves allow: every choice is
// tried.
TEST(CyclePlaces, NoOtherStartHasAShorterPeriod) {
  for (int32_t layers = 3; layers <= 12; ++layers)
    for (int32_t places = 2; places < layers; ++places) {
      uint64_t shortest = std::numeric_limits<uint64_t>::max();
      for (unsigned set = 0; set < 1u << layers; ++set) {
        if (__builtin_popcount(set) != places || (set & 3) != 3)
          continue;
        std::vector<int32_t> held;
        for (int32_t layer = 0; layer < layers; ++layer)
          if (set >> layer & 1)
            held.push_back(layer);
        const std::vector<int32_t> start = held;
        uint64_t period = 0;
        do {
          for (int32_t visit = 0; visit < layers; ++visit) {
            const int32_t next = (visit + 2) % layers;
            if (std::find(held.begin(), held.end(), next) == held.end())
              std::replace(held.begin(), held.end(), visit, next);
          }
          ++period;
        } while (held != start && period < shortest);
        if (held == start)
          shortest = std::min(shortest, period);
      }
      EXPECT_EQ(cyclePeriod(layers, places), shortest) << layers << " layers, " << places << " places";
    }
}

// 7 layers: 2 places take 2 iterations, 3 take 15, 4 take 20, 5 take 25, 6 take 30.
TEST(CyclePlaces, TheNearestThatAreShortEnough) {
  const NearestPlaces all = nearestPlaces(7, 4, 30);
  EXPECT_EQ(all.below, 3);
  EXPECT_EQ(all.above, 5);
  const NearestPlaces short20 = nearestPlaces(7, 5, 20);
  EXPECT_EQ(short20.below, 4);
  EXPECT_EQ(short20.above, std::nullopt);
  EXPECT_EQ(nearestPlaces(7, 2, 30).below, std::nullopt);
  EXPECT_EQ(nearestPlaces(7, 9, 30).below, 6);
}

} // namespace
} // namespace headrace::algorithms
