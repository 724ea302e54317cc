// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/ExplicitBuilder.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/cuda/CudaError.h"

namespace headrace::cuda {
namespace {

using plan::Lane;

class ExplicitBuilder final : public GraphBuilder {
public:
  explicit ExplicitBuilder(const BuildRequest &request)
      : request_(request), plan_(request.plan), during_(absl::StrCat("building ", request.plan.name)) {
    built_.nodes.resize(plan_.nodes.size());
    last_.resize(plan_.nodes.size());
  }

  absl::StatusOr<BuiltGraph> build() {
    HEADRACE_CUDA(during_, cudaGraphCreate(&built_.graph, 0));
    RETURN_IF_ERROR(walk(plan_, !request_.stamps.empty(), *this));
    return std::move(built_);
  }

  absl::Status fork(Lane lane) override {
    tail(lane) = tail(Lane::Compute);
    return absl::OkStatus();
  }

  absl::Status wait(Lane lane, uint32_t node) override {
    std::vector<cudaGraphNode_t> &own = tail(lane);
    own.insert(own.end(), last_[node].begin(), last_[node].end());
    return absl::OkStatus();
  }

  absl::Status add(uint32_t node) override {
    const GraphNode &planned = plan_.nodes[node];
    std::vector<cudaGraphNode_t> &own = tail(planned.lane);
    switch (planned.kind) {
    case NodeKind::Kernel:
      RETURN_IF_ERROR(addKernel(planned, own));
      break;
    case NodeKind::Copy:
      RETURN_IF_ERROR(addCopy(planned, own));
      break;
    case NodeKind::Library:
      RETURN_IF_ERROR(addLibrary(planned, own));
      break;
    case NodeKind::Host:
      RETURN_IF_ERROR(addHost(node, own));
      break;
    }
    const cudaGraphNode_t made = planned.kind == NodeKind::Library ? nullptr : own[0];
    RETURN_IF_ERROR(newNodes_.find(during_, built_.graph, made, built_.nodes[node]));
    last_[node] = own;
    return checkMade(request_, node, built_.nodes[node].size());
  }

  absl::Status stamp(Lane lane, uint32_t event) override {
    std::vector<cudaGraphNode_t> &own = tail(lane);
    cudaGraphNode_t made = nullptr;
    HEADRACE_CUDA(during_,
                  cudaGraphAddEventRecordNode(&made, built_.graph, own.data(), own.size(), request_.stamps[event]));
    built_.stamps.emplace_back(event, made);
    own.assign(1, made);
    std::vector<cudaGraphNode_t> fresh; // known from now on
    return newNodes_.find(during_, built_.graph, made, fresh);
  }

  absl::Status stampAfter(uint32_t node, uint32_t event) override {
    const Lane lane = plan_.nodes[node].lane;
    RETURN_IF_ERROR(stamp(lane, event));
    last_[node] = tail(lane);
    return absl::OkStatus();
  }

  absl::Status join(Lane) override { return absl::OkStatus(); } // a graph ends when all its nodes have

private:
  // Each node once: CUDA refuses dependencies that are there twice.
  std::vector<cudaGraphNode_t> &tail(Lane lane) {
    std::vector<cudaGraphNode_t> &own = tails_[laneIndex(lane)];
    std::sort(own.begin(), own.end());
    own.erase(std::unique(own.begin(), own.end()), own.end());
    return own;
  }

  absl::Status addKernel(const GraphNode &planned, std::vector<cudaGraphNode_t> &own) {
    ASSIGN_OR_RETURN(entry, prepareKernel(during_, planned.kernel.launch));
    const kernels::CudaLaunch &launch = planned.kernel.launch;
    void *parameters[] = {const_cast<std::byte *>(planned.kernel.args.data())}; // copied into the node
    cudaKernelNodeParams params{};
    params.func = const_cast<void *>(entry);
    params.gridDim = dim3(launch.grid[0], launch.grid[1], launch.grid[2]);
    params.blockDim = dim3(launch.block[0], launch.block[1], launch.block[2]);
    params.sharedMemBytes = launch.sharedBytes;
    params.kernelParams = parameters;
    cudaGraphNode_t made = nullptr;
    HEADRACE_CUDA(absl::StrCat(during_, ", step ", planned.step, " (", launch.kernel, ")"),
                  cudaGraphAddKernelNode(&made, built_.graph, own.data(), own.size(), &params));
    own.assign(1, made);
    return absl::OkStatus();
  }

  absl::Status addCopy(const GraphNode &planned, std::vector<cudaGraphNode_t> &own) {
    const core::CopySides &copy = planned.copy;
    const std::string what = absl::StrCat(during_, ", step ", planned.step, " (copy of ", copy.bytes, " bytes)");
    cudaGraphNode_t made = nullptr;
    if (copy.inRows()) {
      const cudaMemcpy3DParms params = rowsOf(copy);
      HEADRACE_CUDA(what, cudaGraphAddMemcpyNode(&made, built_.graph, own.data(), own.size(), &params));
    } else {
      HEADRACE_CUDA(what, cudaGraphAddMemcpyNode1D(&made, built_.graph, own.data(), own.size(), copy.destination,
                                                   copy.source, copy.bytes, copyKind(copy)));
    }
    own.assign(1, made);
    return absl::OkStatus();
  }

  absl::Status addHost(uint32_t node, std::vector<cudaGraphNode_t> &own) {
    const GraphNode &planned = plan_.nodes[node];
    cudaHostNodeParams params{};
    params.fn = CpuLane::callback;
    params.userData = request_.cpuSteps[node].get();
    cudaGraphNode_t made = nullptr;
    HEADRACE_CUDA(
        absl::StrCat(during_, ", step ", planned.step, " (", kernels::opName(planned.host.bound.op), " of the CPU)"),
        cudaGraphAddHostNode(&made, built_.graph, own.data(), own.size(), &params));
    own.assign(1, made);
    return absl::OkStatus();
  }

  static cudaMemcpy3DParms rowsOf(const core::CopySides &copy) {
    const RowPitches pitches = rowPitches(copy);
    cudaMemcpy3DParms params{};
    params.srcPtr = {const_cast<std::byte *>(copy.source), pitches.source, copy.rowBytes, copy.rows()};
    params.dstPtr = {copy.destination, pitches.destination, copy.rowBytes, copy.rows()};
    params.extent = {copy.rowBytes, copy.rows(), 1};
    params.kind = copyKind(copy);
    return params;
  }

  absl::Status addLibrary(const GraphNode &planned, std::vector<cudaGraphNode_t> &own) {
    const std::string what = absl::StrCat(during_, ", step ", planned.step, " (", toText(planned.matmul.shape), ")");
    const cudaStream_t stream = request_.streams.lane(Lane::Compute);
    HEADRACE_CUDA(what, cudaStreamBeginCaptureToGraph(stream, built_.graph, own.data(), nullptr, own.size(),
                                                      cudaStreamCaptureModeThreadLocal));
    absl::Status status = request_.library.enqueue(planned.matmul, stream);
    if (status.ok())
      status = followCapture(what, stream, own);
    // Ended whatever happened: a stream that is left capturing is of no use.
    cudaGraph_t same = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(stream, &same);
    if (!status.ok()) {
      (void)cudaGetLastError();
      return absl::Status(status.code(), absl::StrCat(what, ": ", std::string(status.message())));
    }
    return ended == cudaSuccess ? absl::OkStatus() : cudaFailed(ended, "cudaStreamEndCapture", what);
  }

  // What comes next follows what the stream would go on from.
  static absl::Status followCapture(const std::string &what, cudaStream_t stream, std::vector<cudaGraphNode_t> &own) {
    cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
    const cudaGraphNode_t *dependencies = nullptr;
    const cudaGraphEdgeData *edges = nullptr;
    size_t count = 0;
    HEADRACE_CUDA(what, cudaStreamGetCaptureInfo(stream, &capturing, nullptr, nullptr, &dependencies, &edges, &count));
    if (capturing != cudaStreamCaptureStatusActive)
      return absl::InternalError("the library ended the capture");
    own.assign(dependencies, dependencies + count);
    return absl::OkStatus();
  }

  const BuildRequest &request_;
  const GraphPlan &plan_;
  const std::string during_;
  BuiltGraph built_;
  NewNodes newNodes_;
  std::array<std::vector<cudaGraphNode_t>, kGraphLanes> tails_; // what a lane's next node follows
  std::vector<std::vector<cudaGraphNode_t>> last_;              // of each node of the plan, what its end is
};

} // namespace

absl::StatusOr<BuiltGraph> buildExplicitly(const BuildRequest &request) { return ExplicitBuilder(request).build(); }

} // namespace headrace::cuda
