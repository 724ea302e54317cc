// SPDX-License-Identifier: Apache-2.0
#include "bench/iterations/RecordVariant.h"

#include "runtime/base/StatusMacros.h"
#include "runtime/cuda/GraphRules.h"
#include "runtime/cuda/RecordingBuilder.h"

namespace headrace::bench {

absl::StatusOr<cuda::RecordedGraph> recordVariant(const plan::Plan &plan, uint32_t variant) {
  const auto at = [](int bit) { return reinterpret_cast<std::byte *>(uintptr_t{1} << bit); };
  const cuda::GraphMemory memory{.bases = {at(44), at(45)},
                                 .arenaBytes = plan.arenaBytes,
                                 .slabBytes = plan.hostBytes,
                                 .frequencies = reinterpret_cast<const float *>(at(46)),
                                 .frequencyBytes = uint64_t{1} << 20,
                                 .publishedTokens = reinterpret_cast<int32_t *>(at(42)),
                                 .publishedTokensBytes = kernels::kPublishSlots *
                                                         static_cast<uint64_t>(plan.mostSampled()) * sizeof(int32_t),
                                 .publishedIterations = reinterpret_cast<uint64_t *>(at(43))};
  const core::BindContext binding(plan, kernels::Order::RowMajor, memory.frequencies);
  ASSIGN_OR_RETURN(planned, cuda::planGraph({.plan = plan, .binding = binding, .memory = memory}, {.index = variant}));
  ASSIGN_OR_RETURN(recorded, cuda::record(planned));
  RETURN_IF_ERROR(cuda::checkGraph(recorded));
  return recorded;
}

} // namespace headrace::bench
