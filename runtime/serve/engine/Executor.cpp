// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/engine/Executor.h"

#include "runtime/base/StatusMacros.h"

namespace headrace::serve {

absl::StatusOr<Executor::Launched> Executor::launch(uint32_t placement, const plan::IterationSize &size,
                                                    absl::Span<const absl::Span<const core::SequenceRows>> rows) const {
  if (isStaged()) {
    const int64_t ns = nowNs();
    ASSIGN_OR_RETURN(variant, stages_->begin(rows));
    return Launched{stages_->begun(), variant, ns};
  }
  ASSIGN_OR_RETURN(variant, first_->chooseIn(placement, size.tokens, size.sequences, size.context));
  const plan::Plan &plan = first_->plan();
  kernels::IterationMeta *const meta = first_->device().meta(); // of this launch: the next has its own
  RETURN_IF_ERROR(core::writeMetas(plan.metaLayout, plan.blockTokens, rows, meta));
  const int64_t ns = nowNs();
  RETURN_IF_ERROR(first_->launch(variant));
  return Launched{first_->launched(), variant, ns, meta};
}

absl::StatusOr<core::Stages::Awaited> Executor::await(const Launched &oldest) const {
  if (isStaged())
    return stages_->await();
  ASSIGN_OR_RETURN(tokens, first_->awaitTokens());
  return core::Stages::Awaited{tokens, first_->device().tokensVisibleNs(oldest.number), oldest.variant};
}

} // namespace headrace::serve
