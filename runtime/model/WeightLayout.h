// SPDX-License-Identifier: Apache-2.0
//
// How a model's weights are cut into units of placement, and where each tensor lies inside its unit.
//
// A unit is the weight operand of one linear op together with the small vectors used with it (its bias, the
// normalisation in front of it), so that moving a unit moves all that one op and its neighbours need:
//
//   embedding        token table, learned positions (where the model has them)
//   layers.N.qkv     attention norm, W_q W_k W_v as one matrix, their bias
//   layers.N.out     W_o, its bias
//   layers.N.up      MLP norm, W_gate W_up (or W_fc1), bias
//   layers.N.down    W_down (or W_fc2), bias
//   head             final norm, and W_head unless it is tied to the embedding
//
// Order: embedding, then layer by layer qkv, out, up, down, then head: `4 * layers + 2` units; the units of a layer
// follow each other, so a layer is one contiguous slab of unit bytes. Of a stage (ModelSpec::stage) as many, of its
// layers: but the embedding of one that does not embed and the head of one that has none have no tensors and no bytes,
// and so are in no plan. A last stage whose model's head is tied has the table in its head.
//
// Matrices are [rows, cols] = [out features, in features] as in Hugging Face checkpoints, kept in the checkpoint's
// element type, or packed (ModelSpec::encodings; docs/encodings.md). Vectors (norm weights, biases) are F32 and have
// one column; but the biases of qkv and up are of the matrices' type, which is that of their results on a GPU: matrix
// libraries add a bias of the result's type on the way. Those of out and down go onto the F32 residual stream. The rows
// of both are padded to a multiple of kPanelRows with zeros, so that a kernel may read whole panels of a matrix and of
// its bias. A device's kernels choose the order of the elements (MatrixOrder); the bytes are the same for all orders,
// so a plan does not depend on it. Tensors and units start at multiples of kAlign bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/Encoding.h"

namespace headrace::model {

struct ModelSpec;

inline constexpr int64_t kPanelRows = 16;
inline constexpr uint64_t kAlign = 256;
constexpr uint64_t alignUp(uint64_t n, uint64_t a = kAlign) { return (n + a - 1) / a * a; }

enum class UnitRole : uint8_t { Embedding = 0, Qkv = 1, Out = 2, Up = 3, Down = 4, Head = 5 };
inline constexpr int kUnitsPerLayer = 4;
// With the embedding and the head.
constexpr int64_t unitCount(int64_t layers) { return layers * kUnitsPerLayer + 2; }

// HeadNorms: what the norms of q's and of k's heads multiply by, behind each other.
enum class TensorRole : uint8_t { TokenTable, PositionTable, NormWeight, NormBias, Matrix, Bias, HeadNorms };
constexpr bool isMatrix(TensorRole role) {
  return role == TensorRole::TokenTable || role == TensorRole::PositionTable || role == TensorRole::Matrix;
}

// Order of a matrix's elements in memory.
//   RowMajor   element (r, c) at r * cols + c
//   Panel16    element (r, c) at ((r / 16) * cols + c) * 16 + r % 16: the host kernels' order; 16 rows advance together
//              through the columns, so one streaming read serves a vector of outputs
// Of packed matrices groups are in this order in place of elements, and in a group
//   RowMajor   its scale, its minimum, its codes; element (r, c) is in group c / g of row r
//   Panel16    the 16 rows' scales, their minima, then the rows' codes column by column; of 4 bits row r's is in the
//              lower half of byte r of the column, r below 8, in the upper half of byte r - 8 else
// where codes of 4 bits in a row are two a byte, the lower half first. A part of whole rows (panels) and groups so lies
// at Encoding::bytes() of what is before it.
//
// Only matrices that a linear op multiplies by are in Panel16; PositionTable, and TokenTable when it is not tied to the
// head, are RowMajor on every device.
enum class MatrixOrder : uint8_t { RowMajor = 0, Panel16 = 1 };

struct Tensor {
  TensorRole role;
  // Checkpoint tensors stacked along rows (q, k, v; gate, up); vectors: along their length. Names as the model class
  // with a head writes them ("model.layers.0..."); a reader also accepts a base-model export's, without "model.".
  std::vector<std::string> sources;
  std::vector<int64_t> sourceRows; // rows of each source; their sum is `rows`
  int64_t rows = 0;                // before padding; a vector's length
  int64_t paddedRows = 0;
  int64_t cols = 0;           // 1 for vectors
  DType dtype = DType::F32;   // of the checkpoint's elements
  Encoding encoding;          // as which they are held: they themselves, or packed
  bool linearOperand = false; // stored in the device's MatrixOrder
  uint64_t offset = 0;        // bytes from the unit's start, multiple of kAlign
  uint64_t bytes = 0;         // of the encoding, with padded rows
};

struct Unit {
  std::string name;
  UnitRole role;
  int32_t layer = -1;      // -1 for embedding and head
  int32_t modelLayer = -1; // of a stage: in the whole model
  uint64_t bytes = 0;      // multiple of kAlign
  std::vector<Tensor> tensors;
  bool absent() const { return tensors.empty(); } // of a stage, whose model has it
  const Tensor *find(TensorRole role) const;      // null if the unit has none
};

// Of the bias of a unit's linear op, whose matrix is of type `matrix`.
constexpr DType biasType(UnitRole unit, DType matrix) {
  return unit == UnitRole::Qkv || unit == UnitRole::Up ? matrix : DType::F32;
}

struct WeightLayout {
  std::vector<Unit> units;
  bool has(int32_t unit) const { return !units[static_cast<size_t>(unit)].absent(); }
  int32_t embeddingUnit() const { return 0; }
  int32_t headUnit() const { return static_cast<int32_t>(units.size()) - 1; }
  const Tensor &tokenTable() const { return *units.front().find(TensorRole::TokenTable); }
  // role must be one of the four of a layer.
  int32_t layerUnit(int64_t layer, UnitRole role) const {
    return static_cast<int32_t>(1 + layer * kUnitsPerLayer + static_cast<int>(role) - static_cast<int>(UnitRole::Qkv));
  }
  uint64_t totalBytes() const;
  uint64_t layerBytes(int64_t layer) const; // the sum of its four units
};

// A pure function of a validated spec: same spec, same layout.
WeightLayout layoutWeights(const ModelSpec &spec);

// Elements of all tensors without padding: the number of parameters a model card states.
uint64_t parameterCount(const WeightLayout &layout);

} // namespace headrace::model
