// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/engine/ForcedRows.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/Kernels.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/core/MetaWriter.h"
#include "runtime/serve/engine/WrongLogits.h"

namespace headrace::serve {

absl::StatusOr<ForcedRows> ForcedRows::create(core::Runtime &runtime) {
  const plan::Plan &plan = runtime.plan();
  if (plan.miniBatches != 1)
    return absl::FailedPreconditionError(
        absl::StrCat("a plan of ", plan.miniBatches, " mini-batches: expected one, whose rows are of one prompt"));
  ForcedRows rows(runtime);
  RETURN_IF_ERROR(rows.kept_.prepare(plan, runtime.device()));
  return rows;
}

ForcedRows::ForcedRows(ForcedRows &&other) noexcept
    : runtime_(std::exchange(other.runtime_, nullptr)), kept_(std::move(other.kept_)),
      blocks_(std::exchange(other.blocks_, {})), rows_(std::exchange(other.rows_, 0)) {}

ForcedRows::~ForcedRows() {
  if (runtime_ != nullptr)
    restart();
}

int64_t ForcedRows::mostRows() const { return runtime_->plan().mostSampled(); }

void ForcedRows::restart() {
  runtime_->kvBlocks().release(blocks_);
  rows_ = 0;
}

absl::Status ForcedRows::next(absl::Span<const int32_t> ids, int64_t count, std::vector<float> &out) {
  const plan::Plan &plan = runtime_->plan();
  core::Device &device = runtime_->device();
  const int64_t end = rows_ + count;
  RETURN_IF_ERROR(runtime_->kvBlocks().grow(blocks_, end));
  std::vector<core::SequenceRows> rows;
  for (int64_t at = rows_; at < end; ++at)
    rows.push_back({.tokens = ids.subspan(static_cast<size_t>(at), 1),
                    .firstPosition = at,
                    .blocks = blocks_,
                    .sample = true,
                    .requestSlot = static_cast<int32_t>(at - rows_)});
  ASSIGN_OR_RETURN(variant, runtime_->choose(count, count, end));
  RETURN_IF_ERROR(core::writeMeta(plan.metaLayout, plan.blockTokens, rows, device.meta()));
  RETURN_IF_ERROR(runtime_->launch(variant));
  ASSIGN_OR_RETURN(tokens, runtime_->awaitTokens());
  for (int64_t i = 0; i < count; ++i)
    if (tokens[static_cast<size_t>(i)] == kernels::kNotFinite)
      return absl::AbortedError(
          wrongLogitsMessage(rows_ + i + 1, 0,
                             firstWrongStep(*runtime_, ids.subspan(0, static_cast<size_t>(rows_ + i + 1)), 0, blocks_,
                                            runtime_->placement(), 1)));
  for (int64_t i = 0; i < count; ++i)
    RETURN_IF_ERROR(kept_.read(plan, device, variant, 0, static_cast<size_t>(i), out));
  rows_ = end;
  return absl::OkStatus();
}

} // namespace headrace::serve
