// SPDX-License-Identifier: Apache-2.0
//
// One arena for all iterations of a placement (decode, mixed, ...): what persists has one address in all of them, while
// each packs its own transients.
//
//   top     +---------------------------+
//           | weights at home here      |   one after another
//           | slots                     |   those that are free first lie lowest: transients may lie in what of a slot
//           |   . . . . . . . . . . . . |   is not in use while they live
//           | transients                |   as high as the iteration that needs most
//           | KV cache                  |
//   0       | io                        |   io, KV and transients begin at the same address in every placement
//           +---------------------------+
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "passes/algorithms/PackRanges.h"

namespace headrace::algorithms {

inline constexpr int64_t kToTheEnd = std::numeric_limits<int64_t>::max();

// The bytes [offset, offset + bytes) of a slot hold something from step `first` (the first at which a copy may be
// writing them) to step `last`, both included; 0 and kToTheEnd for what is there on entry and on exit.
struct SlotUse {
  uint32_t slot = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  int64_t first = 0;
  int64_t last = kToTheEnd;
};

struct ArenaIteration {
  std::vector<LiveRange> transients;
  std::vector<SlotUse> slotUses;
};

struct ArenaLayout {
  std::vector<uint64_t> below;                   // addresses of what lies below the transients
  std::vector<std::vector<uint64_t>> transients; // addresses, by iteration
  std::vector<uint64_t> slots;                   // addresses
  std::vector<uint64_t> persistent;              // addresses of what lies above the slots
  uint64_t top = 0;                              // the arena's bytes
};

// `belowBytes`: of io and KV, which come first. All sizes are multiples of 256, as all addresses are.
ArenaLayout layOutArena(absl::Span<const uint64_t> belowBytes, absl::Span<const ArenaIteration> iterations,
                        absl::Span<const uint64_t> slotBytes, absl::Span<const uint64_t> persistentBytes);

} // namespace headrace::algorithms
