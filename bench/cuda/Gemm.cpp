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

cuda::MatMul product(const cuda::MatMulShape &shape, const void *x, const void *w, void *y, void *workspace) {
  cuda::MatMul product;
  product.shape = shape;
  product.x = x;
  product.w = w;
  product.residual = shape.residual ? static_cast<const float *>(y) : nullptr;
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

namespace {

size_t bytesOf(int64_t rows, int64_t columns, kernels::Elem elem) {
  return static_cast<size_t>(rows * columns) * (elem == kernels::Elem::F32 ? 4 : 2);
}

} // namespace

ProductCase::ProductCase(const cuda::MatMulShape &shape)
    : shape_(shape), weights_(bytesOf(shape.n, shape.k, shape.operands)),
      copies_(std::max<size_t>(1, (rotatedBytes() + weights_ - 1) / weights_)),
      x_(bytesOf(shape.m, shape.k, shape.operands), DeviceBuffer::Holds::Random),
      w_(weights_ * copies_, DeviceBuffer::Holds::Random), y_(bytesOf(shape.m, shape.n, shape.result)),
      workspace_(kernels::CudaWorkspace::kLinearBytes) {
  for (size_t i = 0; i < copies_; ++i)
    each_.push_back(product(shape, x_.as(), w_.as() + weights_ * i, y_.as(), workspace_.as()));
}

double ProductCase::ms(Timer &timer) {
  const size_t inRow = std::clamp((10 + copies_ - 1) / copies_ * copies_, copies_, std::max<size_t>(copies_, 256));
  const double ms = timer.medianMs(5, [&](cudaStream_t stream) {
    for (size_t i = 0; i < inRow; ++i)
      enqueue(each_[i % copies_], stream);
  });
  return ms / static_cast<double>(inRow);
}

void ProductCase::take(size_t candidate) {
  if (const absl::Status status = productLibrary().take(shape_, candidate); !status.ok())
    fail(std::string(status.message()));
}

Work ProductCase::work() const {
  const size_t results = bytesOf(shape_.m, shape_.n, shape_.result);
  return {.bytes = static_cast<double>(weights_ + bytesOf(shape_.m, shape_.k, shape_.operands) + results +
                                       (shape_.residual ? results : 0)),
          .flops = 2 * static_cast<double>(shape_.m) * static_cast<double>(shape_.n) * static_cast<double>(shape_.k)};
}

double gemmMs(Timer &timer, int64_t m, int64_t n, int64_t k) { return ProductCase(bf16Shape(m, n, k)).ms(timer); }

} // namespace headrace::bench
