// SPDX-License-Identifier: Apache-2.0
#include "tests/golden/Faults.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/HalfFloat.h"

namespace headrace::golden {
namespace {

using kernels::IterationMeta;
using model::MatrixOrder;
using model::ModelSpec;
using model::Tensor;
using model::TensorRole;
using model::Unit;
using model::UnitRole;

const std::string kDropBias = "bias_dropped.";
const std::string kDropNormWeight = "norm_weight_dropped.";

// "model.layers.3.self_attn.q_proj.bias" -> "q_proj"
std::string moduleOf(const std::string &source) {
  const size_t last = source.rfind('.');
  if (last == std::string::npos || last == 0)
    return "";
  const size_t before = source.rfind('.', last - 1);
  const size_t begin = before == std::string::npos ? 0 : before + 1;
  return source.substr(begin, last - begin);
}

// The part of a vector of these roles that comes from `module` filled with `value`.
void fillVector(std::initializer_list<TensorRole> roles, const std::string &module, float value, const Unit &unit,
                absl::Span<std::byte> bytes) {
  for (const Tensor &tensor : unit.tensors) {
    if (std::find(roles.begin(), roles.end(), tensor.role) == roles.end())
      continue;
    size_t row = 0;
    for (size_t s = 0; s < tensor.sources.size(); ++s) {
      const size_t rows = static_cast<size_t>(tensor.sourceRows[s]);
      if (moduleOf(tensor.sources[s]) == module) {
        const std::vector<float> values(rows, value);
        narrowFromF32(tensor.dtype, values.data(), rows,
                      bytes.data() + tensor.offset + row * model::dtypeBytes(tensor.dtype));
      }
      row += rows;
    }
  }
}

// Byte offset of element (row, col) inside a matrix of `cols` columns.
size_t elementOffset(const Tensor &tensor, MatrixOrder order, int64_t row, int64_t col) {
  const int64_t index =
      order == MatrixOrder::RowMajor
          ? row * tensor.cols + col
          : (row / model::kPanelRows * tensor.cols + col) * model::kPanelRows + row % model::kPanelRows;
  return static_cast<size_t>(index) * model::dtypeBytes(tensor.dtype);
}

// Query head h moves to where the right mapping gives it key/value head h % kvHeads; its columns of W_o move along.
int64_t movedHead(const ModelSpec &spec, int64_t head) {
  return head % spec.kvHeads * (spec.heads / spec.kvHeads) + head / spec.kvHeads;
}

void moveQueryHeads(const ModelSpec &spec, const Unit &unit, MatrixOrder order, absl::Span<std::byte> bytes) {
  if (unit.role != UnitRole::Qkv && unit.role != UnitRole::Out)
    return;
  const bool rowsMove = unit.role == UnitRole::Qkv;
  for (const Tensor &tensor : unit.tensors) {
    const bool matrix = tensor.role == TensorRole::Matrix;
    if (!matrix && !(rowsMove && tensor.role == TensorRole::Bias))
      continue;
    const std::vector<std::byte> before(bytes.begin() + tensor.offset, bytes.begin() + tensor.offset + tensor.bytes);
    const MatrixOrder tensorOrder = matrix ? order : MatrixOrder::RowMajor;
    const size_t width = model::dtypeBytes(tensor.dtype);
    for (int64_t row = 0; row < tensor.rows; ++row) {
      for (int64_t col = 0; col < tensor.cols; ++col) {
        const int64_t along = rowsMove ? row : col;
        if (along >= spec.qRows())
          continue;
        const int64_t moved = movedHead(spec, along / spec.headDim) * spec.headDim + along % spec.headDim;
        std::memcpy(bytes.data() + tensor.offset +
                        elementOffset(tensor, tensorOrder, rowsMove ? moved : row, rowsMove ? col : moved),
                    before.data() + elementOffset(tensor, tensorOrder, row, col), width);
      }
    }
  }
}

// Rows of sequences that decode: one row, behind others.
void shiftPositions(IterationMeta &meta, bool decodeOnly) {
  const int32_t *start = meta.array<int32_t>(meta.queryStart), *length = meta.array<int32_t>(meta.contextLength);
  int32_t *positions = meta.array<int32_t>(meta.positions);
  for (int32_t s = 0; s < meta.numSequences; ++s) {
    const bool decodes = start[s + 1] - start[s] == 1 && length[s] > 1;
    for (int32_t row = start[s]; row < start[s + 1]; ++row)
      if (decodes || !decodeOnly)
        ++positions[row];
  }
}

} // namespace

std::vector<std::string> faultsOf(const ModelSpec &spec) {
  std::vector<std::string> faults = {"eps_x10", "decode_positions_plus_1"};
  if (spec.rope.enabled && spec.rope.scaling != model::RopeScalingKind::None)
    faults.push_back("rope_scaling_removed");
  if (spec.kvHeads > 1 && spec.kvHeads < spec.heads)
    faults.push_back("gqa_mapping");
  if (spec.learnedPositions)
    faults.push_back("all_positions_plus_1");
  const bool opt = spec.family == model::Family::Opt;
  const auto drop = [&](std::initializer_list<const char *> modules) {
    for (const char *module : modules)
      faults.push_back(kDropBias + module);
  };
  if (spec.qkvBias)
    drop({"q_proj", "v_proj"});
  if (spec.qkvBias && spec.rope.enabled) // without rotation a bias of k adds the same to all scores of a row
    drop({"k_proj"});
  if (spec.outBias)
    drop({opt ? "out_proj" : "o_proj"});
  if (spec.mlpBias && opt)
    drop({"fc1", "fc2"});
  if (spec.mlpBias && !opt)
    drop({"gate_proj", "up_proj", "down_proj"});
  if (spec.norm == model::NormKind::LayerNorm)
    drop({"self_attn_layer_norm", "final_layer_norm"});
  if (spec.qkNorm)
    for (const char *fault : {"head_norms_removed", "norm_weight_dropped.q_norm", "norm_weight_dropped.k_norm"})
      faults.push_back(fault);
  return faults;
}

absl::Status inject(const std::string &fault, RunSetup &setup) {
  if (fault == "eps_x10") {
    setup.spec.normEps *= 10;
  } else if (fault == "rope_scaling_removed") {
    setup.spec.rope.scaling = model::RopeScalingKind::None;
  } else if (fault == "gqa_mapping") {
    setup.changeUnit = [spec = setup.spec](const Unit &unit, MatrixOrder order, absl::Span<std::byte> bytes) {
      moveQueryHeads(spec, unit, order, bytes);
    };
  } else if (fault == "decode_positions_plus_1" || fault == "all_positions_plus_1") {
    setup.changeMeta = [decodeOnly = fault == "decode_positions_plus_1"](IterationMeta &meta) {
      shiftPositions(meta, decodeOnly);
    };
  } else if (fault.starts_with(kDropBias)) {
    setup.changeUnit = [module = fault.substr(kDropBias.size())](const Unit &unit, MatrixOrder,
                                                                 absl::Span<std::byte> bytes) {
      fillVector({TensorRole::Bias, TensorRole::NormBias}, module, 0.0f, unit, bytes);
    };
  } else if (fault == "head_norms_removed") {
    setup.spec.qkNorm = false;
  } else if (fault.starts_with(kDropNormWeight)) {
    setup.changeUnit = [module = fault.substr(kDropNormWeight.size())](const Unit &unit, MatrixOrder,
                                                                       absl::Span<std::byte> bytes) {
      fillVector({TensorRole::HeadNorms}, module, 1.0f, unit, bytes);
    };
  } else {
    return absl::InvalidArgumentError(absl::StrCat("unknown fault '", fault, "'"));
  }
  return absl::OkStatus();
}

} // namespace headrace::golden
