// SPDX-License-Identifier: Apache-2.0
//
// What every part of bench_cuda measures with: events, memory that holds random data, graphs.
//
//   stream   spin kernel ...... | begin | what is measured | end |
//   host     enqueues all of it, then lets the spin kernel go: no launch call's time is inside
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

#include "bench/cuda/SpinKernel.h"
#include "bench/figures/Report.h"
#include "kernels/CudaKernels.h"
#include "runtime/base/DType.h"

namespace headrace::bench {

inline constexpr size_t kMiB = size_t{1} << 20, kGiB = size_t{1} << 30;
// What a measurement goes through before it reads the same bytes again, 256 MiB: no L2 holds as much.
size_t rotatedBytes();

// Failure with the call, what it was for and CUDA's name of the error.
void must(cudaError_t error, const char *what);
// DeviceLost if nothing can be asked of the device any more.
void checkUsable();

// Memory that is given back with the object. Random: 16-bit numbers in +-1 of `dtype`, as fills of a model's operands:
// what memory holds decides how much power, and so how much clock, a product gets.
class DeviceBuffer {
public:
  enum class Holds { Zeros, Random };
  explicit DeviceBuffer(size_t bytes, Holds holds = Holds::Zeros, model::DType dtype = model::DType::BF16);
  ~DeviceBuffer() { cudaFree(p_); }
  DeviceBuffer(const DeviceBuffer &) = delete;
  DeviceBuffer &operator=(const DeviceBuffer &) = delete;
  template <typename T = char> T *as() const { return static_cast<T *>(p_); }

private:
  void *p_ = nullptr;
};
class PinnedBuffer { // mapped, random
public:
  explicit PinnedBuffer(size_t bytes, model::DType dtype = model::DType::BF16);
  ~PinnedBuffer() { cudaFreeHost(p_); }
  PinnedBuffer(const PinnedBuffer &) = delete;
  PinnedBuffer &operator=(const PinnedBuffer &) = delete;
  template <typename T = char> T *as() const { return static_cast<T *>(p_); }

private:
  void *p_ = nullptr;
};
// 64 MiB of such numbers.
const std::vector<uint16_t> &randomNumbers(model::DType dtype);

// A kernel that holds a stream until it is let go, or 2 s have passed.
class Spin {
public:
  static constexpr double kHolds = 2;
  Spin();
  ~Spin();
  Spin(const Spin &) = delete;
  Spin &operator=(const Spin &) = delete;
  void hold(cudaStream_t stream);
  void letGo();

private:
  int *flag_ = nullptr; // mapped; the kernel waits until it is not below its turn
  int turn_ = 0;
};

// A stream that does not wait for the default one, and a pair of events on it.
class Timer {
public:
  Timer();
  ~Timer();
  Timer(const Timer &) = delete;
  Timer &operator=(const Timer &) = delete;
  cudaStream_t stream() const { return stream_; }
  Spin &spin() { return spin_; }

  // Milliseconds of the GPU's from the first to the last of what `work(stream)` enqueues: at most some hundred calls.
  template <typename F> double ms(F &&work) {
    spin_.hold(stream_);
    return finish([&] { work(stream_); });
  }
  // The median of `repeats`, after one that is left out.
  template <typename F> double medianMs(int repeats, F &&work) {
    work(stream_); // the first loads kernels, which no stream that is held would let it
    must(cudaStreamSynchronize(stream_), "a first run");
    std::vector<double> all;
    for (int i = 0; i < (timesCount() ? repeats : 1); ++i)
      all.push_back(ms(work));
    return median(std::move(all));
  }

private:
  double finish(const std::function<void()> &enqueue);
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  Spin spin_;
};

// A graph that is being made, then an executable of it.
class BenchGraph {
public:
  using After = std::vector<cudaGraphNode_t>; // null ones are left out

  BenchGraph();
  ~BenchGraph();
  BenchGraph(const BenchGraph &) = delete;
  BenchGraph &operator=(const BenchGraph &) = delete;

  cudaGraphNode_t copy(const After &after, void *to, const void *from, size_t bytes, cudaMemcpyKind kind);
  cudaGraphNode_t kernel(const After &after, const kernels::CudaLaunch &launch, const void *args);
  // Of this program, in place of the launch's own.
  cudaGraphNode_t kernel(const After &after, const void *function, const kernels::CudaLaunch &launch, const void *args);
  cudaGraphNode_t host(const After &after, cudaHostFn_t function, void *data);
  // Of another function of CUDA's: add(&node, graph, after, how many).
  template <typename F> cudaGraphNode_t node(const After &after, const char *what, F add) {
    const After behind = given(after);
    cudaGraphNode_t made = nullptr;
    must(add(&made, graph_, behind.data(), behind.size()), what);
    ++nodes_;
    return made;
  }
  // From a kernel to the one behind it, which may start before that has ended and waits for it itself.
  void programmaticEdge(cudaGraphNode_t before, cudaGraphNode_t after);
  // Instantiates and uploads; milliseconds of both, and the device memory they took.
  struct Built {
    double instantiateMs = 0, uploadMs = 0;
    size_t deviceBytes = 0;
  };
  Built build(cudaStream_t stream);
  void launch(cudaStream_t stream) const { must(cudaGraphLaunch(executable_, stream), "cudaGraphLaunch"); }
  cudaGraphExec_t executable() const { return executable_; }
  cudaGraph_t graph() const { return graph_; }
  size_t nodes() const { return nodes_; }
  // Of so many launches behind one another those that a stream takes while it is held, at least one: a queue of one
  // direction has about 1,024 copies, and the launch that finds it full waits (bench/results/h200: at 1,024, not 704).
  int heldLaunches(int launches) const;

private:
  static After given(After after);
  size_t inward_ = 0, outward_ = 0; // copies of each direction
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
  size_t nodes_ = 0;
};

// The kernel of an op; Failure where there is none. Its shared memory is granted.
kernels::CudaLaunch launchOf(kernels::Op op, const void *args, const kernels::CudaShape &shape);

// A kernel that finds no row to work on.
class EmptyKernel {
public:
  EmptyKernel();
  cudaGraphNode_t add(BenchGraph &graph, const BenchGraph::After &after) {
    return graph.kernel(after, launch_, &args_);
  }

private:
  DeviceBuffer count_{sizeof(int32_t)}, y_{256};
  kernels::BiasActivateArgs args_{};
  kernels::CudaLaunch launch_;
};

} // namespace headrace::bench
