// SPDX-License-Identifier: Apache-2.0
//
// A product whose weights are on the host: read there by the product itself, or brought by a copy before it.
#include <algorithm>

#include "bench/cuda/Gemm.h"
#include "bench/cuda/Parts.h"
#include "kernels/CudaWorkspace.h"

namespace headrace::bench {
namespace {

Json mapped(Timer &timer, int64_t rows, int64_t n, int64_t k) {
  const size_t weights = static_cast<size_t>(n * k) * 2;
  const size_t copies = std::max<size_t>(2, (rotatedBytes() + weights - 1) / weights);
  const PinnedBuffer host(weights * copies);
  const DeviceBuffer x(static_cast<size_t>(rows * k) * 2, DeviceBuffer::Holds::Random), slots(weights * copies),
      y(static_cast<size_t>(rows * n) * 2), workspace(kernels::CudaWorkspace::kLinearBytes);
  void *seen = nullptr;
  must(cudaHostGetDevicePointer(&seen, host.as(), 0), "cudaHostGetDevicePointer");
  const auto each = [&](auto &&f) { // microseconds of one of them
    const double ms = timer.medianMs(5, [&](cudaStream_t stream) {
      for (size_t i = 0; i < copies; ++i)
        f(i, stream);
    });
    return ms / static_cast<double>(copies) * 1e3;
  };
  std::vector<cuda::MatMul> onDevice, onHost;
  for (size_t i = 0; i < copies; ++i) {
    onDevice.push_back(product(bf16Shape(rows, n, k), x.as(), slots.as() + weights * i, y.as(), workspace.as()));
    onHost.push_back(
        product(bf16Shape(rows, n, k), x.as(), static_cast<char *>(seen) + weights * i, y.as(), workspace.as()));
  }
  const auto copy = [&](size_t i, cudaStream_t stream) {
    must(cudaMemcpyAsync(slots.as() + weights * i, host.as() + weights * i, weights, cudaMemcpyHostToDevice, stream),
         "cudaMemcpyAsync");
  };
  const double copied = each(copy); // first: the slots hold numbers then
  const double resident = each([&](size_t i, cudaStream_t stream) { enqueue(onDevice[i], stream); });
  const double direct = each([&](size_t i, cudaStream_t stream) { enqueue(onHost[i], stream); });
  const double behind = each([&](size_t i, cudaStream_t stream) {
    copy(i, stream);
    enqueue(onDevice[i], stream);
  });
  const auto gbps = [&](double us) { return static_cast<double>(weights) / us * 1e-3; };
  return {{"weights on the device us", resident},
          {"read on the host us", direct},
          {"read GB/s", gbps(direct)},
          {"copy alone us", copied},
          {"copy GB/s", gbps(copied)},
          {"copy, then product us", behind},
          {"read / prefetched", direct / std::max(copied, resident)},
          {"read / copied before", direct / behind}};
}

} // namespace

void measureMappedReads(const Context &context) {
  Report &report = context.report;
  report.part(
      "mapped",
      "BF16 products by the library that plans use, weights random, 256 MiB of them before one is read again; a "
      "share of products in a row by events behind a spin kernel; prefetched: copies run beside the products, so "
      "that one takes the longer of a copy and of a product");
  Timer timer;
  std::vector<Report::Task> tasks;
  for (const auto &[n, k] : {std::pair<int64_t, int64_t>{4096, 4096}, {28672, 4096}})
    for (const int64_t rows : {1, 32, 128, 1024})
      tasks.push_back({std::to_string(n) + " x " + std::to_string(k) + ", " + std::to_string(rows) + " rows", 5,
                       [&timer, n = n, k = k, rows] { return mapped(timer, rows, n, k); }});
  report.attempt(tasks);
}

} // namespace headrace::bench
