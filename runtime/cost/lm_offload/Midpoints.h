// SPDX-License-Identifier: Apache-2.0
//
// How much of a layer's weights a FlexGen percent (runtime/job/Percent.h) makes when whole tensors are placed.
//
//   midpoints, wg = 55       tensors in a row, host first; whose middle is behind wc is on the device
//     attention   q [ 12.5 | k  37.5 | v  62.5 | out  87.5 ]        behind 45: v, out
//     MLP         up [      25       | down     75         ]        behind 45: down      50% of OPT's layer in all
//
//   units    qkv 1/3 | out all | up none | down all        a unit is where most of its elements are: out, down
#pragma once

#include <array>
#include <cstdint>

#include "absl/types/span.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"

namespace headrace::cost {

// Elements on the device of tensors in their order, when `onDevice` percent were asked for.
int64_t elementsByMidpoints(absl::Span<const int64_t> tensors, double onDevice);

struct MidpointShares {
  double reached = 0;                                      // percent of a layer's weights on the device, by tensors
  std::array<bool, model::kUnitsPerLayer> unitsOnDevice{}; // qkv, out, up, down: where half of the unit or more is
};
// When `wg` percent were asked for: FlexGen places attention and MLP each by midpoints, biases and norms among the
// matrices.
MidpointShares sharesByMidpoints(const model::ModelSpec &spec, double wg);
inline double reachedWeights(const model::ModelSpec &spec, double wg) { return sharesByMidpoints(spec, wg).reached; }

} // namespace headrace::cost
