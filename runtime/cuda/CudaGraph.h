// SPDX-License-Identifier: Apache-2.0
//
// An executable made from a plan's variant or transition.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/core/Device.h"
#include "runtime/core/DirectBytes.h"
#include "runtime/core/LaunchChecks.h"
#include "runtime/core/OwnedGraph.h"
#include "runtime/cuda/BuiltGraph.h"
#include "runtime/cuda/CopySizes.h"
#include "runtime/cuda/CpuLane.h"
#include "runtime/cuda/NodeTimes.h"
#include "runtime/cuda/Nvtx.h"

namespace headrace::cuda {

// Timing events of an instrumented graph.
class StampEvents {
public:
  StampEvents() = default;
  StampEvents(const StampEvents &) = delete;
  StampEvents &operator=(const StampEvents &) = delete;
  ~StampEvents();
  absl::Status create(const std::string &during, uint32_t count);
  const std::vector<cudaEvent_t> &events() const { return events_; }
  // Of each step, from the events of the launch that ended last; `originNs` is what event 0 stands for.
  absl::Status read(const std::string &during, int64_t originNs, std::vector<core::StepTime> &times) const;

private:
  std::vector<cudaEvent_t> events_;
};

struct CudaGraph final : core::OwnedGraph {
  CudaGraph() = default;
  CudaGraph(const CudaGraph &) = delete;
  CudaGraph &operator=(const CudaGraph &) = delete;
  ~CudaGraph() override;

  std::string name;
  CopySizes sizes;
  BuiltGraph built; // where sizes change: they are set by its nodes
  std::vector<core::DirectBytes> direct;
  uint32_t steps = 0;
  uint64_t predictedNs = 0; // 0: nothing is predicted
  NvtxName range;           // `name`
  StepNodes nodes;          // where CUPTI measures
  StampEvents stamps;
  CpuSteps cpuSteps; // what its host nodes are given
  cudaGraphExec_t exec = nullptr;
  int gpu = -1; // that it is given back on; -1: the thread's
};

} // namespace headrace::cuda
