// SPDX-License-Identifier: Apache-2.0
//
// Where a graph leaves an iteration's tokens for the host: mapped memory, a slot for each of the last kPublishSlots
// iterations, the iteration's number written after its tokens (kernels::PublishArgs).
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/CudaKernels.h"
#include "runtime/cuda/CudaMemory.h"

namespace headrace::cuda {

int64_t monotonicNs();

// How the host waits for what a GPU writes to mapped memory: it looks without pause for kSpinNs, yields up to kYieldNs,
// then sleeps, and asks CUDA now and then whether it still can come.
class WaitPace {
public:
  explicit WaitPace(int64_t nowNs) : start_(nowNs), nextQuery_(nowNs + kSpinNs) {}
  int64_t waitedNs(int64_t nowNs) const { return nowNs - start_; }
  bool asks(int64_t nowNs); // whether it is time to
  void pause(int64_t nowNs) const;

private:
  static constexpr int64_t kSpinNs = 50'000;      // far below an iteration, far above a core's wake-up
  static constexpr int64_t kYieldNs = 20'000'000; // most decode iterations; a sleep would add to TPOT
  static constexpr int64_t kQueryNs = 200'000;    // between looks at the stream

  int64_t start_, nextQuery_;
};

class TokenMailbox {
public:
  static absl::StatusOr<TokenMailbox> make(int64_t maxSequences);

  int32_t *deviceTokens() const { return reinterpret_cast<int32_t *>(tokens_.deviceData()); }
  uint64_t deviceTokensBytes() const { return slotBytes() * kernels::kPublishSlots; }
  uint64_t *deviceIterations() const { return reinterpret_cast<uint64_t *>(iterations_.deviceData()); }

  // Iteration `iteration` is about to be launched with this many sampled rows.
  void expect(uint64_t iteration, int32_t count);
  // Waits until the iteration's number is there; an error of look()'s ends the wait. Calls late() once, where it has
  // waited for so long, and waits on; 0: does not.
  absl::StatusOr<absl::Span<const int32_t>> await(uint64_t iteration, cudaStream_t stream, int64_t lateNs,
                                                  absl::FunctionRef<void()> late);
  // Looks at the stream that it was launched on: an error where that failed, or has ended without publishing.
  absl::Status look(uint64_t iteration, cudaStream_t stream) const;
  // When the host first saw them; -1 if it has not yet. What is there is seen now.
  int64_t visibleNs(uint64_t iteration) const;

private:
  uint64_t slotBytes() const { return static_cast<uint64_t>(maxSequences_) * sizeof(int32_t); }
  static size_t slotOf(uint64_t iteration) { return iteration % kernels::kPublishSlots; }
  bool arrived(uint64_t iteration) const;

  int64_t maxSequences_ = 0;
  MappedMemory tokens_, iterations_;
  std::array<int32_t, kernels::kPublishSlots> counts_{};
  mutable std::array<int64_t, kernels::kPublishSlots> visible_{}; // 0: not seen yet
};

} // namespace headrace::cuda
