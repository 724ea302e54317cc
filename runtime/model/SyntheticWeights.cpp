// SPDX-License-Identifier: Apache-2.0
//
// Weights out of a seed. Element (r, c) of a tensor depends on nothing but the seed, the tensor and (r, c): four
// neighbouring columns share one 64-bit hash, 16 bits each, so a value has 65536 levels.
#include "runtime/model/WeightSource.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/base/HalfFloat.h"
#include "runtime/base/Text.h"
#include "runtime/model/PackGroups.h"
#include "runtime/model/PackMatrix.h"

namespace headrace::model {
namespace {

constexpr std::string_view kTable = "embed_tokens.weight";
constexpr int64_t kColumnsPerHash = 4;
constexpr int64_t kPieceElements = 64 << 10;
constexpr int64_t kTileColumns = 256; // a multiple of kColumnsPerHash and of all groups; 16 rows of F32 are 16 KiB

// The finaliser of splitmix64 (Steele, Lea, Flood, OOPSLA 2014): a bijection whose output bits all depend on all input
// bits.
inline uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

uint64_t keyOf(uint64_t seed, const Unit &unit, const Tensor &tensor) {
  // A stage's head that is the embedding's table has the table's values.
  const bool table =
      unit.role == UnitRole::Head && tensor.role == TensorRole::Matrix && tensor.sources.front().ends_with(kTable);
  const UnitRole role = table ? UnitRole::Embedding : unit.role;
  const TensorRole part = table ? TensorRole::TokenTable : tensor.role;
  const uint64_t site = (static_cast<uint64_t>(static_cast<uint32_t>(unit.modelLayer)) << 16) |
                        (static_cast<uint64_t>(role) << 8) | static_cast<uint64_t>(part);
  return mix(mix(seed + 0x9E3779B97F4A7C15u) ^ mix(site + 1));
}

// Values are middle + spread * u with u uniform in [-1, 1).
struct Distribution {
  float middle, spread;
};
Distribution distributionOf(const Tensor &tensor) {
  switch (tensor.role) {
  case TensorRole::NormWeight:
  case TensorRole::HeadNorms:
    return {1.0f, 0.1f};
  case TensorRole::NormBias:
  case TensorRole::Bias:
    return {0.0f, 0.1f};
  case TensorRole::TokenTable:
  case TensorRole::PositionTable:
  case TensorRole::Matrix:
    break;
  }
  return {0.0f, std::sqrt(3.0f / static_cast<float>(tensor.cols))};
}

template <class Element> Element convert(float value, DType dtype) {
  if constexpr (sizeof(Element) == sizeof(float))
    return std::bit_cast<Element>(value);
  else
    return dtype == DType::F16 ? f32ToF16(value) : f32ToBf16(value);
}

// Columns [first, first + count) of one row, first a multiple of kColumnsPerHash.
template <class Element, DType kType>
void generate(uint64_t key, uint64_t hashesPerRow, int64_t row, int64_t first, int64_t count, Distribution distribution,
              Element *target) {
  int16_t raw[kTileColumns];
  const uint64_t counter = static_cast<uint64_t>(row) * hashesPerRow + static_cast<uint64_t>(first / kColumnsPerHash);
  const int64_t hashes = (count + kColumnsPerHash - 1) / kColumnsPerHash;
  for (int64_t i = 0; i < hashes; ++i) {
    const uint64_t bits = mix(key + (counter + static_cast<uint64_t>(i)) * 0x9E3779B97F4A7C15u);
    // Shifts, not a copy of the word: the same values on a big-endian machine.
    for (int64_t j = 0; j < kColumnsPerHash; ++j)
      raw[i * kColumnsPerHash + j] = static_cast<int16_t>(static_cast<uint16_t>(bits >> (16 * j)));
  }
  const float step = distribution.spread / 32768.0f;
  for (int64_t i = 0; i < count; ++i)
    target[i] = convert<Element>(distribution.middle + step * static_cast<float>(raw[i]), kType);
}

// Rows [firstRow, endRow), both multiples of 16.
template <class Element, DType kType>
void fillRows(uint64_t key, const Tensor &tensor, MatrixOrder order, int64_t firstRow, int64_t endRow,
              std::byte *target) {
  const bool packed = tensor.encoding.packed(), panels = tensor.linearOperand && order == MatrixOrder::Panel16;
  const Distribution distribution = distributionOf(tensor);
  const uint64_t hashesPerRow = static_cast<uint64_t>((tensor.cols + kColumnsPerHash - 1) / kColumnsPerHash);
  alignas(64) Element tile[kPanelRows][kTileColumns];
  for (int64_t panel = firstRow; panel < endRow; panel += kPanelRows) {
    for (int64_t first = 0; first < tensor.cols; first += kTileColumns) {
      const int64_t count = std::min(kTileColumns, tensor.cols - first);
      const std::byte *rows[kPanelRows] = {};
      for (int64_t r = 0; r < kPanelRows; ++r) {
        if (panel + r < tensor.rows) {
          generate<Element, kType>(key, hashesPerRow, panel + r, first, count, distribution, tile[r]);
          rows[r] = reinterpret_cast<const std::byte *>(tile[r]);
        } else {
          std::memset(tile[r], 0, sizeof(tile[r]));
        }
        if (!panels && !packed)
          std::memcpy(target + static_cast<uint64_t>((panel + r) * tensor.cols + first) * sizeof(Element), tile[r],
                      static_cast<size_t>(count) * sizeof(Element));
      }
      if (packed) // values are far within what can be
        packGroups(rows, count, kType, tensor.encoding, order,
                   target + tensor.encoding.bytes(panel, tensor.cols) +
                       tensor.encoding.bytes(panels ? kPanelRows : 1, first),
                   tensor.encoding.bytes(1, tensor.cols));
      else if (panels)
        packPanel(rows, count, kType,
                  target + static_cast<uint64_t>(panel * tensor.cols + first * kPanelRows) * sizeof(Element));
    }
  }
}

template <class Element, DType kType>
void fillTensor(Each each, uint64_t key, const Tensor &tensor, MatrixOrder order, std::byte *target) {
  const int64_t rows =
      std::max<int64_t>(1, kPieceElements / (tensor.cols * kPanelRows)) * kPanelRows; // of a piece: whole panels
  each((tensor.paddedRows + rows - 1) / rows, [&](int64_t i) {
    fillRows<Element, kType>(key, tensor, order, i * rows, std::min((i + 1) * rows, tensor.paddedRows), target);
  });
}

class SyntheticWeights final : public WeightSource {
public:
  explicit SyntheticWeights(uint64_t seed) : seed_(seed) {}

  absl::Status fill(const Unit &unit, MatrixOrder order, absl::Span<std::byte> out) const override {
    return fillBy(eachInOrder, unit, order, out);
  }

  absl::Status fillBy(Each each, const Unit &unit, MatrixOrder order, absl::Span<std::byte> out) const override {
    if (out.size() != unit.bytes)
      return absl::InvalidArgumentError(
          cat("unit ", unit.name, ": ", out.size(), " bytes of room: expected ", unit.bytes));
    uint64_t written = 0;
    for (const Tensor &tensor : unit.tensors) {
      std::memset(out.data() + written, 0, tensor.offset - written);
      const uint64_t key = keyOf(seed_, unit, tensor);
      std::byte *target = out.data() + tensor.offset;
      if (tensor.dtype == DType::F32)
        fillTensor<uint32_t, DType::F32>(each, key, tensor, order, target);
      else if (tensor.dtype == DType::F16)
        fillTensor<uint16_t, DType::F16>(each, key, tensor, order, target);
      else
        fillTensor<uint16_t, DType::BF16>(each, key, tensor, order, target);
      written = tensor.offset + tensor.bytes;
    }
    std::memset(out.data() + written, 0, unit.bytes - written);
    return absl::OkStatus();
  }

private:
  uint64_t seed_;
};

} // namespace

std::unique_ptr<WeightSource> syntheticWeights(uint64_t seed) { return std::make_unique<SyntheticWeights>(seed); }

} // namespace headrace::model
