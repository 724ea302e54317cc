// SPDX-License-Identifier: Apache-2.0
//
// Records what the CUDA builders would make, without CUDA.
#pragma once

#include "runtime/cuda/GraphBuilder.h"
#include "runtime/cuda/RecordedGraph.h"

namespace headrace::cuda {

class RecordingBuilder final : public GraphBuilder {
public:
  explicit RecordingBuilder(const GraphPlan &plan);
  absl::Status fork(plan::Lane lane) override;
  absl::Status wait(plan::Lane lane, uint32_t node) override;
  absl::Status add(uint32_t node) override;
  absl::Status stamp(plan::Lane lane, uint32_t event) override;
  absl::Status stampAfter(uint32_t node, uint32_t event) override;
  absl::Status join(plan::Lane lane) override;

  const RecordedGraph &graph() const { return graph_; }

private:
  void append(RecordedNode node);

  const GraphPlan &plan_;
  RecordedGraph graph_;
  std::array<std::vector<uint32_t>, kGraphLanes> tails_; // what a lane's next node follows
  std::vector<uint32_t> recorded_;                       // of each node of the plan
};

// walk() with a recording.
absl::StatusOr<RecordedGraph> record(const GraphPlan &plan, bool stamps = false);

} // namespace headrace::cuda
