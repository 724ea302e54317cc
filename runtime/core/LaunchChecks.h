// SPDX-License-Identifier: Apache-2.0
//
// What every device asks of a launch and of a wait for tokens, in the same words. `device` begins the message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/IterationMeta.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::core {

// A variant's bucket: upper bounds, inclusive.
struct Bucket {
  int64_t tokens = 0, sequences = 0, context = 0;
};

// The iteration buffer of a launch: of so many mini-batches, the first one's header at `first`.
struct Metas {
  const kernels::IterationMeta *first = nullptr;
  uint64_t bytes = 0; // from one header to the next
  uint32_t count = 1;

  const kernels::IterationMeta &of(uint32_t miniBatch) const {
    return *reinterpret_cast<const kernels::IterationMeta *>(reinterpret_cast<const char *>(first) + miniBatch * bytes);
  }
  // As many, of the same size, elsewhere.
  Metas at(const kernels::IterationMeta *other) const { return {other, bytes, count}; }
  // Rows that are sampled, of all mini-batches.
  int32_t sampled() const {
    const kernels::IterationMeta &last = of(count - 1);
    return static_cast<int32_t>(last.firstOutput) + last.numSampled;
  }
};
Metas metasOf(const plan::Plan &plan, const kernels::IterationMeta *first);
// Bytes from the first header on that the iteration uses, of a buffer that checkFits() accepts: to the end of the last
// block table. A launch brings so many, in one copy.
uint64_t bytesInUse(const Metas &metas);

// InvalidArgument where the counts of an iteration buffer do not fit the bucket, where the tokens or block tables of
// mini-batches do not follow each other, and where a sequence is longer than the bucket's context.
absl::Status checkFits(std::string_view device, const Bucket &bucket, const Metas &metas);
// Of one mini-batch's by itself; `who` begins the message.
absl::Status checkFits(std::string_view who, const Bucket &bucket, const kernels::IterationMeta &meta);

// Tokens are held of the last two of `launched` iterations, which count from 1.
constexpr bool tokensHeld(uint64_t iteration, uint64_t launched) {
  return iteration >= 1 && iteration <= launched && iteration + 2 > launched;
}
// FailedPrecondition for an iteration that was not launched, OutOfRange for one whose tokens are gone.
absl::Status checkAwaited(std::string_view device, uint64_t iteration, uint64_t launched);

// Of a group of `devices`: InvalidArgument unless there is one entry a device, and something to wait for: an entry
// above 0 or a time.
absl::Status checkWait(std::string_view device, absl::Span<const uint64_t> awaited, size_t devices, int64_t untilNs);
// InvalidArgument unless positive and finite.
absl::Status checkBandwidth(std::string_view device, double bytesPerSecond);

} // namespace headrace::core
