// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/TakeTurns.h"

#include <deque>
#include <vector>

namespace headrace::algorithms {

Cycle takeTurns(int32_t layers, int32_t places, int32_t turning) {
  const int32_t turns = layers - places + turning;
  std::vector<int32_t> inTurn, staying;
  for (int32_t layer = 0; layer < layers; ++layer) {
    const int64_t next = static_cast<int64_t>(inTurn.size()) * layers / turns;
    (layer == next ? inTurn : staying).push_back(layer);
  }
  // At an edge all places but one of those that turn hold the first of an iteration.
  std::vector<int32_t> held = staying;
  std::deque<int32_t> turned; // the places of those that come next, then the empty one
  for (int32_t i = 0; i < turning; ++i) {
    turned.push_back(static_cast<int32_t>(held.size()));
    held.push_back(i + 1 < turning ? inTurn[static_cast<size_t>(i)] : -1);
  }
  Cycle cycle;
  const std::vector<int32_t> first = held;
  do {
    Cycle::Phase &now = cycle.phases.emplace_back();
    now.entry = held;
    int32_t freed = -1; // behind which visit the empty place was left
    for (int32_t i = 0; i < turns; ++i) {
      const int32_t layer = inTurn[static_cast<size_t>(i)],
                    next = inTurn[static_cast<size_t>((i + turning - 1) % turns)];
      const int32_t from = turned.front(), into = turned.back();
      now.moves.push_back({.layer = next, .place = into, .after = freed});
      now.exits.push_back({.layer = layer, .place = from, .after = layer});
      held[static_cast<size_t>(into)] = next;
      held[static_cast<size_t>(from)] = -1;
      freed = layer;
      turned.pop_front();
      turned.push_back(from);
    }
  } while (held != first);
  return cycle;
}

} // namespace headrace::algorithms
