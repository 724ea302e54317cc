// SPDX-License-Identifier: Apache-2.0
//
// The units with the fewest bytes that free so many when they go through a ring as large as the largest of them: what
// asks the least of the host.
//
//   3 layers of units of 6, 2 and 4 bytes; 5 are to be freed
//   ring of 6: at least 11 bytes away, 6 + 6 = 12      ring of 4: at least 9, 4 + 4 + 2 = 10
//   ring of 2: at least 7, and there are 6             so it is the ten bytes
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/choice/Candidate.h"
#include "runtime/model/WeightLayout.h"

namespace headrace::compiler {

// Of units of layers, evenly spread over these by role, and of the head where it may be away (not tied). None: all of
// them free less. `freed`: above 0.
std::optional<Candidate> fewestUnits(const model::WeightLayout &layout, bool head, uint64_t freed);

} // namespace headrace::compiler
