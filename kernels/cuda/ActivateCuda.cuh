// SPDX-License-Identifier: Apache-2.0
//
// Element by element on CUDA: Op::Activate, and the bias and activation function after a matrix product.
#pragma once

#include "kernels/cuda/CudaElems.cuh"

namespace headrace::kernels {

HEADRACE_DEVICE float siluOf(float x) { return x / (1.0f + expf(-x)); }

template <Elem kElem> __global__ void activateKernel(const ActivateArgs args) {
  const int64_t n = args.intermediate, rows = *args.count;
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x, step = int64_t{gridDim.x} * blockDim.x;
  if (n % 8 == 0 && aligned16(args.gateUp) && aligned16(args.y)) {
    const int64_t groups = n / 8; // of a row
    for (int64_t i = first; i < rows * groups; i += step) {
      const int64_t t = i / groups, column = i % groups * 8, from = t * 2 * n + column;
      float gate[8], up[8];
      loadEight<kElem>(args.gateUp, from, gate);
      loadEight<kElem>(args.gateUp, from + n, up);
      HEADRACE_LOOP
      for (int j = 0; j < 8; ++j)
        gate[j] = siluOf(gate[j]) * up[j];
      storeEight<kElem>(args.y, t * n + column, gate);
    }
    return;
  }
  for (int64_t i = first; i < rows * n; i += step) {
    const int64_t from = i / n * 2 * n + i % n;
    storeOne<kElem>(args.y, i, siluOf(loadOne<kElem>(args.gateUp, from)) * loadOne<kElem>(args.gateUp, from + n));
  }
}

HEADRACE_DEVICE float epilogueOf(Epilogue epilogue, float x) {
  switch (epilogue) {
  case Epilogue::None:
    break;
  case Epilogue::Relu:
    return x < 0.0f ? 0.0f : x; // NaN stays NaN
  case Epilogue::Gelu:
    return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
  case Epilogue::GeluTanh:
    return 0.5f * x * (1.0f + tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));
  }
  return x;
}

template <Elem kElem> __global__ void biasActivateKernel(const BiasActivateArgs args) {
  const int64_t n = args.n, rows = *args.count < args.capacity ? *args.count : args.capacity;
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x, step = int64_t{gridDim.x} * blockDim.x;
  if (n % 8 == 0 && aligned16(args.y) && aligned16(args.bias)) {
    const int64_t groups = n / 8;
    for (int64_t i = first; i < rows * groups; i += step) {
      float y[8], bias[8] = {};
      loadEight<kElem>(args.y, i * 8, y);
      if (args.bias != nullptr)
        loadEight<kElem>(args.bias, i % groups * 8, bias);
      HEADRACE_LOOP
      for (int j = 0; j < 8; ++j)
        y[j] = epilogueOf(args.epilogue, y[j] + bias[j]);
      storeEight<kElem>(args.y, i * 8, y);
    }
    return;
  }
  for (int64_t i = first; i < rows * n; i += step) {
    const float bias = args.bias != nullptr ? loadOne<kElem>(args.bias, i % n) : 0.0f;
    storeOne<kElem>(args.y, i, epilogueOf(args.epilogue, loadOne<kElem>(args.y, i) + bias));
  }
}

} // namespace headrace::kernels
