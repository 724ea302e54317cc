// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/MakeGraph.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/cuda/CudaError.h"
#include "runtime/cuda/GraphRules.h"
#include "runtime/cuda/ListGraph.h"
#include "runtime/cuda/RecordingBuilder.h"
#include "runtime/cuda/TokenMailbox.h"

namespace headrace::cuda {

absl::StatusOr<MatMulLibraries> MatMulLibraries::open(bool gemmEx, std::vector<std::string> folders) {
  MatMulLibraries libraries;
  libraries.folders_ = std::move(folders);
  ASSIGN_OR_RETURN(opened,
                   MatMulLibrary::open(gemmEx ? LibraryKind::GemmEx : LibraryKind::CublasLt, libraries.folders_));
  (gemmEx ? libraries.gemmEx_ : libraries.lt_) = std::move(opened);
  return libraries;
}

absl::StatusOr<MatMulLibraries::Way> MatMulLibraries::way(size_t n) {
  if (lt_ == nullptr) // cublasGemmEx was asked for
    return n == 0 ? Way{gemmEx_.get(), FusePolicy::None} : Way{nullptr, FusePolicy::None};
  if (n < 2)
    return Way{lt_.get(), n == 0 ? FusePolicy::Library : FusePolicy::None};
  if (n > 2)
    return Way{nullptr, FusePolicy::None};
  if (gemmEx_ == nullptr) {
    ASSIGN_OR_RETURN(opened, MatMulLibrary::open(LibraryKind::GemmEx, folders_));
    gemmEx_ = std::move(opened);
  }
  return Way{gemmEx_.get(), FusePolicy::None};
}

void MatMulLibraries::use(const ProductAlgorithms &chosen) {
  if (lt_ != nullptr)
    lt_->use(chosen);
}

std::string MatMulLibraries::algorithms() const {
  return absl::StrCat(lt_ == nullptr ? "" : lt_->algorithms(), gemmEx_ == nullptr ? "" : gemmEx_->algorithms());
}

std::string MatMulLibraries::version() const { return (lt_ != nullptr ? lt_ : gemmEx_)->version(); }

namespace {

absl::Status prepareLibrary(const MakeGraphRequest &request, const GraphPlan &plan, MatMulLibrary &library) {
  const cudaStream_t stream = request.streams.lane(plan::Lane::Compute);
  bool ran = false;
  for (const GraphNode &node : plan.nodes) {
    if (node.kind != NodeKind::Library)
      continue;
    absl::StatusOr<bool> fresh = library.prepare(node.matmul);
    if (!fresh.ok())
      return absl::Status(fresh.status().code(),
                          absl::StrCat("step ", node.step, ": ", std::string(fresh.status().message())));
    // Once outside any capture: the library may load a kernel then.
    if (*fresh && request.arenaIsFree) {
      RETURN_IF_ERROR(library.enqueue(node.matmul, stream));
      ran = true;
    }
  }
  if (ran)
    HEADRACE_CUDA("running each matrix product once", cudaStreamSynchronize(stream));
  return absl::OkStatus();
}

struct Planned {
  GraphPlan plan;
  MatMulLibrary *library = nullptr;
};

// The first way in which the library takes all of the graph's products.
absl::StatusOr<Planned> planWithLibrary(const MakeGraphRequest &request, const core::GraphKey &key) {
  absl::Status first;
  for (size_t n = 0;; ++n) {
    absl::StatusOr<MatMulLibraries::Way> way = request.libraries.way(n);
    if (!way.ok() || way->library == nullptr)
      return first.ok() ? way.status() : first;
    ASSIGN_OR_RETURN(
        plan, planGraph({.plan = request.plan, .binding = request.binding, .memory = request.memory, .fuse = way->fuse},
                        key));
    absl::Status status = prepareLibrary(request, plan, *way->library);
    if (status.ok())
      return Planned{std::move(plan), way->library};
    if (first.ok())
      first = absl::Status(status.code(), absl::StrCat("building ", plan.name, ": ", std::string(status.message())));
    if (status.code() != absl::StatusCode::kUnimplemented)
      return first;
  }
}

absl::Status compareWithRecording(const GraphPlan &plan, const BuiltGraph &built, const RecordedGraph &recorded) {
  ASSIGN_OR_RETURN(listed, listGraph(plan, built));
  if (const std::vector<std::string> found = differences(recorded, listed); !found.empty())
    return absl::InternalError(
        absl::StrCat(plan.name, ": the graph is not what was recorded:\n", absl::StrJoin(found, "\n")));
  return checkGraph(listed);
}

// 0 where the driver does not say: then nothing is said of what graphs took.
uint64_t freeBytes() {
  size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) == cudaSuccess)
    return free;
  (void)cudaGetLastError();
  return 0;
}

void describe(const MakeGraphRequest &request, const core::GraphKey &key, const GraphPlan &plan, CudaGraph &graph) {
  graph.name = plan.name;
  graph.range = NvtxName(plan.name);
  graph.transition = plan.transition;
  graph.steps = plan.steps;
  graph.predictedNs =
      key.transition ? request.plan.transitions[key.index].predictedNs : request.plan.variants[key.index].predictedNs;
  const core::GraphSource source = *core::graphSource(request.plan, key); // it was planned for
  graph.bucket = source.bucket;
  graph.sizes = CopySizes(plan);
  graph.direct = core::directBytes(request.plan, *source.schedule);
}

// Graph node ids of all nodes that run on the GPU, each with its step.
absl::Status nameNodes(const CuptiTrace &cupti, const GraphPlan &plan, const BuiltGraph &built, StepNodes &nodes) {
  const std::string during = absl::StrCat("building ", plan.name);
  nodes = StepNodes(plan.steps);
  for (size_t n = 0; n < plan.nodes.size(); ++n)
    for (cudaGraphNode_t node : built.nodes[n]) {
      cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
      HEADRACE_CUDA(during, cudaGraphNodeGetType(node, &type));
      if (type == cudaGraphNodeTypeHost)
        nodes.addUnrecorded(plan.nodes[n].step);
      if (type != cudaGraphNodeTypeKernel && type != cudaGraphNodeTypeMemcpy && type != cudaGraphNodeTypeMemset)
        continue; // nothing is recorded of others
      ASSIGN_OR_RETURN(id, cupti.nodeId(during, node));
      nodes.add(id, plan.nodes[n].step);
    }
  return absl::OkStatus();
}

// Taken together: what the executable's nodes are called is only said while it is made.
absl::Status instantiate(const MakeGraphRequest &request, const GraphPlan &plan, const BuiltGraph &built,
                         CudaGraph &graph) {
  const FollowClones follow(request.cupti, graph.nodes);
  HEADRACE_CUDA(absl::StrCat("building ", plan.name), cudaGraphInstantiate(&graph.exec, built.graph, 0));
  return absl::OkStatus();
}

} // namespace

absl::StatusOr<std::unique_ptr<CudaGraph>> makeGraph(const MakeGraphRequest &request, const core::GraphKey &key,
                                                     GraphCosts &costs) {
  ASSIGN_OR_RETURN(planned, planWithLibrary(request, key));
  const GraphPlan &plan = planned.plan;
  const NvtxRange building(NvtxName("build " + plan.name));
  const int64_t start = monotonicNs();
  ASSIGN_OR_RETURN(recorded, record(plan, request.instrumented));
  RETURN_IF_ERROR(checkGraph(recorded));

  auto graph = std::make_unique<CudaGraph>();
  describe(request, key, plan, *graph);
  graph->cpuSteps = request.cpu.stepsOf(plan);
  if (request.instrumented)
    RETURN_IF_ERROR(graph->stamps.create(plan.name, Stamps::count(plan.steps)));
  ASSIGN_OR_RETURN(built, buildGraph(request.how, {.plan = plan,
                                                   .library = *planned.library,
                                                   .streams = request.streams,
                                                   .cpuSteps = graph->cpuSteps,
                                                   .stamps = graph->stamps.events()}));
  RETURN_IF_ERROR(checkEdges(plan, built));
  if (request.compare)
    RETURN_IF_ERROR(compareWithRecording(plan, built, recorded));
  if (request.cupti != nullptr)
    RETURN_IF_ERROR(nameNodes(*request.cupti, plan, built, graph->nodes));
  const int64_t instantiating = monotonicNs();
  const uint64_t before = freeBytes();
  RETURN_IF_ERROR(instantiate(request, plan, built, *graph));
  const uint64_t after = freeBytes();
  if (request.cupti != nullptr)
    request.cupti->watch(graph->nodes);
  ++costs.graphs;
  for (const auto &nodes : built.nodes)
    costs.nodes += nodes.size();
  costs.nodes += built.stamps.size();
  for (const GraphNode &node : plan.nodes)
    if (node.kind == NodeKind::Kernel)
      costs.kernels.insert(node.kernel.launch.kernel);
  costs.buildNs += instantiating - start;
  costs.instantiateNs += monotonicNs() - instantiating;
  costs.deviceBytes += before > after ? before - after : 0;
  if (graph->sizes.change())
    graph->built = std::move(built);
  return graph;
}

} // namespace headrace::cuda
