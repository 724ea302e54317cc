// SPDX-License-Identifier: Apache-2.0
//
// One safetensors file; the header is untrusted and checked before anything is believed.
//
//   | 8 bytes: N, little endian | N bytes: JSON header | data |
//   header: {"__metadata__": {string: string}, "name": {"dtype": "F16", "shape": [r, c], "data_offsets": [begin, end]},
//   ...}
//
// Checked: N fits the file and the format's limit of 100 MB; the JSON, its types, no name twice; every dtype known;
// end - begin equals the product of shape and element size, without overflow; the tensors cover the data from its first
// byte to its last without holes and without overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/base/FileIo.h"

namespace headrace::model {

struct StoredTensor {
  std::string name;
  std::string dtype;          // as the file spells it: "F32", "BF16", "I64", ...
  std::vector<int64_t> shape; // each 0 or more
  uint64_t begin = 0;         // bytes from the start of the data
  uint64_t exclusiveEnd = 0;
  uint64_t bytes() const { return exclusiveEnd - begin; }
};

struct SafetensorsHeader {
  uint64_t dataOffset = 0;           // of the data, from the start of the file
  std::vector<StoredTensor> tensors; // ascending by name
  const StoredTensor *find(std::string_view name) const;
};

// Of a file of `fileBytes`, of which `first` is the beginning, at least 8 bytes where it has them: where its data
// starts. Messages begin with `path`; kDataLoss for what the file's bytes contradict, and a Git LFS pointer is refused
// by name.
absl::StatusOr<uint64_t> safetensorsDataOffset(absl::Span<const std::byte> first, uint64_t fileBytes,
                                               const std::string &path);
// `head` is the file up to its data, or more of it.
absl::StatusOr<SafetensorsHeader> parseSafetensors(absl::Span<const std::byte> head, uint64_t fileBytes,
                                                   const std::string &path);

class SafetensorsFile {
public:
  static absl::StatusOr<std::unique_ptr<SafetensorsFile>> open(const std::string &path);
  const std::string &path() const { return path_; }
  const SafetensorsHeader &header() const { return header_; }
  // Fills `out` with bytes of one of header().tensors, from `offset` of it on: kDataLoss where they are not there any
  // more. From any number of threads.
  absl::Status read(const StoredTensor &tensor, uint64_t offset, absl::Span<std::byte> out) const;
  void willNeed(const StoredTensor &tensor) const;

private:
  SafetensorsFile() = default;
  std::string path_;
  std::unique_ptr<InputFile> file_;
  SafetensorsHeader header_;
};

} // namespace headrace::model
