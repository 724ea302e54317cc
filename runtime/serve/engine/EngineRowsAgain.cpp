// SPDX-License-Identifier: Apache-2.0
//
// Plans that keep nothing of a sequence's first blocks (plan::Plan::recomputesFromIds): the rows that each iteration
// passes again.
//
//   table        T T T K K        rows of an iteration of decoding     | 0 .. 47 of the sequence | row 70 |
//   block        0 1 2 3 4                                             again, samples nothing     new
#include <algorithm>

#include "runtime/serve/engine/Engine.h"

namespace headrace::serve {

// Of all that run, where their first blocks keep nothing: at most, with all of a prompt brought.
int64_t Engine::rowsAgain(const MiniBatch &of) const {
  int64_t rows = 0;
  if (plan_.recomputesFromIds())
    for (const SequenceView &one : of.views)
      rows +=
          std::min(one.rows, model::actRows(plan_.actShare, plan_.blockTokens, std::max(one.nextEnd(), one.rows + 1)));
  return rows;
}

// Tokens of earlier iterations whose blocks keep nothing pass all layers again: as a sequence that has the same table
// and samples nothing.
void Engine::addRowsAgain(MiniBatch &of, const Sequence &sequence) {
  const int64_t blocks = of.blocks->actOf(sequence.blocks);
  const int64_t rows = std::min(blocks * plan_.blockTokens, sequence.rows);
  if (rows == 0)
    return;
  const int64_t known = std::min(rows, static_cast<int64_t>(sequence.ids.size()));
  of.rows.push_back({.tokens = absl::MakeConstSpan(sequence.ids).subspan(0, static_cast<size_t>(known)),
                     .padding = rows - known, // of a static batch
                     .blocks = sequence.blocks,
                     .requestSlot = sequence.slot});
  of.composition.tokens += rows;
  ++of.composition.sequences;
}

} // namespace headrace::serve
