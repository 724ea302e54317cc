// SPDX-License-Identifier: Apache-2.0
//
// The CUDA device: a plan's variants as CUDA Graphs. docs/cuda.md has the picture.
//
//   launch stream   | meta copy | graph: compute, h2d, d2h and cpu branches | meta copy | graph | ...
//   caller             fills the other staging copy meanwhile, reads tokens from mapped memory
//
// Declared everywhere; where the program was built without CUDA, making one says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/core/Device.h"
#include "runtime/cuda/CpuLane.h"

namespace headrace::cuda {

// What measures the steps of a device opened with trace (docs/cuda.md). Auto: CUPTI where it is found and can be used,
// else time stamps in the graphs.
enum class TraceBy : uint8_t { Auto = 0, Cupti = 1, Stamps = 2 };

struct CudaOptions {
  int index = 0;        // which GPU, in the order of the PCI bus (CUDA_DEVICE_ORDER, where it is set)
  bool capture = false; // graphs by capture; else node by node
  bool gemmEx = false;  // products by cublasGemmEx: the oracle of cublasLt's
  bool compare = false; // read every graph back and compare it with its recording
  TraceBy traceBy = TraceBy::Auto;
  std::string libraries; // folders of CUDA's libraries, tried first
  CpuLaneOptions cpu;    // threads of plans whose rows the CPU attends for; others have none
  // A file of matrix products' algorithms (ProductAlgorithms.h); none: those beside a record, else the library chooses.
  std::string algorithms;
  // What should be known and ends nothing, a sentence each; null: nobody is told. On the thread of the call that finds
  // it.
  std::function<void(const std::string &)> notice;
  std::function<void(uint64_t done, uint64_t total)> pinning; // bytes of host memory that open() has made room for
};

// "cuda", "cuda:1"; unset for anything else.
absl::StatusOr<int> deviceIndex(const std::string &name);
// Of so many devices: "cuda" is the first ones, "cuda:2,0" those two in this order. InvalidArgument for anything else,
// and for a list of another length.
absl::StatusOr<std::vector<int>> deviceIndices(const std::string &name, size_t devices);

// Every call of the device is made on its own GPU, which is the calling thread's from then on (cudaSetDevice); one call
// at a time.
// Unavailable, saying why and what to do, where no GPU can be used: no driver or too old a one, no such GPU, one that
// the kernels were not built for, no cublasLt, or a program built without CUDA.
absl::StatusOr<std::unique_ptr<core::Device>> makeCudaDevice(const CudaOptions &options);

// What graphs took since open(): all times on the host's clock, device bytes by what was free before and after.
struct GraphCosts {
  uint64_t graphs = 0, nodes = 0; // nodes of graphs, library calls' included
  int64_t buildNs = 0, instantiateNs = 0, uploadNs = 0;
  uint64_t deviceBytes = 0;
  std::string algorithms;        // of matrix products, a line a shape
  std::set<std::string> kernels; // names of those that graphs launch, library calls' left out
};
// Unset for other devices.
absl::StatusOr<GraphCosts> graphCosts(const core::Device &device);

// What the algorithms of cublasLt that a performance record was measured with are called, beside it:
// ProductAlgorithms.h has their format.
inline std::string algorithmsBeside(const std::string &record) { return record + ".cublaslt"; }
// Has products of graphs that are built from now on take those that stand beside the record, where there is such a file
// and CudaOptions::algorithms named none; InvalidArgument as that is. Nothing on other devices.
absl::Status useAlgorithmsBeside(core::Device &device, const std::string &record);
// For such a file: those that this device's products were given, and what it was told of other shapes. Empty for other
// devices and where the library lets nobody choose.
std::string algorithmsOf(const core::Device &device);

// "CUPTI" or "time stamps": what fills lastTimes(). Unset for other devices and without trace.
absl::StatusOr<std::string> measuredBy(const core::Device &device);
// Why time stamps measure although CUPTI might have (TraceBy::Auto); empty where it does or was not to. Unset as above.
absl::StatusOr<std::string> cuptiRefused(const core::Device &device);

// Which of the GPU's queues a copy of the last launch went through, as CUPTI has it. Copies beside kernels are on the
// copy engines' queues.
enum class ChannelType : uint32_t { Unknown = 0, Compute = 1, AsyncCopy = 2, Decompression = 3 };
struct CopyChannel {
  uint32_t step = 0; // of the schedule
  uint64_t bytes = 0;
  ChannelType type = ChannelType::Unknown;
  uint32_t channel = 0; // the queue's number
};
// After drain(), ascending by step. Unset where CUPTI does not measure.
absl::StatusOr<std::vector<CopyChannel>> copyChannels(const core::Device &device);

} // namespace headrace::cuda
