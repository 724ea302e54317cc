// SPDX-License-Identifier: Apache-2.0
//
// openCheckpoint: the tensors of a WeightLayout out of safetensors files.
#include "runtime/model/WeightSource.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "runtime/base/HalfFloat.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/model/CheckpointFiles.h"
#include "runtime/model/PackGroups.h"
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

uint64_t bytesOf(const std::vector<FoundTensor> &sources) {
  uint64_t bytes = 0;
  for (const FoundTensor &source : sources)
    bytes += source.tensor->bytes();
  return bytes;
}

// Of the sources' bytes, one source behind the other, those from `at` on; all of `out` is among them.
absl::Status readStacked(const std::vector<FoundTensor> &sources, uint64_t at, absl::Span<std::byte> out) {
  for (const FoundTensor &source : sources) {
    const uint64_t here = source.tensor->bytes(), skipped = std::min(at, here);
    const uint64_t bytes = std::min<uint64_t>(out.size(), here - skipped);
    if (bytes > 0)
      RETURN_IF_ERROR(source.read(skipped, out.first(bytes)));
    out.remove_prefix(bytes);
    at -= skipped;
  }
  return absl::OkStatus();
}

// Room of a piece, for what is read over it.
class Room {
public:
  explicit Room(uint64_t bytes) : bytes_(std::make_unique_for_overwrite<std::byte[]>(bytes)), size_(bytes) {}
  absl::Span<std::byte> bytes() { return {bytes_.get(), size_}; }

private:
  const std::unique_ptr<std::byte[]> bytes_;
  const uint64_t size_;
};

class Checkpoint final : public WeightSource {
public:
  Checkpoint(std::shared_ptr<const CheckpointFiles> files, Warn warn)
      : files_(std::move(files)), warn_(std::move(warn)) {}

  absl::Status fill(const Unit &unit, MatrixOrder order, absl::Span<std::byte> out) const override {
    return fillBy(eachInOrder, unit, order, out);
  }

  absl::Status fillBy(Each each, const Unit &unit, MatrixOrder order, absl::Span<std::byte> out) const override {
    if (out.size() != unit.bytes)
      return absl::InvalidArgumentError(
          cat("unit ", unit.name, ": ", out.size(), " bytes of room: expected ", unit.bytes));
    uint64_t written = 0;
    for (const Tensor &tensor : unit.tensors) {
      // Checked again: the unit is the caller's.
      ASSIGN_OR_RETURN(sources, files_->sources(tensor));
      for (const FoundTensor &source : sources)
        source.file->willNeed(*source.tensor);
      std::memset(out.data() + written, 0, tensor.offset - written);
      std::byte *target = out.data() + tensor.offset;
      const bool packed = tensor.encoding.packed();
      const bool panels = packed || (tensor.linearOperand && order == MatrixOrder::Panel16);
      ASSIGN_OR_RETURN(finite, !isMatrix(tensor.role) ? fillVector(tensor, sources, target)
                               : panels               ? fillPanels(each, tensor, order, sources, target)
                                                      : fillRows(each, tensor, sources, target));
      if (!finite && packed)
        return notPacked(sources, tensor.encoding);
      if (!finite && warn_)
        for (const FoundTensor &source : sources)
          RETURN_IF_ERROR(warnOf(source));
      written = tensor.offset + tensor.bytes;
    }
    std::memset(out.data() + written, 0, unit.bytes - written);
    return absl::OkStatus();
  }

private:
  // Those of a tensor that has values which are not finite are found by a second reading, which others do not pay for.
  absl::Status warnOf(const FoundTensor &source) const {
    NotFinite wrong;
    size_t before = 0;
    RETURN_IF_ERROR(source.forEachPiece([&](absl::Span<const std::byte> piece) {
      const NotFinite here = findNotFinite(piece, source.dtype());
      if (wrong.count == 0)
        wrong.first = before + here.first;
      wrong.count += here.count;
      before += piece.size() / dtypeBytes(source.dtype());
    }));
    if (wrong.count > 0)
      warn_(cat(source.where(), ": ", wrong.count, wrong.count == 1 ? " value is" : " values are",
                " not finite (NaN or infinite), the first at ", placeText(*source.tensor, wrong.first)));
    return absl::OkStatus();
  }

  // Of a tensor that has a value which cannot be packed; found by a second reading too.
  static absl::Status notPacked(const std::vector<FoundTensor> &sources, const Encoding &encoding) {
    for (const FoundTensor &source : sources) {
      std::vector<float> values;
      std::optional<size_t> wrong;
      size_t before = 0;
      RETURN_IF_ERROR(source.forEachPiece([&](absl::Span<const std::byte> piece) {
        values.resize(piece.size() / dtypeBytes(source.dtype()));
        widenToF32(source.dtype(), piece.data(), values.size(), values.data());
        const auto at = std::find_if(values.begin(), values.end(),
                                     [](float value) { return !(std::abs(value) <= kLargestPacked); });
        if (!wrong && at != values.end())
          wrong = before + static_cast<size_t>(at - values.begin());
        before += values.size();
      }));
      if (wrong)
        return absl::InvalidArgumentError(cat(source.where(), ": the value at ", placeText(*source.tensor, *wrong),
                                              " cannot be packed as ", encodingText(encoding),
                                              ": expected finite values of at most ", kLargestPacked));
    }
    return absl::DataLossError(cat(sources.front().where(), ": changed while it was read"));
  }

  // Each fills a tensor's bytes, and says whether all of its values are finite, and can be packed.
  static absl::StatusOr<bool> fillVector(const Tensor &tensor, const std::vector<FoundTensor> &sources,
                                         std::byte *target) {
    std::vector<std::byte> stored;
    std::vector<float> widened;
    uint64_t at = 0;
    bool finite = true;
    for (const FoundTensor &source : sources) {
      const size_t count = static_cast<size_t>(source.tensor->shape[0]);
      stored.resize(source.tensor->bytes());
      RETURN_IF_ERROR(source.read(0, absl::MakeSpan(stored)));
      widened.resize(count);
      widenToF32(source.dtype(), stored.data(), count, widened.data());
      for (const float value : widened)
        finite &= value - value == 0.0f;
      narrowFromF32(tensor.dtype, widened.data(), count, target + at); // back again where it is of that type
      at += count * dtypeBytes(tensor.dtype);
    }
    std::memset(target + at, 0, tensor.bytes - at);
    return finite;
  }

  static absl::StatusOr<bool> fillRows(Each each, const Tensor &tensor, const std::vector<FoundTensor> &sources,
                                       std::byte *target) {
    const uint64_t all = bytesOf(sources);
    std::atomic<bool> finite{true};
    RETURN_IF_ERROR(eachPiece(each, static_cast<int64_t>((all + kPieceBytes - 1) / kPieceBytes), [&](int64_t i) {
      const uint64_t at = static_cast<uint64_t>(i) * kPieceBytes;
      Room room(std::min(kPieceBytes, all - at));
      RETURN_IF_ERROR(readStacked(sources, at, room.bytes()));
      if (!copyElements(room.bytes(), tensor.dtype, target + at))
        finite = false;
      return absl::OkStatus();
    }));
    std::memset(target + all, 0, tensor.bytes - all);
    return finite;
  }

  // Panels of rows; of packed tensors in either order.
  static absl::StatusOr<bool> fillPanels(Each each, const Tensor &tensor, MatrixOrder order,
                                         const std::vector<FoundTensor> &sources, std::byte *target) {
    const Encoding stored = Encoding(tensor.dtype);
    const uint64_t rowBytes = stored.bytes(1, tensor.cols), panelBytes = stored.bytes(kPanelRows, tensor.cols);
    const uint64_t heldRowBytes = tensor.encoding.bytes(1, tensor.cols);
    const uint64_t pieceBytes = std::max<uint64_t>(1, kPieceBytes / panelBytes) * panelBytes; // whole panels
    const uint64_t padded = stored.bytes(tensor.paddedRows, tensor.cols), all = bytesOf(sources);
    std::atomic<bool> finite{true};
    RETURN_IF_ERROR(
        eachPiece(each, static_cast<int64_t>((padded + pieceBytes - 1) / pieceBytes), [&](int64_t i) -> absl::Status {
          const uint64_t first = static_cast<uint64_t>(i) * pieceBytes, end = std::min(first + pieceBytes, padded);
          Room room(std::min(end, all) - first); // what is beyond `all` is padding of the last panel
          RETURN_IF_ERROR(readStacked(sources, first, room.bytes()));
          for (uint64_t at = first; at < end; at += panelBytes) {
            const std::byte *rows[kPanelRows] = {}; // null: padding
            for (uint64_t row = 0; row < kPanelRows && at + row * rowBytes < all; ++row)
              rows[row] = room.bytes().data() + (at - first) + row * rowBytes;
            std::byte *held = target + at / rowBytes * heldRowBytes;
            if (tensor.encoding.packed()
                    ? !packGroups(rows, tensor.cols, tensor.dtype, tensor.encoding, order, held, heldRowBytes)
                    : !packPanel(rows, tensor.cols, tensor.dtype, held))
              finite = false;
          }
          return absl::OkStatus();
        }));
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
  ASSIGN_OR_RETURN(table, files.source(layout.tokenTable(), 0));
  return table.dtype();
}

} // namespace headrace::model
