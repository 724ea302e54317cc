// SPDX-License-Identifier: Apache-2.0
//
// The twin of a packed model: the model whose weights are the values that its codes stand for, F32, or of a type that
// they are rounded to, as devices do whose products take operands of that type. By the layout's
// header (WeightLayout.h) and the definition (Encoding.h), element by element: shares nothing with loader or kernels.
#pragma once

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/base/Encoding.h"
#include "runtime/base/HalfFloat.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightSource.h"

namespace headrace::model {

// Element (r, c) of a tensor of a filled unit.
inline float heldValue(const std::byte *unit, const Tensor &tensor, MatrixOrder order, int64_t r, int64_t c) {
  const std::byte *bytes = unit + tensor.offset;
  const bool panels = tensor.linearOperand && order == MatrixOrder::Panel16;
  const Encoding &e = tensor.encoding;
  if (!e.packed()) {
    const int64_t index = panels ? ((r / 16) * tensor.cols + c) * 16 + r % 16 : r * tensor.cols + c;
    float value;
    widenToF32(tensor.dtype, bytes + static_cast<uint64_t>(index) * dtypeBytes(tensor.dtype), 1, &value);
    return value;
  }
  const int64_t groups = tensor.cols / e.group, inGroup = c % e.group, lane = r % 16;
  const int64_t rowGroupBytes = 4 + int64_t{e.group} * e.codeBits / 8;
  const auto half = [](const std::byte *at) {
    uint16_t bits;
    std::memcpy(&bits, at, sizeof(bits));
    return bits;
  };
  const auto nibble = [](std::byte byte, bool upper) {
    return static_cast<uint32_t>(upper ? byte >> 4 : byte & std::byte{15});
  };
  if (panels) {
    const std::byte *group = bytes + (r / 16 * groups + c / e.group) * 16 * rowGroupBytes, *codes = group + 64;
    const GroupScale scale{half(group + 2 * lane), half(group + 32 + 2 * lane)};
    return unpackedValue(e.codeBits == 8 ? static_cast<uint32_t>(codes[inGroup * 16 + lane])
                                         : nibble(codes[inGroup * 8 + lane % 8], lane >= 8),
                         scale);
  }
  const std::byte *group = bytes + (r * groups + c / e.group) * rowGroupBytes, *codes = group + 4;
  const GroupScale scale{half(group), half(group + 2)};
  return unpackedValue(
      e.codeBits == 8 ? static_cast<uint32_t>(codes[inGroup]) : nibble(codes[inGroup / 2], inGroup % 2 == 1), scale);
}

inline ModelSpec twinOf(ModelSpec spec, DType dtype = DType::F32) {
  spec.dtype = dtype;
  spec.encodings = {};
  return spec;
}

// Weights for a twin of spec, from a source of spec's.
class TwinWeights final : public WeightSource {
public:
  TwinWeights(const ModelSpec &spec, std::shared_ptr<const WeightSource> packed)
      : layout_(layoutWeights(spec)), packed_(std::move(packed)) {}

  absl::Status fill(const Unit &unit, MatrixOrder order, absl::Span<std::byte> out) const override {
    const int32_t index = unit.role == UnitRole::Embedding ? layout_.embeddingUnit()
                          : unit.role == UnitRole::Head    ? layout_.headUnit()
                                                           : layout_.layerUnit(unit.layer, unit.role);
    const Unit &of = layout_.units[static_cast<size_t>(index)];
    std::vector<std::byte> held(of.bytes);
    if (absl::Status status = packed_->fill(of, MatrixOrder::RowMajor, absl::MakeSpan(held)); !status.ok())
      return status;
    std::memset(out.data(), 0, out.size());
    for (size_t t = 0; t < unit.tensors.size(); ++t) {
      const Tensor &tensor = unit.tensors[t], &from = of.tensors[t];
      const bool panels = tensor.linearOperand && order == MatrixOrder::Panel16;
      for (int64_t r = 0; r < tensor.rows; ++r)
        for (int64_t c = 0; c < tensor.cols; ++c) {
          const float value = heldValue(held.data(), from, MatrixOrder::RowMajor, r, c);
          const int64_t at = panels ? ((r / 16) * tensor.cols + c) * 16 + r % 16 : r * tensor.cols + c;
          narrowFromF32(tensor.dtype, &value, 1,
                        out.data() + tensor.offset + static_cast<uint64_t>(at) * dtypeBytes(tensor.dtype));
        }
    }
    return absl::OkStatus();
  }

private:
  const WeightLayout layout_;
  const std::shared_ptr<const WeightSource> packed_;
};

} // namespace headrace::model
