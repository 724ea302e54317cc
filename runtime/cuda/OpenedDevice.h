// SPDX-License-Identifier: Apache-2.0
//
// All that an open CUDA device holds for its plan; taken by open(), given back together.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "runtime/core/BindStep.h"
#include "runtime/core/Device.h"
#include "runtime/cuda/BesideCopies.h"
#include "runtime/cuda/BuiltGraph.h"
#include "runtime/cuda/CudaDevice.h"
#include "runtime/cuda/CudaGraph.h"
#include "runtime/cuda/CudaMemory.h"
#include "runtime/cuda/CuptiTrace.h"
#include "runtime/cuda/Lateness.h"
#include "runtime/cuda/Nvtx.h"
#include "runtime/cuda/TokenMailbox.h"

namespace headrace::cuda {

struct OpenedDevice {
  OpenedDevice(const plan::Plan &planIn, const core::DeviceOptions &optionsIn, const CpuLaneOptions &cpuOptions)
      : plan(planIn), options(optionsIn), cpu(cpuOptions) {}
  OpenedDevice(const OpenedDevice &) = delete;
  OpenedDevice &operator=(const OpenedDevice &) = delete;
  ~OpenedDevice();

  // On the thread's GPU. What is there is checked before it is taken, and device memory is taken before host memory,
  // which takes longer.
  absl::Status take(const SlabOptions &host);
  // With trace: what measures, before any graph is built.
  absl::Status startTrace(TraceBy by, const std::string &libraries);
  GraphMemory graphMemory() const;
  // The times of the last launch, which has ended: by CUPTI, by time stamps.
  absl::Status collectRecords();
  absl::Status readStamps();

  const plan::Plan &plan;
  const core::DeviceOptions options;
  DeviceMemory arena, frequencies, arrivals;
  PinnedSlab slab;
  CpuLane cpu;                         // goes before the slab, which it uses
  BesideCopies beside;                 // goes before the arena, which it uses
  std::array<MappedMemory, 2> staging; // of iteration data; iteration n's is n % 2
  uint64_t metaAddress = 0, metaBytes = 0;
  TokenMailbox mailbox;
  std::optional<core::BindContext> binding;
  BuildStreams buildStreams;
  cudaStream_t launch = nullptr, side = nullptr; // side: uploads
  std::array<cudaEvent_t, 2> taken{}, ended{};   // of iteration n's staging copy, and of its graph: n % 2

  uint64_t launches = 0, iterations = 0;
  uint64_t h2dBytes = 0, d2hBytes = 0, sizesSet = 0;
  CudaGraph *last = nullptr; // launched last
  Lateness lateness;
  int64_t lastLaunchNs = 0;
  std::unique_ptr<CuptiTrace> cupti; // null: stamps, where there is a trace
  std::string cuptiRefused;          // why stamps measure in its place, where it was tried
  uint64_t lastLaunchCupti = 0;      // as lastLaunchNs, on CUPTI's clock
  std::vector<core::StepTime> times;
  NvtxSpan loading;    // weights: from open() to the first graph
  absl::Status failed; // the first error of the device's; nothing works after it
  GraphCosts costs;

private:
  absl::Status takeMemory(const SlabOptions &host);
  absl::Status takeArrivals();
  absl::Status takeFrequencies();
  absl::Status findMeta();
  absl::Status createStreams();
};

} // namespace headrace::cuda
