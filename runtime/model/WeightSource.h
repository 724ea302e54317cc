// SPDX-License-Identifier: Apache-2.0
//
// Where weight bytes come from when a plan is loaded: a checkpoint's safetensors files, or a seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/model/WeightLayout.h"

namespace headrace::model {

class WeightSource {
public:
  virtual ~WeightSource() = default;
  // Writes all unit.bytes bytes of one unit to `out` (out.size() == unit.bytes): matrices in `order`, vectors widened
  // to F32, padding rows and gaps between tensors zero. Thread-safe for different `out`.
  virtual absl::Status fill(const Unit &unit, MatrixOrder order, absl::Span<std::byte> out) const = 0;
};

// Opens the safetensors files of a Hugging Face folder (model.safetensors, or those named by
// model.safetensors.index.json), memory-maps them and checks that every tensor the layout names is there with the
// expected shape and element type. Every refusal names the file and the tensor.
absl::StatusOr<std::unique_ptr<WeightSource>> openCheckpoint(const std::string &folder, const ModelSpec &spec,
                                                             const WeightLayout &layout);

// Weights from a counter-based generator on (seed, unit, tensor, element): uniform in +-scale / sqrt(cols), norms at 1
// with a small spread; the same for every placement and element order.
std::unique_ptr<WeightSource> syntheticWeights(uint64_t seed);

} // namespace headrace::model
