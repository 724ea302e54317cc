// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/ListGraph.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/cuda/CudaError.h"

namespace headrace::cuda {
namespace {

const char *kindName(cudaGraphNodeType type) {
  switch (type) {
  case cudaGraphNodeTypeKernel:
    return "kernel";
  case cudaGraphNodeTypeMemcpy:
    return "memcpy";
  case cudaGraphNodeTypeMemset:
    return "memset";
  case cudaGraphNodeTypeHost:
    return "host";
  case cudaGraphNodeTypeGraph:
    return "child graph";
  case cudaGraphNodeTypeEmpty:
    return "empty";
  case cudaGraphNodeTypeWaitEvent:
    return "event wait";
  case cudaGraphNodeTypeEventRecord:
    return "event record";
  case cudaGraphNodeTypeMemAlloc:
    return "memory allocation";
  case cudaGraphNodeTypeMemFree:
    return "memory free";
  case cudaGraphNodeTypeConditional:
    return "conditional";
  default:
    return "unknown";
  }
}

bool isMemory(cudaGraphNodeType type) { return type == cudaGraphNodeTypeMemAlloc || type == cudaGraphNodeTypeMemFree; }

struct Edges {
  std::vector<cudaGraphNode_t> from, to;
  std::vector<cudaGraphEdgeData> data;
};
absl::StatusOr<Edges> edgesOf(const std::string &during, cudaGraph_t graph) {
  size_t count = 0;
  HEADRACE_CUDA(during, cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &count));
  Edges edges{std::vector<cudaGraphNode_t>(count), std::vector<cudaGraphNode_t>(count),
              std::vector<cudaGraphEdgeData>(count)};
  if (count != 0)
    HEADRACE_CUDA(during, cudaGraphGetEdges(graph, edges.from.data(), edges.to.data(), edges.data.data(), &count));
  return edges;
}

// By which a node waits for all of the one before.
bool isFull(const cudaGraphEdgeData &edge) {
  return edge.type == cudaGraphDependencyTypeDefault && edge.from_port == 0 && edge.to_port == 0;
}

class Lister {
public:
  Lister(const GraphPlan &plan, const BuiltGraph &built)
      : plan_(plan), built_(built), during_(absl::StrCat("listing ", plan.name)) {
    graph_.name = plan.name;
    graph_.memory = plan.memory;
    graph_.planNodes = static_cast<uint32_t>(plan.nodes.size());
  }

  absl::StatusOr<RecordedGraph> list() {
    RETURN_IF_ERROR(listNodes());
    RETURN_IF_ERROR(listEdges());
    for (LaneUse &lane : graph_.lanes) // a graph that exists was joined
      lane = {.forked = true, .joinedAt = static_cast<uint32_t>(graph_.nodes.size())};
    return std::move(graph_);
  }

private:
  absl::Status listNodes() {
    for (uint32_t n = 0; n < plan_.nodes.size(); ++n) {
      const GraphNode &planned = plan_.nodes[n];
      RecordedNode out{.planNode = n, .step = planned.step, .lane = planned.lane, .accesses = planned.accesses};
      if (planned.kind == NodeKind::Library) {
        out.kind = RecordedKind::Library; // what the library's nodes are is its own affair,
        out.matmul = planned.matmul;
      }
      const uint32_t index = static_cast<uint32_t>(graph_.nodes.size());
      for (cudaGraphNode_t node : built_.nodes[n]) {
        indexOf_[node] = index;
        cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
        HEADRACE_CUDA(during_, cudaGraphNodeGetType(node, &type));
        if (planned.kind != NodeKind::Library) {
          RETURN_IF_ERROR(read(node, type, planned, out));
        } else if (isMemory(type)) { // except for memory
          unplanned_.push_back(type);
        }
      }
      graph_.nodes.push_back(std::move(out));
    }
    for (const auto &[event, node] : built_.stamps) {
      indexOf_[node] = static_cast<uint32_t>(graph_.nodes.size());
      graph_.nodes.push_back({.kind = RecordedKind::Stamp, .event = event});
    }
    size_t count = 0;
    HEADRACE_CUDA(during_, cudaGraphGetNodes(built_.graph, nullptr, &count));
    std::vector<cudaGraphNode_t> all(count);
    if (count != 0)
      HEADRACE_CUDA(during_, cudaGraphGetNodes(built_.graph, all.data(), &count));
    for (cudaGraphNode_t node : all)
      if (!indexOf_.contains(node)) {
        cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
        HEADRACE_CUDA(during_, cudaGraphNodeGetType(node, &type));
        indexOf_[node] = static_cast<uint32_t>(graph_.nodes.size());
        addUnplanned(type);
      }
    for (cudaGraphNodeType type : unplanned_)
      addUnplanned(type);
    return absl::OkStatus();
  }

  void addUnplanned(cudaGraphNodeType type) {
    graph_.nodes.push_back(
        {.kind = isMemory(type) ? RecordedKind::Memory : RecordedKind::Other, .otherKind = kindName(type)});
  }

  absl::Status read(cudaGraphNode_t node, cudaGraphNodeType type, const GraphNode &planned, RecordedNode &out) const {
    if (type == cudaGraphNodeTypeKernel && planned.kind == NodeKind::Kernel)
      return readKernel(node, planned, out);
    if (type == cudaGraphNodeTypeMemcpy)
      return readCopy(node, out);
    if (type == cudaGraphNodeTypeHost && planned.kind == NodeKind::Host)
      return readHost(node, out);
    out.kind = isMemory(type) ? RecordedKind::Memory : RecordedKind::Other;
    out.otherKind = kindName(type);
    return absl::OkStatus();
  }

  absl::Status readKernel(cudaGraphNode_t node, const GraphNode &planned, RecordedNode &out) const {
    cudaKernelNodeParams params{};
    HEADRACE_CUDA(during_, cudaGraphKernelNodeGetParams(node, &params));
    out.kind = RecordedKind::Kernel;
    const char *wanted = planned.kernel.launch.kernel;
    const bool same = params.func == kernels::cudaEntry(wanted);
    out.kernel.launch = {.kernel = same ? wanted : "another kernel",
                         .grid = {params.gridDim.x, params.gridDim.y, params.gridDim.z},
                         .block = {params.blockDim.x, params.blockDim.y, params.blockDim.z},
                         .sharedBytes = params.sharedMemBytes};
    // The kernel is known, so its one parameter's size is.
    if (same && params.kernelParams != nullptr) {
      const auto *bytes = static_cast<const std::byte *>(params.kernelParams[0]);
      out.kernel.args.assign(bytes, bytes + planned.kernel.args.size());
      if (out.kernel.args == planned.kernel.args)
        out.kernel.pointers = planned.kernel.pointers;
    }
    return absl::OkStatus();
  }

  absl::Status readHost(cudaGraphNode_t node, RecordedNode &out) const {
    cudaHostNodeParams params{};
    HEADRACE_CUDA(during_, cudaGraphHostNodeGetParams(node, &params));
    out.kind = RecordedKind::Other; // another's
    out.otherKind = kindName(cudaGraphNodeTypeHost);
    if (params.fn != CpuLane::callback)
      return absl::OkStatus();
    const CpuStep &step = *static_cast<const CpuStep *>(params.userData);
    if (step.node != out.planNode)
      return absl::OkStatus();
    out.kind = RecordedKind::Host;
    out.host = hostCall(step.bound);
    return absl::OkStatus();
  }

  absl::Status readCopy(cudaGraphNode_t node, RecordedNode &out) const {
    cudaMemcpy3DParms params{};
    HEADRACE_CUDA(during_, cudaGraphMemcpyNodeGetParams(node, &params));
    out.kind = RecordedKind::Copy;
    out.copy = {.toDevice = params.kind == cudaMemcpyHostToDevice,
                .destination = static_cast<std::byte *>(params.dstPtr.ptr) + params.dstPos.x,
                .source = static_cast<const std::byte *>(params.srcPtr.ptr) + params.srcPos.x,
                .bytes = params.extent.width};
    if (params.kind == cudaMemcpyDefault) // a capture may leave the direction to the addresses
      out.copy.toDevice = plan::toDevice(out.lane);
    const uint64_t rows = params.extent.height * params.extent.depth;
    if (rows == 1)
      return absl::OkStatus();
    out.copy.rowBytes = params.extent.width;
    out.copy.pitch = out.copy.toDevice ? params.dstPtr.pitch : params.srcPtr.pitch;
    out.copy.bytes *= rows;
    if (params.extent.depth != 1 || rowPitches(out.copy).source != params.srcPtr.pitch ||
        rowPitches(out.copy).destination != params.dstPtr.pitch) {
      out.kind = RecordedKind::Other; // not one run on the host
      out.otherKind = kindName(cudaGraphNodeTypeMemcpy);
    }
    return absl::OkStatus();
  }

  absl::Status listEdges() {
    ASSIGN_OR_RETURN(edges, edgesOf(during_, built_.graph));
    for (size_t i = 0; i < edges.from.size(); ++i) {
      const uint32_t a = indexOf_.at(edges.from[i]), b = indexOf_.at(edges.to[i]);
      if (a != b) // not an edge inside a library call
        graph_.nodes[b].after.push_back(a);
    }
    for (RecordedNode &node : graph_.nodes) {
      std::sort(node.after.begin(), node.after.end());
      node.after.erase(std::unique(node.after.begin(), node.after.end()), node.after.end());
    }
    return absl::OkStatus();
  }

  const GraphPlan &plan_;
  const BuiltGraph &built_;
  const std::string during_;
  RecordedGraph graph_;
  std::unordered_map<cudaGraphNode_t, uint32_t> indexOf_;
  std::vector<cudaGraphNodeType> unplanned_;
};

} // namespace

absl::Status checkEdges(const GraphPlan &plan, const BuiltGraph &built) {
  const std::string during = absl::StrCat("building ", plan.name);
  ASSIGN_OR_RETURN(edges, edgesOf(during, built.graph));
  std::unordered_map<cudaGraphNode_t, uint32_t> planNode;
  for (uint32_t n = 0; n < built.nodes.size(); ++n)
    for (cudaGraphNode_t node : built.nodes[n])
      planNode[node] = n;
  const auto textOf = [&](cudaGraphNode_t node) {
    const auto found = planNode.find(node);
    return found == planNode.end() ? "a time stamp" : absl::StrCat("step ", plan.nodes[found->second].step);
  };
  for (size_t i = 0; i < edges.from.size(); ++i) {
    if (isFull(edges.data[i]))
      continue;
    const auto from = planNode.find(edges.from[i]), to = planNode.find(edges.to[i]);
    if (from != planNode.end() && to != planNode.end() && from->second == to->second)
      continue; // inside a library call, whose own affair it is
    return absl::InternalError(absl::StrCat(
        during, ": the edge from ", textOf(edges.from[i]), " to ", textOf(edges.to[i]), " is of type ",
        static_cast<int>(edges.data[i].type), ", from port ", static_cast<int>(edges.data[i].from_port), " to port ",
        static_cast<int>(edges.data[i].to_port), ": expected one by which a node waits for all of the one before"));
  }
  return absl::OkStatus();
}

absl::StatusOr<RecordedGraph> listGraph(const GraphPlan &plan, const BuiltGraph &built) {
  return Lister(plan, built).list();
}

} // namespace headrace::cuda
