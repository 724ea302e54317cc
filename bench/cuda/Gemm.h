// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "bench/cuda/Gpu.h"
#include "runtime/cuda/MatMulLibrary.h"

namespace headrace::bench {

// The library that plans use, opened once.
cuda::MatMulLibrary &productLibrary();
// y[m, n] = x[m, k] w[n, k]^T in BF16 with F32 sums; the algorithm is chosen. Enqueued by productLibrary().
cuda::MatMul product(int64_t m, int64_t n, int64_t k, const void *x, const void *w, void *y, void *workspace);
void enqueue(const cuda::MatMul &product, cudaStream_t stream);

// Milliseconds of one such product of random operands, by the library and the algorithm that plans use: products in a
// row, each with weights of its own until 256 MiB of them have gone by.
double gemmMs(Timer &timer, int64_t m, int64_t n, int64_t k);
inline double tflops(int64_t m, int64_t n, int64_t k, double ms) {
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) / ms * 1e-9;
}

} // namespace headrace::bench
