// SPDX-License-Identifier: Apache-2.0
//
// One walk over a graph plan, three builders behind it:
//
//   Recording   (RecordingBuilder.h)  values that are printed and checked; needs no CUDA
//   Explicit    (ExplicitBuilder.h)   a node at a time, library calls captured into the graph
//   Capture     (CaptureBuilder.h)    a stream a lane, recorded while they are used, joined by events
//
// The walk, for a schedule with copies:
//
//   origin = compute   fork h2d, d2h, cpu ---- waits, nodes in the plan's order ---- join h2d, d2h, cpu
//
// A lane that has no node is neither forked nor joined. Forks at the start and joins at the end make no nodes: the
// first node of a lane has no predecessor, a graph has ended when all its nodes have.
#pragma once

#include "absl/status/status.h"
#include "runtime/cuda/GraphPlan.h"

namespace headrace::cuda {

class GraphBuilder {
public:
  virtual ~GraphBuilder() = default;
  virtual absl::Status fork(plan::Lane lane) = 0;
  // The lane's next node (or stamp) starts after `node` has ended.
  virtual absl::Status wait(plan::Lane lane, uint32_t node) = 0;
  // Appends the plan's node number `node` to its lane.
  virtual absl::Status add(uint32_t node) = 0;
  // Appends to the lane: the time at which all before it has ended, into event number `event`.
  virtual absl::Status stamp(plan::Lane lane, uint32_t event) = 0;
  // The same behind the plan's node `node`, added last to the lane: what waits for the node waits for this, so that its
  // own first time stamp is not earlier.
  virtual absl::Status stampAfter(uint32_t node, uint32_t event) = 0;
  virtual absl::Status join(plan::Lane lane) = 0;
};

// Time stamps around every step, for the instrumented form of a graph: step s has events 1 + 2 s (before its first
// node, behind what it waits for) and 2 + 2 s (after its last). Event 0 comes before all else.
struct Stamps {
  static constexpr uint32_t origin() { return 0; }
  static constexpr uint32_t start(uint32_t step) { return 1 + 2 * step; }
  static constexpr uint32_t end(uint32_t step) { return 2 + 2 * step; }
  static constexpr uint32_t count(uint32_t steps) { return 1 + 2 * steps; }
};

absl::Status walk(const GraphPlan &plan, bool stamps, GraphBuilder &builder);

} // namespace headrace::cuda
