// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Xxh64.h"
#include "runtime/model/CheckpointFiles.h"
#include "runtime/model/WeightSource.h"

namespace headrace::model {
namespace {

absl::StatusOr<uint64_t> hashOf(const FoundTensor &source, uint64_t seed) {
  Xxh64 hash(seed);
  RETURN_IF_ERROR(source.forEachPiece([&](absl::Span<const std::byte> piece) { hash.add(piece); }));
  return hash.value();
}

} // namespace

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
        ASSIGN_OR_RETURN(next, hashOf(source, hash));
        hash = next;
      }
    }
    hashes.push_back(hash);
    if (progress)
      progress(done += unit.bytes, layout.totalBytes());
  }
  return hashes;
}

} // namespace headrace::model
