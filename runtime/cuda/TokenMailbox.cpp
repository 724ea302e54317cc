// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/TokenMailbox.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/cuda/CudaError.h"

namespace headrace::cuda {

int64_t monotonicNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

bool WaitPace::asks(int64_t nowNs) {
  if (nowNs < nextQuery_)
    return false;
  nextQuery_ = nowNs + kQueryNs;
  return true;
}

void WaitPace::pause(int64_t nowNs) const {
  if (waitedNs(nowNs) < kSpinNs)
    return;
  if (waitedNs(nowNs) < kYieldNs)
    ::sched_yield();
  else
    std::this_thread::sleep_for(std::chrono::microseconds(20));
}

absl::StatusOr<TokenMailbox> TokenMailbox::make(int64_t maxSequences) {
  TokenMailbox mailbox;
  mailbox.maxSequences_ = std::max<int64_t>(maxSequences, 1);
  ASSIGN_OR_RETURN(tokens, MappedMemory::take(mailbox.deviceTokensBytes(), "tokens"));
  ASSIGN_OR_RETURN(iterations, MappedMemory::take(kernels::kPublishSlots * sizeof(uint64_t), "iteration numbers"));
  mailbox.tokens_ = std::move(tokens);
  mailbox.iterations_ = std::move(iterations);
  return mailbox;
}

void TokenMailbox::expect(uint64_t iteration, int32_t count) {
  counts_[slotOf(iteration)] = count;
  visible_[slotOf(iteration)] = 0;
}

bool TokenMailbox::arrived(uint64_t iteration) const {
  auto *numbers = reinterpret_cast<uint64_t *>(iterations_.data());
  // Acquire: the tokens were written before the number.
  if (std::atomic_ref<uint64_t>(numbers[slotOf(iteration)]).load(std::memory_order_acquire) != iteration)
    return false;
  int64_t &visible = visible_[slotOf(iteration)];
  if (visible == 0)
    visible = monotonicNs();
  return true;
}

int64_t TokenMailbox::visibleNs(uint64_t iteration) const {
  return arrived(iteration) ? visible_[slotOf(iteration)] : -1;
}

absl::Status TokenMailbox::look(uint64_t iteration, cudaStream_t stream) const {
  const cudaError_t state = cudaStreamQuery(stream);
  if (state != cudaSuccess && state != cudaErrorNotReady)
    return cudaFailed(state, "cudaStreamQuery", absl::StrCat("waiting for the tokens of iteration ", iteration));
  (void)cudaGetLastError(); // not ready is no error of anybody's
  if (state == cudaSuccess && !arrived(iteration))
    return absl::InternalError(
        absl::StrCat("cuda device: iteration ", iteration, " has ended without publishing its tokens"));
  return absl::OkStatus();
}

absl::StatusOr<absl::Span<const int32_t>> TokenMailbox::await(uint64_t iteration, cudaStream_t stream, int64_t lateNs,
                                                              absl::FunctionRef<void()> late) {
  WaitPace pace(monotonicNs());
  while (!arrived(iteration)) {
    const int64_t now = monotonicNs();
    if (lateNs > 0 && pace.waitedNs(now) >= lateNs) {
      late();
      lateNs = 0;
    }
    if (pace.asks(now))
      RETURN_IF_ERROR(look(iteration, stream));
    pace.pause(now);
  }
  const auto *tokens = reinterpret_cast<const int32_t *>(tokens_.data() + slotOf(iteration) * slotBytes());
  return absl::MakeConstSpan(tokens, static_cast<size_t>(counts_[slotOf(iteration)]));
}

} // namespace headrace::cuda
