// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/CudaGraph.h"

#include <cmath>

#include "runtime/base/StatusMacros.h"
#include "runtime/cuda/CudaError.h"

namespace headrace::cuda {

StampEvents::~StampEvents() {
  for (cudaEvent_t event : events_)
    giveBack(cudaEventDestroy(event));
}

absl::Status StampEvents::create(const std::string &during, uint32_t count) {
  while (events_.size() < count) {
    cudaEvent_t event = nullptr;
    HEADRACE_CUDA(during, cudaEventCreate(&event));
    events_.push_back(event);
  }
  return absl::OkStatus();
}

absl::Status StampEvents::read(const std::string &during, int64_t originNs, std::vector<core::StepTime> &times) const {
  const auto since = [&](uint32_t event, int64_t &ns) -> absl::Status {
    float milliseconds = 0;
    HEADRACE_CUDA(during, cudaEventElapsedTime(&milliseconds, events_[Stamps::origin()], events_[event]));
    ns = originNs + static_cast<int64_t>(std::llround(static_cast<double>(milliseconds) * 1e6));
    return absl::OkStatus();
  };
  for (uint32_t step = 0; step < times.size(); ++step) {
    RETURN_IF_ERROR(since(Stamps::start(step), times[step].startNs));
    RETURN_IF_ERROR(since(Stamps::end(step), times[step].endNs));
  }
  return absl::OkStatus();
}

// On its own GPU: with another one as the thread's, CUDA would make a context there.
CudaGraph::~CudaGraph() {
  if (gpu >= 0)
    giveBack(cudaSetDevice(gpu));
  if (exec != nullptr)
    giveBack(cudaGraphExecDestroy(exec));
}

} // namespace headrace::cuda
