// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/CopySizes.h"

namespace headrace::cuda {

CopySizes::CopySizes(const GraphPlan &plan) {
  for (uint32_t n = 0; n < plan.nodes.size(); ++n) {
    const GraphNode &node = plan.nodes[n];
    if (node.kind != NodeKind::Copy)
      continue;
    (node.copy.toDevice ? bytes_.h2d : bytes_.d2h) += node.copy.bytes;
    if (node.copy.sized.has_value())
      copies_.push_back({.node = n, .copy = node.copy});
  }
}

} // namespace headrace::cuda
