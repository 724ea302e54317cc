// SPDX-License-Identifier: Apache-2.0
//
// How weights and caches are held, as a part of a choice: what a search may find where the goal allows it
// (Goal::allowQuantized).
#pragma once

#include <optional>

#include "runtime/base/Encoding.h"
#include "runtime/model/WeightEncodings.h"

namespace headrace::compiler {

struct Encodings {
  model::WeightEncodings weights;    // of a model with a head of its own (model::ofModel); none: as the model says
  std::optional<model::Encoding> kv; // unset: as the goal says; the group follows from the head size

  bool any() const { return weights.any() || kv; }
  bool operator==(const Encodings &) const = default;
};

} // namespace headrace::compiler
