// SPDX-License-Identifier: Apache-2.0
//
// A cudaGraph_t read back node by node and edge by edge, to be compared with the recording of its plan
// (differences()) and checked against the rules (findFaults()).
#pragma once

#include "absl/status/statusor.h"
#include "runtime/cuda/BuiltGraph.h"
#include "runtime/cuda/RecordedGraph.h"

namespace headrace::cuda {

// Kernels and copies with the parameters that CUDA has for them; a library call is one node, whatever it made; a node
// that the plan does not know is listed with its kind.
absl::StatusOr<RecordedGraph> listGraph(const GraphPlan &plan, const BuiltGraph &built);

// Internal naming both steps of an edge that is no full dependency (programmatic, or from a port): the plan's proof is
// of nodes that wait for all of those before. Edges inside a library call may be anything.
absl::Status checkEdges(const GraphPlan &plan, const BuiltGraph &built);

} // namespace headrace::cuda
