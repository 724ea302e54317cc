// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/GraphOrder.h"

namespace headrace::cuda {

// Kahn's algorithm; each node takes over the ancestors of its predecessors.
GraphOrder::GraphOrder(const RecordedGraph &graph)
    : nodes_(graph.nodes.size()), words_((nodes_ + 63) / 64), ancestors_(nodes_ * words_) {
  std::vector<std::vector<uint32_t>> next(nodes_);
  std::vector<size_t> missing(nodes_);
  for (uint32_t i = 0; i < nodes_; ++i) {
    missing[i] = graph.nodes[i].after.size();
    for (uint32_t before : graph.nodes[i].after) {
      if (before >= nodes_)
        return; // no order at all: acyclic() is false
      next[before].push_back(i);
    }
  }
  for (uint32_t i = 0; i < nodes_; ++i)
    if (missing[i] == 0)
      order_.push_back(i);
  for (size_t done = 0; done < order_.size(); ++done) {
    const uint32_t node = order_[done];
    uint64_t *own = ancestors_.data() + node * words_;
    for (uint32_t before : graph.nodes[node].after) {
      const uint64_t *other = ancestors_.data() + before * words_;
      for (size_t w = 0; w < words_; ++w)
        own[w] |= other[w];
      own[before / 64] |= uint64_t{1} << (before % 64);
    }
    for (uint32_t follower : next[node])
      if (--missing[follower] == 0)
        order_.push_back(follower);
  }
}

} // namespace headrace::cuda
