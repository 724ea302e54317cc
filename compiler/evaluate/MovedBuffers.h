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

// In order of first use, in their items and slots. An error is a residency that the model has no buffers for, or a ring
// that is too small.
absl::StatusOr<algorithms::Movables> movablesOf(const Steps &steps, const Homes &homes);

// By step: whether its kernel reads or writes host memory over the link.
std::vector<bool> directSteps(const Steps &steps, const Homes &homes);

} // namespace headrace::compiler
