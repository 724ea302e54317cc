// SPDX-License-Identifier: Apache-2.0
//
// Bytes of a model's weights, worked out from the model alone: what a plan says, and what model::layoutWeights makes of
// its model, is held against them.
#pragma once

#include <cstdint>

#include "runtime/model/WeightLayout.h"

namespace headrace::model {
struct ModelSpec;
}

namespace headrace::plan {

struct UnitBytes {
  uint64_t matrix = 0; // of the linear op's operand, or the token table; 0 of a head that is tied to it
  uint64_t unit = 0;   // with all beside it
};

// Of every unit with this role in a validated model.
UnitBytes unitBytes(const model::ModelSpec &spec, model::UnitRole role);

} // namespace headrace::plan
