// SPDX-License-Identifier: Apache-2.0
//
// Graphs of small plans at made-up addresses, for tests of what is planned and recorded.
#pragma once

#include <memory>

#include "runtime/core/BindStep.h"
#include "runtime/cuda/GraphPlan.h"
#include "runtime/cuda/RecordedGraph.h"
#include "tests/support/TinyPlan.h"

namespace headrace::cuda {

// For a GPU: its workspaces, activations and cache of the weights' type.
core::TinyPlanOptions forCuda(core::TinyPlanOptions options);

class TinyGraph {
public:
  explicit TinyGraph(const core::TinyPlanOptions &options, FusePolicy fuse = FusePolicy::Library);
  explicit TinyGraph(plan::Plan plan); // as it is

  plan::Plan plan; // may be changed before graphs are made
  FusePolicy fuse;

  GraphMemory memory() const; // nothing is there
  absl::StatusOr<GraphPlan> make(const core::GraphKey &key) const;
  GraphPlan variant(uint32_t index) const; // fails the test where it cannot be made
  GraphPlan transition(uint32_t index) const;
  RecordedGraph recorded(const core::GraphKey &key, bool stamps = false) const;
};

} // namespace headrace::cuda
