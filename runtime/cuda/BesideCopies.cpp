// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/BesideCopies.h"

#include <algorithm>
#include <utility>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/cuda/CudaError.h"

namespace headrace::cuda {
namespace {

constexpr size_t kFirstTickets = 64;
constexpr const char *kCopies = "copies beside launches";

} // namespace

BesideCopies::~BesideCopies() {
  (void)awaitAll();
  destroy(ring_);
  for (const cudaStream_t stream : streams_)
    if (stream != nullptr)
      giveBack(cudaStreamDestroy(stream));
}

absl::Status BesideCopies::reserve(uint64_t bytes, const SlabOptions &options) {
  RETURN_IF_ERROR(awaitAll());
  swap_ = PinnedSlab();
  if (bytes == 0)
    return absl::OkStatus();
  for (cudaStream_t &stream : streams_)
    if (stream == nullptr)
      HEADRACE_CUDA(kCopies, cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  if (ring_.empty())
    RETURN_IF_ERROR(makeRoom());
  absl::StatusOr<PinnedSlab> taken = PinnedSlab::take(bytes, options);
  if (!taken.ok())
    return absl::Status(taken.status().code(), model::cat("swap memory: ", taken.status().message()));
  swap_ = *std::move(taken);
  return absl::OkStatus();
}

absl::Status BesideCopies::create(Ends &ends) {
  for (cudaEvent_t *event : {&ends.launched, &ends.ended[0], &ends.ended[1]})
    HEADRACE_CUDA(kCopies, cudaEventCreateWithFlags(event, cudaEventDisableTiming));
  return absl::OkStatus();
}

void BesideCopies::destroy(const std::vector<Ends> &ring) {
  for (const Ends &ends : ring)
    for (const cudaEvent_t event : {ends.launched, ends.ended[0], ends.ended[1]})
      if (event != nullptr)
        giveBack(cudaEventDestroy(event));
}

absl::Status BesideCopies::makeRoom() {
  std::vector<Ends> larger(std::max(2 * ring_.size(), kFirstTickets));
  for (uint64_t ticket = oldest_; ticket != next_; ++ticket)
    larger[ticket % larger.size()] = ring_[ticket % ring_.size()];
  // All of the new ones' events or none: a place without them would be used by a later copy.
  absl::Status status;
  for (Ends &ends : larger)
    if (status.ok() && ends.launched == nullptr)
      status = create(ends);
  if (!status.ok()) {
    for (uint64_t ticket = oldest_; ticket != next_; ++ticket)
      larger[ticket % larger.size()] = {};
    destroy(larger);
    return status;
  }
  // Called where the ring is full: every old place has gone into a new one.
  ring_.swap(larger);
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> BesideCopies::copy(absl::Span<const core::BlockCopy> copies, std::byte *arena,
                                            cudaStream_t launch) {
  for (; oldest_ != next_; ++oldest_) {
    ASSIGN_OR_RETURN(over, ended(ring_[oldest_ % ring_.size()]));
    if (!over)
      break;
  }
  if (next_ - oldest_ == ring_.size())
    RETURN_IF_ERROR(makeRoom());
  Ends &ends = ring_[next_ % ring_.size()];
  HEADRACE_CUDA(kCopies, cudaEventRecord(ends.launched, launch));
  ends.used = {};
  for (const core::BlockCopy &one : copies) {
    const size_t way = one.toDevice ? 1 : 0;
    if (!std::exchange(ends.used[way], true))
      HEADRACE_CUDA(kCopies, cudaStreamWaitEvent(streams_[way], ends.launched, 0));
    std::byte *const device = arena + one.device, *const host = swap_.bytes().data() + one.swap;
    if (one.toDevice)
      HEADRACE_CUDA(kCopies, cudaMemcpyAsync(device, host, one.bytes, cudaMemcpyHostToDevice, streams_[way]));
    else
      HEADRACE_CUDA(kCopies, cudaMemcpyAsync(host, device, one.bytes, cudaMemcpyDeviceToHost, streams_[way]));
  }
  for (size_t way = 0; way < 2; ++way)
    if (ends.used[way])
      HEADRACE_CUDA(kCopies, cudaEventRecord(ends.ended[way], streams_[way]));
  return next_++;
}

absl::StatusOr<bool> BesideCopies::ended(const Ends &ends) const {
  for (size_t way = 0; way < 2; ++way) {
    if (!ends.used[way])
      continue;
    const cudaError_t error = cudaEventQuery(ends.ended[way]);
    if (error == cudaErrorNotReady) {
      (void)cudaGetLastError(); // is no error of anybody's
      return false;
    }
    if (error != cudaSuccess)
      return cudaFailed(error, "cudaEventQuery", kCopies);
  }
  return true;
}

absl::StatusOr<bool> BesideCopies::copied(uint64_t ticket) {
  RETURN_IF_ERROR(core::checkTicket("cuda device", ticket, next_ - 1));
  if (ticket < oldest_)
    return true;
  return ended(ring_[ticket % ring_.size()]);
}

absl::Status BesideCopies::await(uint64_t ticket) {
  RETURN_IF_ERROR(core::checkTicket("cuda device", ticket, next_ - 1));
  if (ticket < oldest_)
    return absl::OkStatus();
  const Ends &ends = ring_[ticket % ring_.size()];
  for (size_t way = 0; way < 2; ++way)
    if (ends.used[way])
      HEADRACE_CUDA(kCopies, cudaEventSynchronize(ends.ended[way]));
  return absl::OkStatus();
}

absl::Status BesideCopies::awaitAll() {
  for (const cudaStream_t stream : streams_)
    if (stream != nullptr)
      HEADRACE_CUDA(kCopies, cudaStreamSynchronize(stream));
  return absl::OkStatus();
}

} // namespace headrace::cuda
