// SPDX-License-Identifier: Apache-2.0
//
// FlexGen's `--percent`: how much of weights, KV cache and hidden states is on the device and in host memory, and how
// much of a layer's weights that makes when whole tensors are placed.
//
//   55 45 0 100 0 100        wg wc cg cc hg hc: weights 55% device 45% host, KV all host, hidden states all host
//
//   midpoints, wg = 55       tensors in a row, host first; whose middle is behind wc is on the device
//     attention   q [ 12.5 | k  37.5 | v  62.5 | out  87.5 ]        behind 45: v, out
//     MLP         up [      25       | down     75         ]        behind 45: down      50% of OPT's layer in all
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::cost {

// In percent. FlexGen has the rest on disk; there is none here, so each pair makes 100.
struct Percent {
  double wg = 0, wc = 100; // weights of the layers
  double cg = 0, cc = 100; // KV cache
  double hg = 0, hc = 100; // hidden states between layers

  friend bool operator==(const Percent &, const Percent &) = default;
};

// Six numbers with spaces or commas between them. kInvalidArgument, `what` (a flag) first: another number of numbers,
// what is no number, and what checkPercent() refuses.
absl::StatusOr<Percent> parsePercent(std::string_view text, std::string_view what);
// Refuses a negative share, a pair that does not make 100 within 1e-6, and hidden states of which a part is on the
// device: they are one buffer.
absl::Status checkPercent(const Percent &percent, std::string_view what);
std::string percentText(const Percent &percent); // "55 45 0 100 0 100"

// Elements on the device of tensors in their order, when `onDevice` percent were asked for.
int64_t elementsByMidpoints(absl::Span<const int64_t> tensors, double onDevice);
// Percent of a layer's weights on the device when `wg` were asked for: FlexGen places attention and MLP each by
// midpoints, biases and norms among the matrices.
double reachedWeights(const model::ModelSpec &spec, double wg);

} // namespace headrace::cost
