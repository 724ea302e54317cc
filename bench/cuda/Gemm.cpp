// SPDX-License-Identifier: Apache-2.0
#include "bench/cuda/Gemm.h"

#include <algorithm>
#include <memory>

#include "kernels/CudaWorkspace.h"
#include "runtime/cuda/DynamicLibrary.h"

namespace headrace::bench {

cuda::MatMulLibrary &productLibrary() {
  static const std::unique_ptr<cuda::MatMulLibrary> opened = [] {
    auto made = cuda::MatMulLibrary::open(cuda::LibraryKind::CublasLt, cuda::librarySearchPath(""));
    if (!made.ok())
      fail(std::string(made.status().message()));
    return *std::move(made);
  }();
  return *opened;
}

cuda::MatMul product(int64_t m, int64_t n, int64_t k, const void *x, const void *w, void *y, void *workspace) {
  cuda::MatMul product;
  product.shape = {.m = m, .n = n, .k = k, .operands = kernels::Elem::BF16, .result = kernels::Elem::BF16};
  product.x = x;
  product.w = w;
  product.y = y;
  product.workspace = workspace;
  product.workspaceBytes = kernels::CudaWorkspace::kLinearBytes;
  if (const auto prepared = productLibrary().prepare(product); !prepared.ok())
    fail(std::string(prepared.status().message()));
  return product;
}

void enqueue(const cuda::MatMul &product, cudaStream_t stream) {
  if (const absl::Status status = productLibrary().enqueue(product, stream); !status.ok())
    fail(std::string(status.message()));
}

double gemmMs(Timer &timer, int64_t m, int64_t n, int64_t k) {
  const size_t weights = static_cast<size_t>(n * k) * 2;
  const auto copies = static_cast<int>(std::max<size_t>(1, (kRotated + weights - 1) / weights));
  const int inRow = std::clamp((10 + copies - 1) / copies * copies, copies, 256);
  const DeviceBuffer x(static_cast<size_t>(m * k) * 2, DeviceBuffer::Holds::Random),
      w(weights * static_cast<size_t>(copies), DeviceBuffer::Holds::Random), y(static_cast<size_t>(m * n) * 2),
      workspace(kernels::CudaWorkspace::kLinearBytes);
  std::vector<cuda::MatMul> each;
  for (int i = 0; i < copies; ++i)
    each.push_back(product(m, n, k, x.as(), w.as() + weights * static_cast<size_t>(i), y.as(), workspace.as()));
  const double ms = timer.medianMs(5, [&](cudaStream_t stream) {
    for (int i = 0; i < inRow; ++i)
      enqueue(each[static_cast<size_t>(i % copies)], stream);
  });
  return ms / inRow;
}

} // namespace headrace::bench
