// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/LaunchChecks.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "runtime/core/DeviceGroup.h"

namespace headrace::core {
namespace {

// Debian's absl has a string_view of its own.
absl::string_view view(std::string_view text) { return {text.data(), text.size()}; }

} // namespace

Metas metasOf(const plan::Plan &plan, const kernels::IterationMeta *first) {
  return {first, kernels::metaFixedBytes(plan.metaLayout), plan.miniBatches};
}

uint64_t bytesInUse(const Metas &metas) {
  const uint32_t last = metas.count - 1;
  return last * metas.bytes + kernels::metaBytesInUse(metas.of(last));
}

namespace {

// `who`: begins the message; made where there is one, as a launch allocates nothing.
template <class Who> absl::Status checkOne(const Who &who, const Bucket &bucket, const kernels::IterationMeta &meta) {
  const auto within = [](int64_t value, int64_t most) { return value >= 0 && value <= most; };
  if (!within(meta.numTokens, bucket.tokens) || !within(meta.numSequences, bucket.sequences) ||
      !within(meta.numSampled, bucket.sequences))
    return absl::InvalidArgumentError(absl::StrCat(
        who(), ": ", meta.numTokens, " tokens of ", meta.numSequences, " sequences, ", meta.numSampled,
        " sampled, do not fit the variant's ", bucket.tokens, " tokens of ", bucket.sequences, " sequences"));
  const int32_t *lengths = meta.array<int32_t>(meta.contextLength);
  for (int32_t s = 0; s < meta.numSequences; ++s)
    if (!within(lengths[s], bucket.context))
      return absl::InvalidArgumentError(absl::StrCat(who(), ": sequence ", s, " of ", meta.numSequences, " is ",
                                                     lengths[s],
                                                     " tokens long with this iteration's, the variant's context is ",
                                                     bucket.context, ": launch a variant of a longer one"));
  return absl::OkStatus();
}

} // namespace

absl::Status checkFits(std::string_view who, const Bucket &bucket, const kernels::IterationMeta &meta) {
  return checkOne([&] { return view(who); }, bucket, meta);
}

absl::Status checkFits(std::string_view device, const Bucket &bucket, const Metas &metas) {
  uint32_t sampled = 0;
  uint64_t table = metas.count * metas.bytes; // where the next block table begins
  for (uint32_t i = 0; i < metas.count; ++i) {
    const kernels::IterationMeta &meta = metas.of(i);
    const auto who = [&] {
      return absl::StrCat(view(device), metas.count == 1 ? "" : absl::StrCat(": mini-batch ", i));
    };
    if (absl::Status status = checkOne(who, bucket, meta); !status.ok())
      return status;
    if (meta.firstOutput != sampled)
      return absl::InvalidArgumentError(absl::StrCat(who(), ": its first token is number ", meta.firstOutput, ", ",
                                                     sampled, " are sampled before it"));
    sampled += static_cast<uint32_t>(meta.numSampled);
    if (i * metas.bytes + meta.blockTable != table)
      return absl::InvalidArgumentError(
          absl::StrCat(who(), ": its block table begins at byte ", i * metas.bytes + meta.blockTable,
                       " of the iteration's, expected ", table, ", where what is before it ends"));
    table = i * metas.bytes + kernels::metaBytesInUse(meta);
  }
  return absl::OkStatus();
}

absl::Status checkAwaited(std::string_view device, uint64_t iteration, uint64_t launched) {
  if (iteration == 0 || iteration > launched)
    return absl::FailedPreconditionError(
        absl::StrCat(view(device), ": tokens of iteration ", iteration, ": ", launched, " were launched"));
  if (!tokensHeld(iteration, launched))
    return absl::OutOfRangeError(absl::StrCat(view(device), ": tokens of iteration ", iteration,
                                              " are gone: ", launched, " were launched, the last 2 can be read"));
  return absl::OkStatus();
}

absl::Status checkWait(std::string_view device, absl::Span<const uint64_t> awaited, size_t devices, int64_t untilNs) {
  if (awaited.size() != devices)
    return absl::InvalidArgumentError(
        absl::StrCat(view(device), ": waiting for ", awaited.size(), " devices, the group has ", devices));
  if (untilNs == kForeverNs && std::all_of(awaited.begin(), awaited.end(), [](uint64_t n) { return n == 0; }))
    return absl::InvalidArgumentError(absl::StrCat(view(device), ": waiting for no device and no time"));
  return absl::OkStatus();
}

absl::Status checkBandwidth(std::string_view device, double bytesPerSecond) {
  if (std::isfinite(bytesPerSecond) && bytesPerSecond > 0)
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(view(device), ": bus bandwidth ", bytesPerSecond, ", expected bytes per second above zero"));
}

} // namespace headrace::core
