// SPDX-License-Identifier: Apache-2.0
//
// Token recomputation (plan::Plan::recomputesTokens): what an iteration brings of tokens whose blocks keep nothing.
// How many rows that are is composed with the new ones (Scheduler.h).
//
//   table        T T T K K        rows of an iteration of decoding     | 0 .. 47 of the sequence | row 70 |
//   block        0 1 2 3 4                                             recomputed, sample nothing  new
#include <algorithm>

#include "runtime/serve/engine/Engine.h"

namespace headrace::serve {

// Tokens of earlier iterations pass all layers as a sequence that has the same table and samples nothing.
void Engine::addRecomputedRows(MiniBatch &of, const Sequence &sequence, int64_t rows) {
  const int64_t known = std::min(rows, static_cast<int64_t>(sequence.ids.size()));
  of.rows.push_back({.tokens = absl::MakeConstSpan(sequence.ids).subspan(0, static_cast<size_t>(known)),
                     .padding = rows - known, // of a static batch
                     .blocks = sequence.blocks,
                     .requestSlot = sequence.slot});
}

} // namespace headrace::serve
