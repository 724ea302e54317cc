// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/cuda/Gpu.h"
#include "bench/figures/Bound.h"
#include "runtime/cuda/MatMulLibrary.h"

namespace headrace::bench {

// The library that plans use, opened once.
cuda::MatMulLibrary &productLibrary();
// y[m, n] = x[m, k] w[n, k]^T in BF16 with F32 sums.
inline cuda::MatMulShape bf16Shape(int64_t m, int64_t n, int64_t k) {
  return {.m = m, .n = n, .k = k, .operands = kernels::Elem::BF16, .result = kernels::Elem::BF16};
}
// Enqueued by productLibrary(); the algorithm is chosen. A residual is y itself.
cuda::MatMul product(const cuda::MatMulShape &shape, const void *x, const void *w, void *y, void *workspace);
void enqueue(const cuda::MatMul &product, cudaStream_t stream);

// Products of one shape in a row, operands random, each with weights of its own until 256 MiB of them have gone by.
class ProductCase {
public:
  explicit ProductCase(const cuda::MatMulShape &shape);
  double ms(Timer &timer); // of one, by the algorithm that plans use, or the candidate that was taken
  std::vector<std::string> candidates() const { return productLibrary().candidates(shape_); }
  void take(size_t candidate);
  Work work() const;

private:
  cuda::MatMulShape shape_;
  size_t weights_, copies_;
  DeviceBuffer x_, w_, y_, workspace_;
  std::vector<cuda::MatMul> each_;
};

double gemmMs(Timer &timer, int64_t m, int64_t n, int64_t k);
inline double tflops(int64_t m, int64_t n, int64_t k, double ms) {
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) / ms * 1e-9;
}

} // namespace headrace::bench
