// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/GraphBuilder.h"

#include "runtime/base/StatusMacros.h"

#include <array>

namespace headrace::cuda {

using plan::Lane;

absl::Status walk(const GraphPlan &plan, bool stamps, GraphBuilder &builder) {
  std::array<bool, kGraphLanes> used{};
  for (const GraphNode &node : plan.nodes)
    used[laneIndex(node.lane)] = true;
  if (stamps)
    RETURN_IF_ERROR(builder.stamp(Lane::Compute, Stamps::origin()));
  for (const Lane lane : kSideLanes)
    if (used[laneIndex(lane)])
      RETURN_IF_ERROR(builder.fork(lane));
  for (uint32_t n = 0; n < plan.nodes.size(); ++n) {
    const GraphNode &node = plan.nodes[n];
    const bool first = n == 0 || plan.nodes[n - 1].step != node.step;
    const bool last = n + 1 == plan.nodes.size() || plan.nodes[n + 1].step != node.step;
    for (uint32_t before : node.waits)
      RETURN_IF_ERROR(builder.wait(node.lane, before));
    if (stamps && first)
      RETURN_IF_ERROR(builder.stamp(node.lane, Stamps::start(node.step)));
    RETURN_IF_ERROR(builder.add(n));
    if (stamps && last)
      RETURN_IF_ERROR(builder.stampAfter(n, Stamps::end(node.step)));
  }
  for (const Lane lane : kSideLanes)
    if (used[laneIndex(lane)])
      RETURN_IF_ERROR(builder.join(lane));
  return absl::OkStatus();
}

} // namespace headrace::cuda
