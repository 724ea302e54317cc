// SPDX-License-Identifier: Apache-2.0
//
// What every device asks of a launch and of a wait for tokens, in the same words. `device` begins the message.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/IterationMeta.h"

namespace headrace::core {

// A variant's bucket: upper bounds, inclusive.
struct Bucket {
  int64_t tokens = 0, sequences = 0;
};

// InvalidArgument where the iteration buffer's counts do not fit the bucket.
absl::Status checkFits(std::string_view device, const Bucket &bucket, const kernels::IterationMeta &meta);

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
