// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/EngineSetup.h"

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/serve/engine/Engine.h"
#include "tools/commands/InputErrors.h"

namespace headrace::tools {

using model::cat;

namespace {
constexpr const char *kSeats = "--max-num-seqs", *kTokens = "--max-num-batched-tokens";
} // namespace

absl::Status checkScheduler(const SchedulerFlags &flags, int64_t batch) {
  if (flags.maxNumSeqs && *flags.maxNumSeqs > batch)
    return badNumber(kSeats, *flags.maxNumSeqs, cat("1 to ", batch, ", the plan's batch"));
  const int64_t seats = flags.maxNumSeqs.value_or(batch);
  if (flags.maxNumBatchedTokens && *flags.maxNumBatchedTokens < seats)
    return badNumber(kTokens, *flags.maxNumBatchedTokens,
                     cat("at least ", seats, ", ", flags.maxNumSeqs ? kSeats : "the plan's batch"));
  return absl::OkStatus();
}

absl::Status checkScheduler(const SchedulerFlags &flags, const plan::Plan &plan) {
  const serve::EngineBounds bounds = serve::engineBounds(plan);
  RETURN_IF_ERROR(checkScheduler(flags, bounds.maxNumSeqs));
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
