// SPDX-License-Identifier: Apache-2.0
//
// What a choice has of an iteration brought to the device, from the list of its steps: what the passes find in the IR
// of the homes phase.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/evaluate/Steps.h"
#include "passes/algorithms/Movables.h"

namespace headrace::compiler {

// A placement's homes, for one iteration.
struct Homes {
  const Choice *choice = nullptr; // of the placement
  const Target *target = nullptr;
  plan::IterationClass iterationClass = plan::IterationClass::Decode;
  bool bringsTails = true;             // some block of a tail may be in use
  std::optional<int64_t> mirroredFrom; // the first block that is away in any placement; none: none is
};

// Blocks of each cache: so many in the placement, of which those from `resident` on are away.
struct CacheBlocks {
  int64_t here = 0, resident = 0;
  bool tail() const { return resident < here; }
};
CacheBlocks cacheBlocksOf(const Homes &homes);
// How the iteration's class has tails written back.
algorithms::WriteBack writeBackOf(const Homes &homes);

struct MovedBuffers : algorithms::Movables {
  std::vector<BufferIndex> buffers; // by movable
};
// In order of first use, in their items and slots. An error is a residency that the model has no buffers for, or a ring
// that is too small.
absl::StatusOr<MovedBuffers> movablesOf(const Steps &steps, const Homes &homes);

// By step: whether its kernel reads or writes host memory over the link.
std::vector<bool> directSteps(const Steps &steps, const Homes &homes);

} // namespace headrace::compiler
