// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/CyclePlaces.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <tuple>
#include <utility>

namespace headrace::algorithms {
namespace {

// Layers that give their places to each other: all of an odd number, those of one parity of an even one, since a place
// goes on by two layers at a time. Of `layers` on the circle `away` have no place; each of these costs a move every
// `turn` visits of a layer of the ring.
struct Ring {
  int64_t layers, turn, away;

  // Whoever is away comes back to be so after turn / gcd(turn, away) iterations, where those are spread evenly. Places
  // keep their order on the circle: they have then gone on by so many, and are back once that is all of them.
  uint64_t period() const {
    if (away == 0)
      return 1;
    const int64_t set = turn / std::gcd(turn, away), places = layers - away;
    return static_cast<uint64_t>(set * (places / std::gcd(places, away * set / turn)));
  }
};

// How many layers are away of those with an even and with an odd number; of an odd number of layers all are one ring.
struct Away {
  int64_t even = 0, odd = 0;
  uint64_t period = 0;
};

Away shareOut(int64_t layers, int64_t places) {
  const int64_t away = layers - places;
  if (layers % 2 == 1)
    return {away, 0, Ring{layers, layers - 2, away}.period()};
  // Each ring keeps one place at least. The shortest period, then as evenly as may be.
  const int64_t ring = layers / 2;
  Away best;
  for (int64_t even = std::max<int64_t>(0, away - (ring - 1)); even <= std::min(away, ring - 1); ++even) {
    const int64_t odd = away - even;
    const uint64_t period = std::lcm(Ring{ring, ring - 1, even}.period(), Ring{ring, ring - 1, odd}.period());
    if (best.period == 0 ||
        std::tuple(period, std::abs(even - odd)) < std::tuple(best.period, std::abs(best.even - best.odd)))
      best = {even, odd, period};
  }
  return best;
}

} // namespace

bool Cycle::visitedOnEntry(uint64_t phase, int32_t place) const {
  const Phase &before = phases[(phase + period() - 1) % period()];
  for (auto move = before.moves.rbegin(); move != before.moves.rend(); ++move)
    if (move->place == place)
      return !move->forNext();
  return true; // there all the time
}

uint64_t cyclePeriod(int64_t layers, int64_t places) { return shareOut(layers, places).period; }

Cycle cyclePlaces(int64_t layers, int64_t places) {
  const Away away = shareOut(layers, places);
  // Layer j + 2 is away until layer j has been visited for the first time.
  std::vector<int32_t> placeOf(static_cast<size_t>(layers), 0); // -1: away
  const auto leaveOut = [&](int64_t first, int64_t step, int64_t turn, int64_t count) {
    for (int64_t i = 0; i < count; ++i)
      placeOf[static_cast<size_t>(first + step * (i * turn / count))] = -1;
  };
  if (layers % 2 == 1) {
    leaveOut(2, 1, layers - 2, away.even);
  } else {
    leaveOut(2, 2, layers / 2 - 1, away.even);
    leaveOut(3, 2, layers / 2 - 1, away.odd);
  }
  std::vector<int32_t> held;
  for (int32_t layer = 0; layer < layers; ++layer)
    if (int32_t &place = placeOf[static_cast<size_t>(layer)]; place == 0) {
      place = static_cast<int32_t>(held.size());
      held.push_back(layer);
    }
  Cycle cycle;
  for (uint64_t phase = 0; phase < away.period; ++phase) {
    Cycle::Phase &now = cycle.phases.emplace_back();
    now.entry = held;
    for (int32_t visit = 0; visit < layers; ++visit) {
      const auto next = static_cast<int32_t>((visit + 2) % layers);
      if (placeOf[static_cast<size_t>(next)] >= 0)
        continue;
      const int32_t place = std::exchange(placeOf[static_cast<size_t>(visit)], -1);
      now.exits.push_back({.layer = visit, .place = place, .after = visit});
      now.moves.push_back({.layer = next, .place = place, .after = visit});
      placeOf[static_cast<size_t>(next)] = place;
      held[static_cast<size_t>(place)] = next;
    }
  }
  return cycle;
}

NearestPlaces nearestPlaces(int64_t layers, int64_t places, uint64_t most) {
  NearestPlaces nearest;
  for (int64_t below = std::min(places, layers) - 1; below >= 2 && !nearest.below; --below)
    if (cyclePeriod(layers, below) <= most)
      nearest.below = below;
  for (int64_t above = std::max<int64_t>(places, 1) + 1; above < layers && !nearest.above; ++above)
    if (cyclePeriod(layers, above) <= most)
      nearest.above = above;
  return nearest;
}

} // namespace headrace::algorithms
