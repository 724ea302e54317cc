// SPDX-License-Identifier: Apache-2.0
//
//   matrix   rows to whole panels of 16, times in features of an element's bytes; packed of b bits in groups of g: of
//            each row b / 8 bytes an in feature, and 4 of a scale and a minimum for each g of them
//   vector   F32, or of the matrices' type, to whole panels of 16
//
// Each begins at a multiple of 256 bytes, and so does what follows the unit.
#include "runtime/plan/proof/UnitBytes.h"

#include "runtime/model/ModelSpec.h"

namespace headrace::plan {
namespace {

using model::UnitRole;

constexpr uint64_t kLine = 256, kRows = 16, kScaleAndMinimum = 4;

uint64_t upTo(uint64_t multiple, uint64_t bytes) { return (bytes + multiple - 1) / multiple * multiple; }

struct Matrix {
  int64_t rows = 0, inFeatures = 0;
};

uint64_t matrixBytes(const Matrix &matrix, uint64_t elementBytes, const std::optional<model::Encoding> &packed) {
  const uint64_t rows = upTo(kRows, static_cast<uint64_t>(matrix.rows));
  const auto features = static_cast<uint64_t>(matrix.inFeatures);
  if (!packed)
    return rows * features * elementBytes;
  return rows * (features * packed->codeBits / 8 + features / static_cast<uint64_t>(packed->group) * kScaleAndMinimum);
}

uint64_t vectorBytes(int64_t length, uint64_t elementBytes = 4) {
  return upTo(kLine, upTo(kRows, static_cast<uint64_t>(length)) * elementBytes);
}

} // namespace

UnitBytes unitBytes(const model::ModelSpec &spec, UnitRole role) {
  const uint64_t element = spec.dtype == model::DType::F32 ? 4 : 2;
  const uint64_t norm = vectorBytes(spec.hidden) * (spec.norm == model::NormKind::LayerNorm ? 2 : 1);
  const int64_t q = spec.heads * spec.headDim, kv = spec.kvHeads * spec.headDim;
  const int64_t up = spec.activation == model::Activation::SiluGate ? 2 * spec.intermediate : spec.intermediate;
  Matrix matrix;
  uint64_t beside = 0;
  switch (role) {
  case UnitRole::Embedding:
    matrix = {spec.vocab, spec.hidden};
    if (spec.learnedPositions)
      beside = upTo(kLine, matrixBytes({spec.maxPositions + spec.positionOffset, spec.hidden}, element, {}));
    break;
  case UnitRole::Qkv:
    matrix = {q + 2 * kv, spec.hidden};
    beside = norm + (spec.qkvBias ? vectorBytes(q + 2 * kv, element) : 0) +
             (spec.qkNorm ? vectorBytes(2 * spec.headDim) : 0);
    break;
  case UnitRole::Out:
    matrix = {spec.hidden, q};
    beside = spec.outBias ? vectorBytes(spec.hidden) : 0;
    break;
  case UnitRole::Up:
    matrix = {up, spec.hidden};
    beside = norm + (spec.mlpBias ? vectorBytes(up, element) : 0);
    break;
  case UnitRole::Down:
    matrix = {spec.hidden, spec.intermediate};
    beside = spec.mlpBias ? vectorBytes(spec.hidden) : 0;
    break;
  case UnitRole::Head:
    matrix = spec.tiedEmbeddings ? Matrix{} : Matrix{spec.vocab, spec.hidden};
    beside = norm;
    break;
  }
  const uint64_t bytes = matrixBytes(matrix, element, spec.encodings[role]);
  return {bytes, upTo(kLine, bytes) + beside};
}

} // namespace headrace::plan
