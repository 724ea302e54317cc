// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/cuda/stand_in/StandInGraph.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <unordered_map>

#include "tests/unit/cuda/stand_in/StandInFaults.h"
#include "tests/unit/cuda/stand_in/StandInKernels.h"
#include "tests/unit/cuda/stand_in/StandInRuntime.h"

void StandInCopy::run() const {
  for (uint64_t row = 0; row < rows; ++row)
    std::memcpy(to + row * toPitch, from + row * fromPitch, width);
}

void StandInWork::run(uint64_t order) const {
  using namespace headrace;
  switch (type) {
  case cudaGraphNodeTypeKernel: {
    const kernels::CudaLaunch launch{
        .grid = {grid.x, grid.y, grid.z}, .block = {block.x, block.y, block.z}, .sharedBytes = sharedBytes};
    stand_in::runKernel(function, launch, argument.data(), order);
    return;
  }
  case cudaGraphNodeTypeMemcpy:
    return copy.run();
  case cudaGraphNodeTypeHost:
    stand_in::inHostFunction() = true;
    host(hostData);
    stand_in::inHostFunction() = false;
    return;
  case cudaGraphNodeTypeEventRecord:
    event->ns = std::chrono::steady_clock::now().time_since_epoch().count();
    return;
  default:
    std::fprintf(stderr, "stand-in: a node of a kind that it does not run\n");
    std::abort();
  }
}

cudaGraphNode_t CUgraph_st::add(const StandInWork &work, const std::vector<cudaGraphNode_t> &after) {
  std::vector<cudaGraphNode_t> sorted = after;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
    return nullptr;
  nodes.push_back(std::make_unique<CUgraphNode_st>());
  const cudaGraphNode_t made = nodes.back().get();
  made->work = work;
  made->device = headrace::stand_in::currentDevice();
  made->argumentPointer = made->work.argument.data();
  for (cudaGraphNode_t before : after) {
    edges.emplace_back(before, made);
    edgeData.push_back({});
    if (headrace::stand_in::programmatic())
      edgeData.back() = {.from_port = cudaGraphKernelNodePortProgrammatic, .type = cudaGraphDependencyTypeProgrammatic};
  }
  return made;
}

namespace {

using Edge = std::pair<cudaGraphNode_t, cudaGraphNode_t>;

// Faults to plant: the edges by which others wait for the first copy to the device that something other than a copy
// waits for, and the last programmatic one, whose kernel then does not wait.
class LeftOut {
public:
  explicit LeftOut(const CUgraph_st &graph) {
    static const bool kDrops = std::getenv("HEADRACE_STAND_IN_DROPS_A_WAIT") != nullptr;
    for (size_t i = 0; kDrops && i < graph.edges.size(); ++i) {
      const auto &[before, after] = graph.edges[i];
      if (copy_ == nullptr && before->work.type == cudaGraphNodeTypeMemcpy &&
          before->work.copy.kind == cudaMemcpyHostToDevice && after->work.type != cudaGraphNodeTypeMemcpy)
        copy_ = before;
      if (graph.edgeData[i].type == cudaGraphDependencyTypeProgrammatic)
        early_ = graph.edges[i];
    }
  }
  bool operator()(const Edge &edge) const {
    return edge == early_ || (edge.first == copy_ && edge.second->work.type != cudaGraphNodeTypeMemcpy);
  }

private:
  cudaGraphNode_t copy_ = nullptr;
  std::optional<Edge> early_;
};

} // namespace

StandInRun::StandInRun(const CUgraph_st &graph) {
  std::unordered_map<cudaGraphNode_t, uint32_t> indexOf;
  for (const auto &node : graph.nodes) {
    indexOf[node.get()] = static_cast<uint32_t>(nodes.size());
    nodes.push_back({.made = node.get(), .work = node->work});
  }
  const LeftOut leftOut(graph);
  for (const Edge &edge : graph.edges) {
    if (leftOut(edge))
      continue;
    nodes[indexOf.at(edge.first)].next.push_back(indexOf.at(edge.second));
    ++nodes[indexOf.at(edge.second)].before;
  }
}

StandInLaunch::StandInLaunch(std::shared_ptr<const StandInRun> run, uint64_t order)
    : run_(std::move(run)), random_(order) {
  for (uint32_t i = 0; i < run_->nodes.size(); ++i) {
    missing_.push_back(run_->nodes[i].before);
    if (run_->nodes[i].before == 0)
      ready_.push_back(i);
  }
}

bool StandInLaunch::step() {
  if (ready_.empty())
    return true; // a graph of no nodes
  std::swap(ready_[random_() % ready_.size()], ready_.back());
  const StandInRun::Node &node = run_->nodes[ready_.back()];
  ready_.pop_back();
  node.work.run(random_());
  for (uint32_t next : node.next)
    if (--missing_[next] == 0)
      ready_.push_back(next);
  return ready_.empty();
}
