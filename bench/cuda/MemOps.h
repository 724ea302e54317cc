// SPDX-License-Identifier: Apache-2.0
//
// Nodes of memory operations, which only the driver's interface adds to a graph.
#pragma once

#include <cstdint>
#include <string>

#include "bench/cuda/Gpu.h"

namespace headrace::bench {

// Empty where a graph may have them, else what the driver says.
std::string whyNoMemOps();
// One node that writes `round` to *asked and then waits until *answered is at least that; both as the device sees them.
cudaGraphNode_t askAndWait(BenchGraph &graph, const BenchGraph::After &after, uint32_t *asked, uint32_t *answered,
                           uint32_t round);

} // namespace headrace::bench
