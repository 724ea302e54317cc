// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/BuiltGraph.h"

#include "absl/strings/str_cat.h"
#include "runtime/cuda/CaptureBuilder.h"
#include "runtime/cuda/CudaError.h"
#include "runtime/cuda/ExplicitBuilder.h"

namespace headrace::cuda {

BuiltGraph::~BuiltGraph() {
  if (graph != nullptr)
    giveBack(cudaGraphDestroy(graph));
}

void BuiltGraph::swap(BuiltGraph &other) noexcept {
  std::swap(graph, other.graph);
  std::swap(nodes, other.nodes);
  std::swap(stamps, other.stamps);
}

BuildStreams::~BuildStreams() {
  for (cudaEvent_t event : events_)
    giveBack(cudaEventDestroy(event));
  for (cudaStream_t stream : lanes_)
    if (stream != nullptr)
      giveBack(cudaStreamDestroy(stream));
}

absl::Status BuildStreams::create() {
  for (cudaStream_t &stream : lanes_)
    if (stream == nullptr)
      HEADRACE_CUDA("streams for building graphs", cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return absl::OkStatus();
}

absl::StatusOr<cudaEvent_t> BuildStreams::event(size_t index) {
  while (events_.size() <= index) {
    cudaEvent_t event = nullptr;
    HEADRACE_CUDA("events for building graphs", cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    events_.push_back(event);
  }
  return events_[index];
}

absl::Status NewNodes::find(const std::string &during, cudaGraph_t graph, cudaGraphNode_t made,
                            std::vector<cudaGraphNode_t> &fresh) {
  fresh.clear();
  if (made != nullptr && known_.insert(made).second)
    fresh.push_back(made);
  size_t count = 0;
  HEADRACE_CUDA(during, cudaGraphGetNodes(graph, nullptr, &count));
  if (count == known_.size())
    return absl::OkStatus();
  std::vector<cudaGraphNode_t> all(count);
  if (count != 0)
    HEADRACE_CUDA(during, cudaGraphGetNodes(graph, all.data(), &count));
  for (cudaGraphNode_t node : all)
    if (known_.insert(node).second)
      fresh.push_back(node);
  return absl::OkStatus();
}

absl::StatusOr<const void *> prepareKernel(const std::string &during, const kernels::CudaLaunch &launch) {
  const void *entry = kernels::cudaEntry(launch.kernel);
  if (entry == nullptr)
    return absl::InternalError(absl::StrCat(during, ": no kernel ", launch.kernel, " is built in"));
  const std::string what = absl::StrCat(during, ": kernel ", launch.kernel);
  cudaFuncAttributes attributes{};
  HEADRACE_CUDA(what, cudaFuncGetAttributes(&attributes, entry));
  if (launch.sharedBytes > static_cast<uint32_t>(attributes.maxDynamicSharedSizeBytes))
    HEADRACE_CUDA(
        absl::StrCat(what, " with ", launch.sharedBytes, " bytes of shared memory"),
        cudaFuncSetAttribute(entry, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(launch.sharedBytes)));
  return entry;
}

absl::Status checkMade(const BuildRequest &request, uint32_t node, size_t made) {
  const GraphNode &planned = request.plan.nodes[node];
  absl::Status status;
  if (planned.kind == NodeKind::Library)
    status = request.library.checkNodes(planned.matmul.shape, made);
  else if (made != 1)
    status = absl::InternalError(absl::StrCat(made, " nodes were made, expected 1"));
  return status.ok() ? status
                     : absl::InternalError(absl::StrCat("building ", request.plan.name, ", step ", planned.step, ": ",
                                                        std::string(status.message())));
}

absl::StatusOr<BuiltGraph> buildGraph(GraphBuild how, const BuildRequest &request) {
  return how == GraphBuild::Explicit ? buildExplicitly(request) : buildByCapture(request);
}

} // namespace headrace::cuda
