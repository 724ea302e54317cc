// SPDX-License-Identifier: Apache-2.0
#include "bench/cuda/Topology.h"

namespace headrace::bench {

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
