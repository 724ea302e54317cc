// SPDX-License-Identifier: Apache-2.0
#include "bench/cuda/Gpu.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "kernels/Half.h"

namespace headrace::bench {

void must(cudaError_t error, const char *what) {
  if (error == cudaSuccess)
    return;
  (void)cudaGetLastError(); // what can be gone on from is not found by the next call
  fail(std::string(what) + ": " + cudaGetErrorName(error) + ", " + cudaGetErrorString(error));
}

void checkUsable() {
  (void)cudaGetLastError();
  const cudaError_t error = cudaDeviceSynchronize();
  if (error != cudaSuccess)
    throw DeviceLost(std::string("the device cannot be used any more: ") + cudaGetErrorName(error));
}

size_t rotatedBytes() { return timesCount() ? 256 * kMiB : 0; }

const std::vector<uint16_t> &randomNumbers(model::DType dtype) {
  const auto make = [](model::DType of) {
    std::vector<uint16_t> values(64 * kMiB / sizeof(uint16_t));
    uint64_t state = 1;
    for (uint16_t &value : values) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      const float number = static_cast<float>(state >> 40) * 0x1p-23f - 1.0f;
      value = of == model::DType::F16 ? kernels::f16FromFloat(number) : kernels::bf16FromFloat(number);
    }
    return values;
  };
  static const std::vector<uint16_t> bf16 = make(model::DType::BF16), f16 = make(model::DType::F16);
  return dtype == model::DType::F16 ? f16 : bf16;
}

namespace {

// f(offset, bytes) for each run that the numbers fill.
template <typename F> void eachRun(size_t bytes, size_t run, F f) {
  for (size_t at = 0; at < bytes; at += run)
    f(at, std::min(run, bytes - at));
}

} // namespace

DeviceBuffer::DeviceBuffer(size_t bytes, Holds holds, model::DType dtype) {
  must(cudaMalloc(&p_, bytes), "cudaMalloc");
  if (holds == Holds::Zeros) {
    must(cudaMemset(p_, 0, bytes), "cudaMemset");
    return;
  }
  const std::vector<uint16_t> &numbers = randomNumbers(dtype);
  const size_t first = std::min(bytes, numbers.size() * sizeof(uint16_t));
  must(cudaMemcpy(p_, numbers.data(), first, cudaMemcpyHostToDevice), "cudaMemcpy");
  eachRun(bytes - first, first, [&](size_t at, size_t run) {
    must(cudaMemcpy(as() + first + at, p_, run, cudaMemcpyDeviceToDevice), "cudaMemcpy");
  });
  must(cudaDeviceSynchronize(), "filling a buffer");
}

PinnedBuffer::PinnedBuffer(size_t bytes, model::DType dtype) {
  must(cudaHostAlloc(&p_, bytes, cudaHostAllocMapped), "cudaHostAlloc");
  const std::vector<uint16_t> &numbers = randomNumbers(dtype);
  eachRun(bytes, numbers.size() * sizeof(uint16_t),
          [&](size_t at, size_t run) { std::memcpy(as() + at, numbers.data(), run); });
}

Spin::Spin() {
  void *flag = nullptr;
  must(cudaHostAlloc(&flag, sizeof(int), cudaHostAllocMapped), "cudaHostAlloc");
  flag_ = static_cast<int *>(flag);
  *flag_ = 0;
}
Spin::~Spin() {
  letGo();
  cudaDeviceSynchronize();
  cudaFreeHost(flag_);
}
void Spin::hold(cudaStream_t stream) {
  must(enqueueSpin(flag_, ++turn_, static_cast<unsigned long long>(kHolds * 1e9), stream), "the spin kernel");
}
void Spin::letGo() { std::atomic_ref<int>(*flag_).store(turn_, std::memory_order_release); }

Timer::Timer() {
  must(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  must(cudaEventCreate(&begin_), "cudaEventCreate");
  must(cudaEventCreate(&end_), "cudaEventCreate");
}
Timer::~Timer() {
  spin_.letGo();
  cudaStreamSynchronize(stream_);
  cudaEventDestroy(begin_);
  cudaEventDestroy(end_);
  cudaStreamDestroy(stream_);
}
double Timer::finish(const std::function<void()> &enqueue) {
  const double at = nowSeconds();
  try {
    must(cudaEventRecord(begin_, stream_), "cudaEventRecord");
    enqueue();
    must(cudaEventRecord(end_, stream_), "cudaEventRecord");
  } catch (...) {
    spin_.letGo();
    throw;
  }
  const double took = nowSeconds() - at;
  spin_.letGo();
  must(cudaEventSynchronize(end_), "cudaEventSynchronize");
  if (took > Spin::kHolds) // the queue was full: calls waited for the GPU, and their time is inside
    fail("enqueuing took " + std::to_string(took) + " s, longer than the spin kernel holds the stream");
  float ms = 0;
  must(cudaEventElapsedTime(&ms, begin_, end_), "cudaEventElapsedTime");
  return ms;
}

BenchGraph::BenchGraph() { must(cudaGraphCreate(&graph_, 0), "cudaGraphCreate"); }
BenchGraph::~BenchGraph() {
  if (executable_ != nullptr)
    cudaGraphExecDestroy(executable_);
  cudaGraphDestroy(graph_);
}

BenchGraph::After BenchGraph::given(After after) {
  after.erase(std::remove(after.begin(), after.end(), nullptr), after.end());
  return after;
}

int BenchGraph::heldLaunches(int launches) const {
  constexpr size_t kQueued = 1000;
  const size_t copies = std::max(inward_, outward_);
  return copies == 0 ? launches : std::clamp(static_cast<int>(kQueued / copies), 1, launches);
}

cudaGraphNode_t BenchGraph::copy(const After &after, void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
  ++(kind == cudaMemcpyHostToDevice ? inward_ : outward_);
  return node(after, "cudaGraphAddMemcpyNode1D", [&](auto *made, auto graph, const auto *behind, size_t count) {
    return cudaGraphAddMemcpyNode1D(made, graph, behind, count, to, from, bytes, kind);
  });
}

cudaGraphNode_t BenchGraph::kernel(const After &after, const kernels::CudaLaunch &launch, const void *args) {
  return kernel(after, kernels::cudaEntry(launch.kernel), launch, args);
}

cudaGraphNode_t BenchGraph::kernel(const After &after, const void *function, const kernels::CudaLaunch &launch,
                                   const void *args) {
  void *parameters[] = {const_cast<void *>(args)};
  cudaKernelNodeParams params{};
  params.func = const_cast<void *>(function);
  params.gridDim = {launch.grid[0], launch.grid[1], launch.grid[2]};
  params.blockDim = {launch.block[0], launch.block[1], launch.block[2]};
  params.sharedMemBytes = launch.sharedBytes;
  params.kernelParams = parameters;
  return node(after, "cudaGraphAddKernelNode", [&](auto *made, auto graph, const auto *behind, size_t count) {
    return cudaGraphAddKernelNode(made, graph, behind, count, &params);
  });
}

cudaGraphNode_t BenchGraph::host(const After &after, cudaHostFn_t function, void *data) {
  const cudaHostNodeParams params{.fn = function, .userData = data};
  return node(after, "cudaGraphAddHostNode", [&](auto *made, auto graph, const auto *behind, size_t count) {
    return cudaGraphAddHostNode(made, graph, behind, count, &params);
  });
}

void BenchGraph::programmaticEdge(cudaGraphNode_t before, cudaGraphNode_t after) {
  cudaGraphEdgeData edge{};
  edge.from_port = cudaGraphKernelNodePortProgrammatic;
  edge.type = cudaGraphDependencyTypeProgrammatic;
  must(cudaGraphAddDependencies(graph_, &before, &after, &edge, 1), "cudaGraphAddDependencies");
}

BenchGraph::Built BenchGraph::build(cudaStream_t stream) {
  Built built;
  size_t before = 0, after = 0, total = 0;
  must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  must(cudaMemGetInfo(&before, &total), "cudaMemGetInfo");
  double at = nowSeconds();
  must(cudaGraphInstantiate(&executable_, graph_, 0), "cudaGraphInstantiate");
  built.instantiateMs = (nowSeconds() - at) * 1e3;
  at = nowSeconds();
  must(cudaGraphUpload(executable_, stream), "cudaGraphUpload");
  must(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  built.uploadMs = (nowSeconds() - at) * 1e3;
  must(cudaMemGetInfo(&after, &total), "cudaMemGetInfo");
  built.deviceBytes = before > after ? before - after : 0;
  return built;
}

kernels::CudaLaunch launchOf(kernels::Op op, const void *args, const kernels::CudaShape &shape) {
  const char *why = nullptr;
  const kernels::CudaLaunch launch = kernels::cudaLaunch(op, args, shape, &why);
  if (launch.kernel == nullptr)
    fail(std::string(kernels::opName(op)) + ": " + (why == nullptr ? "no kernel" : why));
  if (launch.sharedBytes > 48 * 1024)
    must(cudaFuncSetAttribute(kernels::cudaEntry(launch.kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(launch.sharedBytes)),
         "cudaFuncSetAttribute");
  return launch;
}

EmptyKernel::EmptyKernel() {
  args_.count = count_.as<int32_t>();
  args_.y = y_.as();
  args_.n = 64;
  args_.capacity = 1;
  args_.epilogue = kernels::Epilogue::Relu;
  args_.result = kernels::Elem::F32;
  launch_ = kernels::cudaLaunch(args_);
}

} // namespace headrace::bench
