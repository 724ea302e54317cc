// SPDX-License-Identifier: Apache-2.0
//
// Which nodes of a graph come before which: for each node the set of its ancestors, as bits.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/cuda/RecordedGraph.h"

namespace headrace::cuda {

class GraphOrder {
public:
  explicit GraphOrder(const RecordedGraph &graph);
  bool acyclic() const { return order_.size() == nodes_; }
  // A path leads from `a` to `b`. Only for acyclic graphs.
  bool before(uint32_t a, uint32_t b) const { return (ancestors_[b * words_ + a / 64] >> (a % 64) & 1) != 0; }
  // Nodes with their predecessors first.
  const std::vector<uint32_t> &order() const { return order_; }

private:
  size_t nodes_, words_;
  std::vector<uint64_t> ancestors_; // [nodes, words]
  std::vector<uint32_t> order_;
};

} // namespace headrace::cuda
