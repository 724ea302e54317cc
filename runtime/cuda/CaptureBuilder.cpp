// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/CaptureBuilder.h"

#include "absl/strings/str_cat.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/cuda/CudaError.h"

namespace headrace::cuda {
namespace {

using plan::Lane;

class CaptureBuilder final : public GraphBuilder {
public:
  explicit CaptureBuilder(const BuildRequest &request)
      : request_(request), plan_(request.plan), during_(absl::StrCat("building ", request.plan.name, " by capture")),
        events_(plan_.nodes.size()) {
    built_.nodes.resize(plan_.nodes.size());
  }

  absl::StatusOr<BuiltGraph> build() {
    // Neither loading a kernel nor creating an event belongs into a capture.
    for (const GraphNode &node : plan_.nodes)
      if (node.kind == NodeKind::Kernel)
        if (absl::StatusOr<const void *> entry = prepareKernel(during_, node.kernel.launch); !entry.ok())
          return entry.status();
    size_t used = 0;
    for (uint32_t n = 0; n < plan_.nodes.size(); ++n)
      if (plan_.nodes[n].signals)
        RETURN_IF_ERROR(take(used++, events_[n]));
    RETURN_IF_ERROR(take(used++, forked_));
    for (cudaEvent_t &event : joined_)
      RETURN_IF_ERROR(take(used++, event));
    HEADRACE_CUDA(during_, cudaStreamBeginCapture(stream(Lane::Compute), cudaStreamCaptureModeThreadLocal));
    const absl::Status status = walk(plan_, !request_.stamps.empty(), *this);
    // Ended whatever happened: a stream that is left capturing is of no use.
    const cudaError_t ended = cudaStreamEndCapture(stream(Lane::Compute), &built_.graph);
    if (!status.ok()) {
      (void)cudaGetLastError();
      return status;
    }
    if (ended != cudaSuccess)
      return cudaFailed(ended, "cudaStreamEndCapture", during_);
    return std::move(built_);
  }

  absl::Status fork(Lane lane) override {
    HEADRACE_CUDA(during_, cudaEventRecord(forked_, stream(Lane::Compute)));
    HEADRACE_CUDA(during_, cudaStreamWaitEvent(stream(lane), forked_, 0));
    return absl::OkStatus();
  }

  absl::Status wait(Lane lane, uint32_t node) override {
    HEADRACE_CUDA(during_, cudaStreamWaitEvent(stream(lane), events_[node], 0));
    return absl::OkStatus();
  }

  absl::Status add(uint32_t node) override {
    const GraphNode &planned = plan_.nodes[node];
    const std::string what = absl::StrCat(during_, ", step ", planned.step);
    const cudaStream_t lane = stream(planned.lane);
    switch (planned.kind) {
    case NodeKind::Kernel: {
      const kernels::CudaLaunch &launch = planned.kernel.launch;
      void *parameters[] = {const_cast<std::byte *>(planned.kernel.args.data())};
      HEADRACE_CUDA(absl::StrCat(what, " (", launch.kernel, ")"),
                    cudaLaunchKernel(
                        kernels::cudaEntry(launch.kernel), dim3(launch.grid[0], launch.grid[1], launch.grid[2]),
                        dim3(launch.block[0], launch.block[1], launch.block[2]), parameters, launch.sharedBytes, lane));
      break;
    }
    case NodeKind::Copy: {
      const core::CopySides &copy = planned.copy;
      const RowPitches pitches = rowPitches(copy);
      const std::string which = absl::StrCat(what, " (copy of ", copy.bytes, " bytes)");
      if (copy.inRows())
        HEADRACE_CUDA(which, cudaMemcpy2DAsync(copy.destination, pitches.destination, copy.source, pitches.source,
                                               copy.rowBytes, copy.rows(), copyKind(copy), lane));
      else
        HEADRACE_CUDA(which, cudaMemcpyAsync(copy.destination, copy.source, copy.bytes, copyKind(copy), lane));
      break;
    }
    case NodeKind::Library:
      if (absl::Status status = request_.library.enqueue(planned.matmul, lane); !status.ok())
        return absl::Status(status.code(), absl::StrCat(what, ": ", std::string(status.message())));
      break;
    case NodeKind::Host:
      HEADRACE_CUDA(absl::StrCat(what, " (", kernels::opName(planned.host.bound.op), " of the CPU)"),
                    cudaLaunchHostFunc(lane, CpuLane::callback, request_.cpuSteps[node].get()));
      break;
    }
    if (planned.signals)
      HEADRACE_CUDA(what, cudaEventRecord(events_[node], lane));
    RETURN_IF_ERROR(findNew(what, lane, built_.nodes[node]));
    return checkMade(request_, node, built_.nodes[node].size());
  }

  absl::Status stamp(Lane lane, uint32_t event) override {
    // External: a node that records the event each time the graph runs, and no edge of the capture.
    HEADRACE_CUDA(during_, cudaEventRecordWithFlags(request_.stamps[event], stream(lane), cudaEventRecordExternal));
    std::vector<cudaGraphNode_t> fresh;
    RETURN_IF_ERROR(findNew(during_, stream(lane), fresh));
    if (fresh.size() != 1)
      return absl::InternalError(absl::StrCat(during_, ": a time stamp made ", fresh.size(), " nodes, expected 1"));
    built_.stamps.emplace_back(event, fresh[0]);
    return absl::OkStatus();
  }

  absl::Status stampAfter(uint32_t node, uint32_t event) override {
    const GraphNode &planned = plan_.nodes[node];
    RETURN_IF_ERROR(stamp(planned.lane, event));
    if (planned.signals)
      HEADRACE_CUDA(during_, cudaEventRecord(events_[node], stream(planned.lane)));
    return absl::OkStatus();
  }

  absl::Status join(Lane lane) override {
    const cudaEvent_t event = joined_[laneIndex(lane) - 1];
    HEADRACE_CUDA(during_, cudaEventRecord(event, stream(lane)));
    HEADRACE_CUDA(during_, cudaStreamWaitEvent(stream(Lane::Compute), event, 0));
    return absl::OkStatus();
  }

private:
  cudaStream_t stream(Lane lane) const { return request_.streams.lane(lane); }

  absl::Status take(size_t index, cudaEvent_t &event) {
    ASSIGN_OR_RETURN(taken, request_.streams.event(index));
    event = taken;
    return absl::OkStatus();
  }

  absl::Status findNew(const std::string &what, cudaStream_t lane, std::vector<cudaGraphNode_t> &fresh) {
    cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
    cudaGraph_t graph = nullptr;
    const cudaGraphNode_t *tail = nullptr; // what the stream would go on from
    const cudaGraphEdgeData *edges = nullptr;
    size_t count = 0;
    HEADRACE_CUDA(what, cudaStreamGetCaptureInfo(lane, &capturing, nullptr, &graph, &tail, &edges, &count));
    if (capturing != cudaStreamCaptureStatusActive)
      return absl::InternalError(absl::StrCat(what, ": the capture has ended before its end"));
    return newNodes_.find(what, graph, count == 1 ? tail[0] : nullptr, fresh);
  }

  const BuildRequest &request_;
  const GraphPlan &plan_;
  const std::string during_;
  BuiltGraph built_;
  NewNodes newNodes_;
  std::vector<cudaEvent_t> events_; // of each node of the plan that another lane waits for
  cudaEvent_t forked_ = nullptr;
  std::array<cudaEvent_t, kGraphLanes - 1> joined_{};
};

} // namespace

absl::StatusOr<BuiltGraph> buildByCapture(const BuildRequest &request) { return CaptureBuilder(request).build(); }

} // namespace headrace::cuda
