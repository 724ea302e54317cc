// SPDX-License-Identifier: Apache-2.0
//
// A cudaGraph_t with what is known of it, and what both builders use to make one.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/cuda/CpuLane.h"
#include "runtime/cuda/GraphBuilder.h"
#include "runtime/cuda/GraphPlan.h"
#include "runtime/cuda/MatMulLibrary.h"

namespace headrace::cuda {

struct BuiltGraph {
  cudaGraph_t graph = nullptr;
  std::vector<std::vector<cudaGraphNode_t>> nodes;          // of each node of the plan: one, or a library call's
  std::vector<std::pair<uint32_t, cudaGraphNode_t>> stamps; // event, node

  BuiltGraph() = default;
  BuiltGraph(BuiltGraph &&other) noexcept { swap(other); }
  BuiltGraph &operator=(BuiltGraph other) noexcept {
    swap(other);
    return *this;
  }
  ~BuiltGraph();

private:
  void swap(BuiltGraph &other) noexcept;
};

inline cudaMemcpyKind copyKind(const core::CopySides &copy) {
  return copy.toDevice ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost;
}
// From row to row of a copy in rows, which are one run on the host.
struct RowPitches {
  uint64_t destination = 0, source = 0;
};
inline RowPitches rowPitches(const core::CopySides &copy) {
  return copy.toDevice ? RowPitches{copy.pitch, copy.rowBytes} : RowPitches{copy.rowBytes, copy.pitch};
}

// Streams and events of captures; made once, used by all builds.
class BuildStreams {
public:
  BuildStreams() = default;
  BuildStreams(const BuildStreams &) = delete;
  BuildStreams &operator=(const BuildStreams &) = delete;
  ~BuildStreams();
  absl::Status create(); // non-blocking streams
  cudaStream_t lane(plan::Lane lane) const { return lanes_[laneIndex(lane)]; }
  // Event number `index` of those that join streams; they measure nothing.
  absl::StatusOr<cudaEvent_t> event(size_t index);

private:
  std::array<cudaStream_t, kGraphLanes> lanes_{};
  std::vector<cudaEvent_t> events_;
};

// What a builder needs beside the plan.
struct BuildRequest {
  const GraphPlan &plan;
  MatMulLibrary &library;
  BuildStreams &streams;
  const CpuSteps &cpuSteps;
  std::vector<cudaEvent_t> stamps; // by event number (Stamps); empty: the graph has none
};

// The nodes of a graph under construction that were not there before: how library calls' nodes are found, and all are
// counted. `made`, if not null, may be the one new node; where it accounts for all, the graph's nodes are not listed.
class NewNodes {
public:
  absl::Status find(const std::string &during, cudaGraph_t graph, cudaGraphNode_t made,
                    std::vector<cudaGraphNode_t> &fresh);

private:
  std::unordered_set<cudaGraphNode_t> known_;
};

// Loads the kernel and lets it have its shared memory: before any capture, where neither may happen.
absl::StatusOr<const void *> prepareKernel(const std::string &during, const kernels::CudaLaunch &launch);

// `made` nodes for one node of the plan: exactly one, or what the library made of this shape before.
absl::Status checkMade(const BuildRequest &request, uint32_t node, size_t made);

enum class GraphBuild : uint8_t { Explicit = 0, Capture = 1 };
absl::StatusOr<BuiltGraph> buildGraph(GraphBuild how, const BuildRequest &request);

} // namespace headrace::cuda
