// SPDX-License-Identifier: Apache-2.0
//
// Where a graph leaves an iteration's tokens for the host: mapped memory, a slot for each of the last kPublishSlots
// iterations, the iteration's number written after its tokens (kernels::PublishArgs).
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/CudaKernels.h"
#include "runtime/cuda/CudaMemory.h"

namespace headrace::cuda {

class TokenMailbox {
public:
  static absl::StatusOr<TokenMailbox> make(int64_t maxSequences);

  int32_t *deviceTokens() const { return reinterpret_cast<int32_t *>(tokens_.deviceData()); }
  uint64_t deviceTokensBytes() const { return slotBytes() * kernels::kPublishSlots; }
  uint64_t *deviceIterations() const { return reinterpret_cast<uint64_t *>(iterations_.deviceData()); }

  // Iteration `iteration` is about to be launched with this many sampled rows.
  void expect(uint64_t iteration, int32_t count);
  // Waits until the iteration's number is there. Looks at it without pause for kSpinNs, yields up to kYieldNs, then
  // sleeps, and looks at the stream now and then: a stream that failed, or ended without publishing, ends the wait with
  // an error. Calls late() once, where it has waited for so long, and waits on; 0: does not.
  absl::StatusOr<absl::Span<const int32_t>> await(uint64_t iteration, cudaStream_t stream, int64_t lateNs,
                                                  absl::FunctionRef<void()> late);
  // When the host first saw them; -1 if it has not yet. What is there is seen now.
  int64_t visibleNs(uint64_t iteration) const;

private:
  static constexpr int64_t kSpinNs = 50'000;      // far below an iteration, far above a core's wake-up
  static constexpr int64_t kYieldNs = 20'000'000; // most decode iterations; a sleep would add to TPOT
  static constexpr int64_t kQueryNs = 200'000;    // between looks at the stream

  uint64_t slotBytes() const { return static_cast<uint64_t>(maxSequences_) * sizeof(int32_t); }
  static size_t slotOf(uint64_t iteration) { return iteration % kernels::kPublishSlots; }
  bool arrived(uint64_t iteration) const;

  int64_t maxSequences_ = 0;
  MappedMemory tokens_, iterations_;
  std::array<int32_t, kernels::kPublishSlots> counts_{};
  mutable std::array<int64_t, kernels::kPublishSlots> visible_{}; // 0: not seen yet
};

int64_t monotonicNs();

} // namespace headrace::cuda
