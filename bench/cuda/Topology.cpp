// SPDX-License-Identifier: Apache-2.0
#include "bench/cuda/Topology.h"

#include "bench/cuda/Session.h"
#include "runtime/cuda/RecordingBuilder.h"

namespace headrace::bench {

cuda::RecordedGraph recordVariant(const plan::Plan &plan, uint32_t variant) {
  // Addresses that nothing reads.
  const auto at = [](int bit) { return reinterpret_cast<std::byte *>(uintptr_t{1} << bit); };
  const cuda::GraphMemory memory{.bases = {at(44), at(45)},
                                 .arenaBytes = plan.arenaBytes,
                                 .slabBytes = plan.hostBytes,
                                 .frequencies = reinterpret_cast<const float *>(at(46)),
                                 .frequencyBytes = kMiB,
                                 .publishedTokens = reinterpret_cast<int32_t *>(at(42)),
                                 .publishedTokensBytes = kernels::kPublishSlots *
                                                         static_cast<uint64_t>(plan.mostSampled()) * sizeof(int32_t),
                                 .publishedIterations = reinterpret_cast<uint64_t *>(at(43))};
  const core::BindContext binding(plan, kernels::Order::RowMajor, memory.frequencies);
  const cuda::GraphPlan planned =
      take(cuda::planGraph({.plan = plan, .binding = binding, .memory = memory}, {.index = variant}));
  return take(cuda::record(planned));
}

Topology::Topology(const cuda::RecordedGraph &recorded, size_t copyBytes)
    : host_(2 * copyBytes), device_(2 * copyBytes) {
  std::vector<cudaGraphNode_t> made;
  for (const cuda::RecordedNode &node : recorded.nodes) {
    BenchGraph::After after;
    for (const uint32_t before : node.after)
      after.push_back(made[before]);
    if (node.kind != cuda::RecordedKind::Copy) {
      made.push_back(kernel_.add(graph, after));
      continue;
    }
    Copy copy{.to = device_.as(), .from = host_.as(), .kind = cudaMemcpyHostToDevice};
    if (!node.copy.toDevice)
      copy = {.to = host_.as() + copyBytes, .from = device_.as() + copyBytes, .kind = cudaMemcpyDeviceToHost};
    copy.node = graph.copy(after, copy.to, copy.from, copyBytes, copy.kind);
    made.push_back(copy.node);
    copies.push_back(copy);
  }
}

} // namespace headrace::bench
