// SPDX-License-Identifier: Apache-2.0
//
// A Hugging Face folder's safetensors files, and which of them has which tensor. A folder is opened once: what reads
// its element type, checks it, hashes it and fills weights from it share the files.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/model/Safetensors.h"
#include "runtime/model/WeightLayout.h"

namespace headrace::model {

std::optional<DType> dtypeFromStored(std::string_view name); // "F32", "F16", "BF16"

// What of a file is read at a time: it stays in a core's cache until it is copied on. A multiple of any element's size.
inline constexpr uint64_t kPieceBytes = uint64_t{256} << 10;

struct FoundTensor {
  const SafetensorsFile *file = nullptr;
  const StoredTensor *tensor = nullptr;
  DType dtype() const { return *dtypeFromStored(tensor->dtype); } // checked when it was found
  // Fills `out` with the tensor's bytes from `offset` on.
  absl::Status read(uint64_t offset, absl::Span<std::byte> out) const { return file->read(*tensor, offset, out); }
  // All of its bytes in turn, asked of the system ahead: pieces of kPieceBytes, the last of what is left.
  absl::Status forEachPiece(const std::function<void(absl::Span<const std::byte>)> &take) const;
  std::string where() const; // for messages: the file and the tensor
};

class CheckpointFiles {
public:
  // model.safetensors, or else the files that model.safetensors.index.json names, each as a whole: a tensor that the
  // index leaves out, or says to be in another of them, is found. Other files are nobody's. kNotFound for what is
  // missing, with what the folder has in its place; kDataLoss for a damaged file.
  static absl::StatusOr<std::shared_ptr<const CheckpointFiles>> open(const std::string &folder);

  // By the checkpoint name, or the same without the leading "model.".
  absl::StatusOr<FoundTensor> find(const std::string &name) const;
  // The i-th source of a layout's tensor, of whatever shape and type. The table of a tied model may be stored as its
  // head alone: one of the two names is what safetensors' save_model keeps.
  absl::StatusOr<FoundTensor> source(const Tensor &tensor, size_t i) const;
  // The sources of a layout's tensor, each with the shape and type that it must have.
  absl::StatusOr<std::vector<FoundTensor>> sources(const Tensor &tensor) const;
  const std::map<std::string, const SafetensorsFile *, std::less<>> &byName() const { return fileOf_; }
  const std::string &folder() const { return folder_; }
  // Ascending by name.
  absl::Span<const std::unique_ptr<SafetensorsFile>> files() const { return files_; }

private:
  absl::Status openSingle();
  absl::Status openIndexed();

  std::string folder_;
  std::string listing_; // for messages
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, const SafetensorsFile *, std::less<>> fileOf_;
};

} // namespace headrace::model
