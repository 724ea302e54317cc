// SPDX-License-Identifier: Apache-2.0
//
// What every graph must keep, checked on a recording (or on what was read back from CUDA) with nothing taken from the
// plan's edges: order follows from the graph's own edges, conflicts from the bytes that nodes read and write.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/cuda/RecordedGraph.h"

namespace headrace::cuda {

enum class GraphRule : uint8_t {
  // An edge from a node that is not there, or a cycle.
  Acyclic,
  // A lane with nodes that was not forked from the origin, or not joined to it after its last node.
  LaneJoined,
  // Every node of the plan is there once, and no other: copies that a capture drops silently are found here.
  NodeCount,
  // No memory nodes: a graph with them may have only one executable. No nodes that a plan does not know either.
  MemoryNode,
  // The device side of a copy lies in the arena, its host side in the pinned slab.
  PinnedCopy,
  // Copies have one row: others cannot be updated later.
  OneDimensional,
  // A copy of no bytes, which an executable's update refuses.
  ZeroLength,
  // A pointer among a kernel's or library call's arguments into bytes that the plan does not give the step.
  StrayPointer,
  // What the CPU does is in its lane, where nothing else is, and names bytes of the pinned slab alone; its nodes follow
  // each other, as recorded: one team of threads runs them.
  CpuNode,
  // Copies of one direction are ordered as they were recorded: the engine would run them in the order they are ready.
  CopyOrder,
  // A small host-to-device copy that the next compute node needs, in the queue behind a large one that it does not.
  SmallCopy,
  // Two nodes that touch the same bytes, one of them writing, without a path between them.
  ReadAfterWrite,
  WriteAfterRead,
  WriteAfterWrite
};
const char *graphRuleName(GraphRule rule);

// Copies below this are small. A copy of 64 KiB takes about 1.3 us at 50 GB/s, as long as a copy's own overhead is
// reported to be, so what is smaller is all latency.
inline constexpr uint64_t kSmallCopyBytes = 64 << 10;

struct GraphFault {
  GraphRule rule;
  std::string message;
};

// At most `limit`; empty for a good graph. The rules about order are looked at only in graphs without cycles.
std::vector<GraphFault> findFaults(const RecordedGraph &graph, size_t limit = 16);

// Internal naming graph, rule and nodes. SmallCopy is about speed, so it is left to findFaults.
absl::Status checkGraph(const RecordedGraph &graph);

} // namespace headrace::cuda
