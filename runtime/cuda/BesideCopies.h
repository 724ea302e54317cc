// SPDX-License-Identifier: Apache-2.0
//
// Copies beside launches (core/BesideCopies.h) on a GPU: a stream of their own for each direction, so that they share
// the copy engines with the copies of graphs.
//
//   launch stream   | n | n + 1 ...
//                       ^ event: all launches made so far
//   d2h, h2d            | copies of a ticket | event | those of the next ...
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/core/BesideCopies.h"
#include "runtime/cuda/CudaMemory.h"

namespace headrace::cuda {

class BesideCopies {
public:
  BesideCopies() = default;
  BesideCopies(const BesideCopies &) = delete;
  BesideCopies &operator=(const BesideCopies &) = delete;
  ~BesideCopies(); // what is under way ends first

  // Gives up what was reserved, once all copies have ended.
  absl::Status reserve(uint64_t bytes, const SlabOptions &options);
  absl::Span<std::byte> memory() const { return swap_.bytes(); }

  // Behind what was launched on `launch` so far. Copies are checked (core::checkCopies).
  absl::StatusOr<uint64_t> copy(absl::Span<const core::BlockCopy> copies, std::byte *arena, cudaStream_t launch);
  absl::StatusOr<bool> copied(uint64_t ticket);
  absl::Status await(uint64_t ticket);
  absl::Status awaitAll();

private:
  // Of a ticket; both streams have their own end. Events are taken once and used again.
  struct Ends {
    cudaEvent_t launched = nullptr;
    std::array<cudaEvent_t, 2> ended{};
    std::array<bool, 2> used{};
  };
  static absl::Status create(Ends &ends);
  static void destroy(const std::vector<Ends> &ring);
  absl::Status makeRoom();
  absl::StatusOr<bool> ended(const Ends &ends) const;

  PinnedSlab swap_;
  std::array<cudaStream_t, 2> streams_{}; // to the host, to the device; null before the first reserve()
  std::vector<Ends> ring_;                // of the tickets from oldest_ on
  uint64_t oldest_ = 1, next_ = 1;
};

} // namespace headrace::cuda
