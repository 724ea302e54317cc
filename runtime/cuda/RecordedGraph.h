// SPDX-License-Identifier: Apache-2.0
//
// A graph as values: what the recording builder makes from a plan, and what listGraph (ListGraph.h) reads back from a
// cudaGraph_t. It is printed for golden tests, checked against the rules (GraphRules.h), and the two are compared.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "runtime/cuda/GraphPlan.h"

namespace headrace::cuda {

inline constexpr uint32_t kNoPlanNode = plan::kNone;

// The kinds a graph can have, those included that a plan must not lead to.
enum class RecordedKind : uint8_t { Kernel, Copy, Library, Host, Stamp, Memory, Other };

struct RecordedNode {
  uint32_t planNode = kNoPlanNode; // in GraphPlan::nodes; none for stamps and for what a plan does not know
  uint32_t step = 0;
  plan::Lane lane = plan::Lane::Compute;
  RecordedKind kind = RecordedKind::Kernel;
  KernelCall kernel; // the one that `kind` says
  core::CopySides copy;
  MatMul matmul;
  HostCall host;
  uint32_t event = 0;
  std::string otherKind; // "memset", ...
  std::vector<NodeAccess> accesses;
  std::vector<uint32_t> after; // nodes that it has an edge from, ascending
};

// A lane's use of its stream: what a capture needs to end well.
struct LaneUse {
  bool forked = false;
  uint32_t joinedAt = 0; // nodes that the graph had at the join; 0: never joined
};

struct RecordedGraph {
  std::string name;
  GraphMemory memory;
  uint32_t planNodes = 0; // that the plan has
  std::vector<RecordedNode> nodes;
  std::array<LaneUse, kGraphLanes> lanes; // the origin's is unused
};

// Addresses are printed relative to the memory they lie in ("D+0x1200", "H+0x0"), so that the text does not depend on
// where that is.
std::string toText(const RecordedGraph &graph);

// What differs, one line each; empty where nodes and parameters are the same and each graph's edges lead where the
// other has a path: a capture leaves out edges that others imply. The order of nodes does not matter, library nodes
// count as one a call.
std::vector<std::string> differences(const RecordedGraph &recorded, const RecordedGraph &listed);

} // namespace headrace::cuda
