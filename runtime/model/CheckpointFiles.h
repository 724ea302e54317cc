// SPDX-License-Identifier: Apache-2.0
//
// A Hugging Face folder's safetensors files, mapped, and which of them has which tensor. A folder is opened once: what
// reads its element type, checks it, hashes it and fills weights from it share the files.
#pragma once

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

struct FoundTensor {
  const SafetensorsFile *file = nullptr;
  const StoredTensor *tensor = nullptr;
  DType dtype() const { return *dtypeFromStored(tensor->dtype); } // checked when it was found
  absl::Span<const std::byte> data() const { return file->data(*tensor); }
  std::string where() const; // for messages: the file and the tensor
};

class CheckpointFiles {
public:
  // model.safetensors, or else the files that model.safetensors.index.json names; and any other .safetensors beside
  // them, whose tensors are nobody's. kNotFound for what is missing, kDataLoss for a damaged file. The files must not
  // be truncated while they are open.
  static absl::StatusOr<std::shared_ptr<const CheckpointFiles>> open(const std::string &folder);

  // By the checkpoint name, or the same without the leading "model.".
  absl::StatusOr<FoundTensor> find(const std::string &name) const;
  // The sources of a layout's tensor, each with the shape and type that it must have.
  absl::StatusOr<std::vector<FoundTensor>> sources(const Tensor &tensor) const;
  const std::map<std::string, const SafetensorsFile *, std::less<>> &byName() const { return fileOf_; }
  const std::string &folder() const { return folder_; }
  // Every .safetensors file of the folder, ascending by name.
  absl::Span<const std::unique_ptr<SafetensorsFile>> files() const { return files_; }

private:
  absl::Status openSingle();
  absl::Status openIndexed();
  absl::Status openOthers();

  std::string folder_;
  std::string listing_; // for messages
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, const SafetensorsFile *, std::less<>> fileOf_;
};

} // namespace headrace::model
