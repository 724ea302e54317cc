// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/cuda/TinyGraph.h"

#include <gtest/gtest.h>

#include <utility>

#include "runtime/cuda/RecordingBuilder.h"

namespace headrace::cuda {

core::TinyPlanOptions forCuda(core::TinyPlanOptions options) {
  options.kind = model::DeviceKind::Cuda;
  return options;
}

TinyGraph::TinyGraph(const core::TinyPlanOptions &options, FusePolicy fusePolicy)
    : plan(core::tinyPlan(forCuda(options))), fuse(fusePolicy) {
  plan.kvEncoding = plan.activationDtype = options.spec.dtype;
}

TinyGraph::TinyGraph(plan::Plan of) : plan(std::move(of)), fuse(FusePolicy::Library) {}

GraphMemory TinyGraph::memory() const {
  const auto at = [](int bit) { return reinterpret_cast<std::byte *>(uintptr_t{1} << bit); };
  return {.bases = {at(40), at(41)},
          .arenaBytes = plan.arenaBytes,
          .slabBytes = plan.hostBytes,
          .frequencies = reinterpret_cast<const float *>(at(42)),
          .frequencyBytes = 32,
          .arrivals = reinterpret_cast<uint32_t *>(at(45)),
          .publishedTokens = reinterpret_cast<int32_t *>(at(43)),
          .publishedTokensBytes =
              static_cast<uint64_t>(kernels::kPublishSlots * plan.metaLayout.maxSequences) * sizeof(int32_t),
          .publishedIterations = reinterpret_cast<uint64_t *>(at(44))};
}

absl::StatusOr<GraphPlan> TinyGraph::make(const core::GraphKey &key) const {
  const GraphMemory where = memory();
  const core::BindContext binding(plan, kernels::Order::RowMajor, where.frequencies, where.arrivals);
  return planGraph({.plan = plan, .binding = binding, .memory = where, .fuse = fuse}, key);
}

GraphPlan TinyGraph::variant(uint32_t index) const {
  auto graph = make({.transition = false, .index = index});
  EXPECT_TRUE(graph.ok()) << graph.status();
  return graph.ok() ? *std::move(graph) : GraphPlan();
}

GraphPlan TinyGraph::transition(uint32_t index) const {
  auto graph = make({.transition = true, .index = index});
  EXPECT_TRUE(graph.ok()) << graph.status();
  return graph.ok() ? *std::move(graph) : GraphPlan();
}

RecordedGraph TinyGraph::recorded(const core::GraphKey &key, bool stamps) const {
  auto graph = record(key.transition ? transition(key.index) : variant(key.index), stamps);
  EXPECT_TRUE(graph.ok()) << graph.status();
  return graph.ok() ? *std::move(graph) : RecordedGraph();
}

} // namespace headrace::cuda
