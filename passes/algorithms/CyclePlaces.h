// SPDX-License-Identifier: Apache-2.0
//
// Fewer places than layers: what a place holds stays over iterations, and only what does not fit moves.
//
// Layers are visited 0 to n - 1, round and round; a layer must be in a place while it is visited. A layer is brought
// while the one before it is visited, into the place of the one before that. Of five layers in four places:
//
//   place    visits of an iteration, one character each: who is in the place; "-" while the next is on its way
//            phase 0   phase 1   phase 2   ...
//   0        0-222     222-4     44444     moves: 0 gives its place to 2; 3 to 0; 1 to 3 and 4 to 1; 2 to 4 and 0 to 2
//   1        11111     11-33     33333
//   2        3333-     00000     0-222
//   3        44444     4444-     11111     bytes: 5 x 1 / 3 layers an iteration, against 5 with two places
//
// A place is given up by the layer whose next visit is the furthest away, which is the one just visited (Belady), and
// what is brought is what is needed next; so a layer that leaves is away for n - 2 visits, the longest there is, and of
// the m = n - P layers that are away at a time each costs a move in n - 2 visits: n m / (n - 2) moves an iteration, the
// fewest there are (one place is being filled while another is in use). Who is away at the start is free to choose: it
// decides after how many iterations everything is as before.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace headrace::algorithms {

// A layer that is brought into a place that is free by then, as soon as the visit of layer `after` has ended. Brought
// behind its own visit of an iteration it is for the next iteration's.
struct PlaceMove {
  int32_t layer = 0, place = 0;
  int32_t after = 0; // -1: from the iteration's start on
  bool forNext() const { return after >= layer; }
  bool operator==(const PlaceMove &other) const {
    return layer == other.layer && place == other.place && after == other.after;
  }
};

// A layer that gives up its place, as soon as the visit of layer `after` has ended; where it was written to, its copy
// home comes first.
struct PlaceExit {
  int32_t layer = 0, place = 0;
  int32_t after = 0; // -1: from the iteration's start on
  bool operator==(const PlaceExit &other) const {
    return layer == other.layer && place == other.place && after == other.after;
  }
};

// What is where, iteration by iteration; phase `period` is phase 0 again. Whoever makes one decides what moves: a layer
// is in one place at most, its place is not given up between its being brought and its visit, and a place is given up
// once the layer in it has been visited, before another is brought into it.
struct Cycle {
  struct Phase {
    std::vector<int32_t> entry;   // the layer in each place at the start; -1: none
    std::vector<PlaceExit> exits; // in order
    std::vector<PlaceMove> moves; // in order of the visits that they are for
  };
  std::vector<Phase> phases;

  uint64_t period() const { return phases.size(); }
  // Whether what is in a place at the start of a phase was visited since it was brought.
  bool visitedOnEntry(uint64_t phase, int32_t place) const;
};

// layers > places >= 2. After how many iterations places hold what they held, as cyclePlaces() has it: the least that
// the fewest moves allow.
uint64_t cyclePeriod(int64_t layers, int64_t places);
Cycle cyclePlaces(int64_t layers, int64_t places);

// The next number of places below and above this one with a period of at most `most`.
struct NearestPlaces {
  std::optional<int64_t> below, above;
};
NearestPlaces nearestPlaces(int64_t layers, int64_t places, uint64_t most);

} // namespace headrace::algorithms
