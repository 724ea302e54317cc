// SPDX-License-Identifier: Apache-2.0
//
// KV blocks in the memory that offloaded weights leave (DESIGN: each unit that may change owner is mapped at load at
// every address that may own it).
//
//   kv.l    | own pages              | pages that are free in some placements, one a layer in turn ... |
//             in use in all of them    in use where all pages up to here are free
//
// A page is free in a placement if no home, slot or transient of it has a byte there. Placements are put in the order
// of their free pages, and pages come first that are free from the first placement on, then from the second on, ...: so
// a placement with more free pages has no fewer blocks, and the one with the most has blocks in all of them.
#pragma once

#include <cstdint>

#include "runtime/plan/Plan.h"

namespace headrace::compiler {

// What memory changes hands in: the system's pages on the host, what CUDA maps at once.
uint64_t kvPageBytes(model::DeviceKind kind);

// Makes caches longer, to at most `mostBlocks` a layer, and gives each placement the blocks that it has pages for. The
// plan is whole but for this: its caches begin at multiples of `pageBytes` and have their pages to themselves. Left as
// it is where no placement would have a block more, or where the arena has no room to be whole pages.
void growKv(uint64_t pageBytes, int64_t mostBlocks, plan::Plan &plan);

} // namespace headrace::compiler
