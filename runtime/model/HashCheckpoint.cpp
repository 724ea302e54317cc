// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/Xxh64.h"
#include "runtime/model/CheckpointFiles.h"
#include "runtime/model/WeightSource.h"

namespace headrace::model {

absl::StatusOr<std::vector<uint64_t>>
hashCheckpoint(const CheckpointFiles &files, const WeightLayout &layout,
               const std::function<void(uint64_t done, uint64_t total)> &progress) {
  std::vector<uint64_t> hashes;
  uint64_t done = 0;
  for (const Unit &unit : layout.units) {
    uint64_t hash = 0;
    for (const Tensor &tensor : unit.tensors) {
      absl::StatusOr<std::vector<FoundTensor>> sources = files.sources(tensor);
      if (!sources.ok())
        return sources.status();
      for (const FoundTensor &source : *sources) {
        source.file->willNeed(*source.tensor);
        hash = xxh64(source.data(), hash);
        source.file->release(*source.tensor);
      }
    }
    hashes.push_back(hash);
    if (progress)
      progress(done += unit.bytes, layout.totalBytes());
  }
  return hashes;
}

} // namespace headrace::model
