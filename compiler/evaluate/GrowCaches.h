// SPDX-License-Identifier: Apache-2.0
//
// KV blocks in the memory that offloaded weights leave. Block by block, all caches' blocks of a number together, the
// caches grow upwards; what a placement has between them and its homes goes up with them, to its lowest home at most:
//
//             placement "none"      interval 4
//   top     +------------------+------------------+
//           | homes            | homes            |
//           |                  +------------------+
//           |                  | slots            |
//           |                  | transients       |
//           +------------------+------------------+
//           | transients       | blocks 3 and 4   |     caches x the bytes of a block each
//           +------------------+------------------+
//           | blocks 0 to 2    | blocks 0 to 2    |     at the same place in all placements
//   0       +------------------+------------------+
//
// Homes that fewer placements have lie lower (algorithms::packHomes), so what a placement leaves free is one run.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/evaluate/PlaceCandidate.h"

namespace headrace::compiler {

// How many blocks of each cache the placements have room for, where caches may grow; empty where they may not. The
// caches of all of them are on the device, one behind the other.
std::vector<int64_t> grownBlocks(const CompileRequest &request, const Target &target, const HostLayout &host,
                                 const std::vector<PlacedCandidate> &placed, uint64_t arenaBytes);

} // namespace headrace::compiler
