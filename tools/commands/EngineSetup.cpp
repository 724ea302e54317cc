// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/EngineSetup.h"

#include <algorithm>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/base/Units.h"
#include "runtime/plan/value/CacheMap.h"
#include "runtime/serve/engine/Engine.h"
#include "tools/commands/InputErrors.h"

namespace headrace::tools {

using model::cat;

namespace {
constexpr const char *kSwapSpace = "--swap-space", *kPreemption = "--preemption-mode";
constexpr const char *kSeats = "--max-num-seqs", *kTokens = "--max-num-batched-tokens";
} // namespace

absl::Status checkScheduler(const SchedulerFlags &flags, int64_t batch, int64_t miniBatches) {
  if (flags.maxNumSeqs && *flags.maxNumSeqs > batch)
    return badNumber(kSeats, *flags.maxNumSeqs, cat("1 to ", batch, ", the plan's batch"));
  const int64_t seats = (flags.maxNumSeqs.value_or(batch) - 1) / miniBatches + 1; // of one
  if (flags.maxNumBatchedTokens && *flags.maxNumBatchedTokens < seats)
    return badNumber(kTokens, *flags.maxNumBatchedTokens,
                     cat("at least ", seats, ", ", flags.maxNumSeqs ? kSeats : "the plan's batch",
                         miniBatches == 1 ? std::string() : cat(" / ", miniBatches, " mini-batches")));
  return swapSpace(flags).status();
}

absl::StatusOr<uint64_t> swapSpace(const SchedulerFlags &flags) {
  uint64_t bytes = 0;
  if (!flags.swapSpace.empty()) {
    const bool bare = flags.swapSpace.find_first_not_of("0123456789.") == std::string::npos;
    const absl::StatusOr<uint64_t> parsed = model::parseBytes(bare ? flags.swapSpace + "GiB" : flags.swapSpace, "");
    if (!parsed.ok())
      return badFlag(kSwapSpace, flags.swapSpace, "GiB such as 4 or 0.5, or bytes with their unit, below 2^63");
    bytes = *parsed;
  }
  if (bytes == 0 && flags.preemption == serve::Preemption::Swap)
    return badFlag(kPreemption, "swap", "there is no memory to swap to", cat(kSwapSpace, " beside it"));
  if (bytes > 0 && flags.preemption == serve::Preemption::Recompute)
    return badFlag(kSwapSpace, flags.swapSpace, "preempted sequences are recomputed",
                   cat(kPreemption, " auto or swap beside it"));
  if (bytes > 0 && flags.batching == serve::Batching::Static)
    return badFlag(kSwapSpace, flags.swapSpace, "nobody is preempted in a static batch", "--scheduler vllm beside it");
  return bytes;
}

absl::Status checkScheduler(const SchedulerFlags &flags, const plan::Plan &plan) {
  const serve::EngineBounds bounds = serve::engineBounds(plan);
  RETURN_IF_ERROR(checkScheduler(flags, bounds.maxNumSeqs, plan.miniBatches));
  ASSIGN_OR_RETURN(swapBytes, swapSpace(flags));
  if (const uint64_t least = plan::movedBlockBytes(plan); swapBytes > 0 && swapBytes < least)
    return badFlag(kSwapSpace, flags.swapSpace,
                   cat("at least ", model::bytesText(least), ", a KV block of all layers"));
  const uint64_t all = plan.hardware.hostLimit();
  if (const uint64_t most = all - std::min(plan.hostBytes, all); swapBytes > most)
    return badFlag(kSwapSpace, flags.swapSpace,
                   cat("at most ", model::bytesText(most), ", which host memory of ", model::bytesText(all),
                       " has beside the plan's ", model::bytesText(plan.hostBytes)));
  if (flags.maxNumBatchedTokens && *flags.maxNumBatchedTokens > bounds.maxNumBatchedTokens)
    return badNumber(kTokens, *flags.maxNumBatchedTokens,
                     bounds.maxNumBatchedTokens == 0
                         ? std::string("no such flag: the plan has no bucket of more new tokens than sequences "
                                       "(--new-tokens makes some)")
                         : cat("at most ", bounds.maxNumBatchedTokens,
                               ", the plan's largest bucket of new tokens (--new-tokens makes others)"));
  return absl::OkStatus();
}

} // namespace headrace::tools
