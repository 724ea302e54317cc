// SPDX-License-Identifier: Apache-2.0
//
// Weights from a seed with a few values changed, for what follows from numbers that are not finite.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/HalfFloat.h"
#include "runtime/model/WeightSource.h"

namespace headrace::core {

struct ChangedValue {
  std::string unit; // "layers.1.up"
  model::TensorRole role = model::TensorRole::Matrix;
  int64_t row = 0, col = 0;
  float value = 0;
};

class WrongWeights final : public model::WeightSource {
public:
  WrongWeights(uint64_t seed, std::vector<ChangedValue> changes)
      : inner_(model::syntheticWeights(seed)), changes_(std::move(changes)) {}

  absl::Status fill(const model::Unit &unit, model::MatrixOrder order, absl::Span<std::byte> out) const override {
    if (absl::Status status = inner_->fill(unit, order, out); !status.ok())
      return status;
    for (const ChangedValue &change : changes_) {
      const model::Tensor *tensor = unit.name == change.unit ? unit.find(change.role) : nullptr;
      if (tensor == nullptr)
        continue;
      const bool panels = tensor->linearOperand && order == model::MatrixOrder::Panel16;
      const int64_t index = panels ? (change.row / 16 * tensor->cols + change.col) * 16 + change.row % 16
                                   : change.row * tensor->cols + change.col;
      const uint64_t bytes = model::dtypeBytes(tensor->dtype);
      std::byte *at = out.data() + tensor->offset + static_cast<uint64_t>(index) * bytes;
      const uint16_t half =
          tensor->dtype == model::DType::F16 ? model::f32ToF16(change.value) : model::f32ToBf16(change.value);
      std::memcpy(at, tensor->dtype == model::DType::F32 ? static_cast<const void *>(&change.value) : &half, bytes);
    }
    return absl::OkStatus();
  }

private:
  const std::unique_ptr<model::WeightSource> inner_;
  const std::vector<ChangedValue> changes_;
};

} // namespace headrace::core
