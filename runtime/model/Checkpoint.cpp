// SPDX-License-Identifier: Apache-2.0
//
// openCheckpoint: the tensors of a WeightLayout out of safetensors files.
#include "runtime/model/WeightSource.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "runtime/base/HalfFloat.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/model/CheckpointFiles.h"
#include "runtime/model/PackMatrix.h"

namespace headrace::model {
namespace {

// Where a tensor's value stands, in its own shape.
std::string placeText(const StoredTensor &tensor, size_t index) {
  std::vector<int64_t> place;
  auto rest = static_cast<int64_t>(index);
  for (size_t d = tensor.shape.size(); d-- > 0; rest /= tensor.shape[d])
    place.insert(place.begin(), rest % tensor.shape[d]);
  return cat("[", absl::StrJoin(place, ", "), "]");
}

class Checkpoint final : public WeightSource {
public:
  Checkpoint(std::shared_ptr<const CheckpointFiles> files, Warn warn)
      : files_(std::move(files)), warn_(std::move(warn)) {}

  absl::Status fill(const Unit &unit, MatrixOrder order, absl::Span<std::byte> out) const override {
    if (out.size() != unit.bytes)
      return absl::InvalidArgumentError(
          cat("unit ", unit.name, ": ", out.size(), " bytes of room: expected ", unit.bytes));
    uint64_t written = 0;
    for (const Tensor &tensor : unit.tensors) {
      // Checked again: the unit is the caller's.
      absl::StatusOr<std::vector<FoundTensor>> sources = files_->sources(tensor);
      if (!sources.ok())
        return sources.status();
      for (const FoundTensor &source : *sources)
        source.file->willNeed(*source.tensor);
      std::memset(out.data() + written, 0, tensor.offset - written);
      std::byte *target = out.data() + tensor.offset;
      const bool panels = tensor.linearOperand && order == MatrixOrder::Panel16;
      const bool finite = !isMatrix(tensor.role) ? fillVector(tensor, *sources, target)
                          : panels               ? fillPanels(tensor, *sources, target)
                                                 : fillRows(tensor, *sources, target);
      for (const FoundTensor &source : *sources) {
        if (!finite && warn_)
          warnOf(source);
        source.file->release(*source.tensor); // else loading would hold the whole checkpoint beside the homes it fills
      }
      written = tensor.offset + tensor.bytes;
    }
    std::memset(out.data() + written, 0, unit.bytes - written);
    return absl::OkStatus();
  }

private:
  // Those of a tensor that has values which are not finite are found by a second reading, which others do not pay for.
  void warnOf(const FoundTensor &source) const {
    const NotFinite wrong = findNotFinite(source.data(), source.dtype());
    if (wrong.count > 0)
      warn_(cat(source.where(), ": ", wrong.count, wrong.count == 1 ? " value is" : " values are",
                " not finite (NaN or infinite), the first at ", placeText(*source.tensor, wrong.first)));
  }

  // Each fills a tensor's bytes, and says whether all of its values are finite.
  static bool fillVector(const Tensor &tensor, const std::vector<FoundTensor> &sources, std::byte *target) {
    std::vector<float> widened;
    uint64_t at = 0;
    bool finite = true;
    for (const FoundTensor &source : sources) {
      const size_t count = static_cast<size_t>(source.tensor->shape[0]);
      widened.resize(count);
      widenToF32(source.dtype(), source.data().data(), count, widened.data());
      for (const float value : widened)
        finite &= value - value == 0.0f;
      narrowFromF32(tensor.dtype, widened.data(), count, target + at); // back again where it is of that type
      at += count * dtypeBytes(tensor.dtype);
    }
    std::memset(target + at, 0, tensor.bytes - at);
    return finite;
  }

  static bool fillRows(const Tensor &tensor, const std::vector<FoundTensor> &sources, std::byte *target) {
    uint64_t at = 0;
    bool finite = true;
    for (const FoundTensor &source : sources) {
      finite &= copyElements(source.data(), tensor.dtype, target + at);
      at += source.data().size();
    }
    std::memset(target + at, 0, tensor.bytes - at);
    return finite;
  }

  static bool fillPanels(const Tensor &tensor, const std::vector<FoundTensor> &sources, std::byte *target) {
    const uint64_t rowBytes = static_cast<uint64_t>(tensor.cols) * dtypeBytes(tensor.dtype);
    size_t source = 0;
    int64_t sourceRow = 0; // the next row of sources[source]
    bool finite = true;
    for (int64_t panel = 0; panel < tensor.paddedRows / kPanelRows; ++panel) {
      const std::byte *rows[kPanelRows] = {};
      for (const std::byte *&row : rows) {
        while (source < sources.size() && sourceRow == tensor.sourceRows[source]) {
          ++source;
          sourceRow = 0;
        }
        if (source == sources.size())
          break; // padding
        row = sources[source].data().data() + static_cast<uint64_t>(sourceRow++) * rowBytes;
      }
      finite &=
          packPanel(rows, tensor.cols, tensor.dtype, target + static_cast<uint64_t>(panel) * kPanelRows * rowBytes);
    }
    return finite;
  }

  const std::shared_ptr<const CheckpointFiles> files_;
  const Warn warn_;
};

} // namespace

absl::StatusOr<std::unique_ptr<WeightSource>> openCheckpoint(std::shared_ptr<const CheckpointFiles> files,
                                                             const WeightLayout &layout, Warn warn) {
  for (const Unit &unit : layout.units)
    for (const Tensor &tensor : unit.tensors)
      RETURN_IF_ERROR(files->sources(tensor).status());
  return std::make_unique<Checkpoint>(std::move(files), std::move(warn));
}

absl::StatusOr<DType> checkpointDtype(const CheckpointFiles &files, const WeightLayout &layout) {
  absl::StatusOr<FoundTensor> table =
      files.find(layout.units[static_cast<size_t>(layout.embeddingUnit())].find(TensorRole::TokenTable)->sources[0]);
  if (!table.ok())
    return table.status();
  return table->dtype();
}

} // namespace headrace::model
