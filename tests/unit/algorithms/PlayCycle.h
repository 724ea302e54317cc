// SPDX-License-Identifier: Apache-2.0
//
// Plays the phases of a cycle by the words of its header alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "passes/algorithms/CyclePlaces.h"

namespace headrace::algorithms {

// What is wrong with it; empty: nothing. `ahead`: a layer is there, or on its way, so many visits before its own.
inline std::string wrongIn(const Cycle &cycle, int32_t layers, int32_t ahead = 0) {
  if (cycle.phases.empty())
    return "no phases";
  std::vector<int32_t> held = cycle.phases[0].entry;
  std::vector<bool> visited(static_cast<size_t>(layers), true); // since it was brought
  const auto here = [&](int32_t layer) { return std::count(held.begin(), held.end(), layer); };
  for (uint64_t phase = 0; phase < cycle.period(); ++phase) {
    const Cycle::Phase &now = cycle.phases[phase];
    const auto at = [&](int32_t visit) {
      return " in phase " + std::to_string(phase) + " behind layer " + std::to_string(visit);
    };
    if (now.entry != held)
      return "not what the phase before leaves" + at(-1);
    size_t exits = 0, moves = 0;
    for (int32_t visit = -1; visit < layers; ++visit) {
      if (visit >= 0)
        visited[static_cast<size_t>(visit)] = true;
      for (; exits < now.exits.size() && now.exits[exits].after == visit; ++exits) {
        const PlaceExit &exit = now.exits[exits];
        if (held.at(static_cast<size_t>(exit.place)) != exit.layer)
          return "gives up a place that it is not in" + at(visit);
        if (!visited[static_cast<size_t>(exit.layer)])
          return "given up before it was visited" + at(visit);
        held[static_cast<size_t>(exit.place)] = -1;
      }
      for (; moves < now.moves.size() && now.moves[moves].after == visit; ++moves) {
        const PlaceMove &move = now.moves[moves];
        if (held.at(static_cast<size_t>(move.place)) != -1 || here(move.layer) != 0)
          return "brought into a place that is taken, or twice" + at(visit);
        held[static_cast<size_t>(move.place)] = move.layer;
        visited[static_cast<size_t>(move.layer)] = false;
      }
      for (int32_t next = visit + 1; next <= visit + 1 + ahead; ++next)
        if (visit + 1 < layers && here(next % layers) != 1)
          return "away when it is needed" + at(visit);
    }
    if (exits != now.exits.size() || moves != now.moves.size())
      return "exits or moves out of order" + at(layers - 1);
  }
  return held == cycle.phases[0].entry ? "" : "does not end as it began";
}

} // namespace headrace::algorithms
