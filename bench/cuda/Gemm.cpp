// SPDX-License-Identifier: Apache-2.0
#include "bench/cuda/Gemm.h"

#include <algorithm>
#include <memory>

#include "kernels/CudaWorkspace.h"
#include "kernels/Half.h"
#include "runtime/cuda/DynamicLibrary.h"
#include "runtime/cuda/MatMulLibrary.h"

namespace headrace::bench {
namespace {

cuda::MatMulLibrary &library() {
  static const std::unique_ptr<cuda::MatMulLibrary> opened = [] {
    auto made = cuda::MatMulLibrary::open(cuda::LibraryKind::CublasLt, cuda::librarySearchPath(""));
    if (!made.ok())
      fail(std::string(made.status().message()));
    return *std::move(made);
  }();
  return *opened;
}

// Uniform in +-1, made by a plain congruential generator; repeated every 2^20 elements.
void fillRandom(const DeviceBuffer &buffer, int64_t elements) {
  constexpr int64_t kPeriod = 1 << 20;
  static const std::vector<uint16_t> pattern = [] {
    std::vector<uint16_t> values(kPeriod);
    uint64_t state = 1;
    for (uint16_t &value : values) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      value = kernels::bf16FromFloat(static_cast<float>(state >> 40) * 0x1p-23f - 1.0f);
    }
    return values;
  }();
  for (int64_t at = 0; at < elements; at += kPeriod)
    must(cudaMemcpy(buffer.as<uint16_t>() + at, pattern.data(),
                    static_cast<size_t>(std::min(kPeriod, elements - at)) * sizeof(uint16_t), cudaMemcpyHostToDevice),
         "cudaMemcpy");
}

} // namespace

double gemmTflops(Timer &timer, int64_t m, int64_t n, int64_t k) {
  constexpr int kInRow = 10;
  const DeviceBuffer x(static_cast<size_t>(m * k) * 2), w(static_cast<size_t>(n * k) * 2),
      y(static_cast<size_t>(m * n) * 2), workspace(kernels::CudaWorkspace::kLinearBytes);
  fillRandom(x, m * k);
  fillRandom(w, n * k);
  const cuda::MatMul product{
      .shape = {.m = m, .n = n, .k = k, .operands = kernels::Elem::BF16, .result = kernels::Elem::BF16},
      .x = x.as(),
      .w = w.as(),
      .y = y.as(),
      .workspace = workspace.as(),
      .workspaceBytes = kernels::CudaWorkspace::kLinearBytes};
  if (const auto prepared = library().prepare(product); !prepared.ok())
    fail(std::string(prepared.status().message()));
  const double ms = medianMs(timer, 5,
                             [&](cudaStream_t stream) {
                               for (int i = 0; i < kInRow; ++i)
                                 if (const absl::Status status = library().enqueue(product, stream); !status.ok())
                                   fail(std::string(status.message()));
                             }) /
                    kInRow;
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) / ms * 1e-9;
}

} // namespace headrace::bench
