// SPDX-License-Identifier: Apache-2.0
//
// KV blocks in the memory that offloaded weights leave. Block by block, all layers' blocks of a number together, the
// caches grow upwards; what a placement has between them and its homes moves up to its lowest home:
//
//             placement "none"      interval 4
//   top     +------------------+------------------+
//           | homes            | homes            |
//           |                  +------------------+
//           |                  | slots            |
//           |                  | transients       |
//           +------------------+------------------+
//           | transients       | blocks 3 and 4   |     layers x the bytes of a block each
//           +------------------+------------------+
//           | blocks 0 to 2    | blocks 0 to 2    |     at the same place in all placements
//   0       +------------------+------------------+
//
// Homes that fewer placements have lie lower (algorithms::packHomes), so what a placement leaves free is one run.
#pragma once

#include <cstdint>

#include "runtime/plan/Plan.h"

namespace headrace::compiler {

// Lays the blocks that are at home on the device block by block, all layers' blocks of a number together, from where
// the first cache begins: no more than the caches took one behind the other. Extents and operands; of a plan without
// transitions.
void interleaveKv(plan::Plan &plan);

// Gives each placement the blocks that it has room for, at most `mostBlocks` a layer. The plan is whole but for this
// and for its transitions, with caches one behind the other below all else but io. Left as it is where no placement
// would have a block more.
void growKv(int64_t mostBlocks, plan::Plan &plan);

} // namespace headrace::compiler
