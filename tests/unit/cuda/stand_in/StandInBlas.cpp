// SPDX-License-Identifier: Apache-2.0
//
// libcublasLt.so.13 and libcublas.so.13 beside the stand-in runtime: a product is one host function on the stream, sums
// in F32, k ascending. Of cublasLt's rules those that runtime/cuda could break are kept: a bias is of the result's
// type, the residual F32.
#include <cublasLt.h>
#include <cublas_v2.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <mutex>
#include <utility>

#include "kernels/Half.h"
#include "tests/unit/cuda/stand_in/StandInShared.h"

namespace {

// Attributes as they are set; those of other names are refused.
struct Desc {
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  int32_t biasType = CUDA_R_32F;
  const void *bias = nullptr;
  bool transposed = false; // the first operand
};
struct Preference {};
struct Layout {
  cudaDataType type = CUDA_R_32F;
  uint64_t rows = 0, cols = 0;
  int64_t ld = 0;
};

// Row-major y[m, n] = epilogue(x[m, k] w[n, k]^T + beta c + bias).
struct Product {
  const void *w = nullptr, *x = nullptr, *c = nullptr, *bias = nullptr;
  void *y = nullptr;
  cudaDataType operands = CUDA_R_32F, result = CUDA_R_32F;
  int64_t m = 0, n = 0, k = 0, stride = 0; // of y's rows and c's
  float beta = 0;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
};

float load(const void *base, cudaDataType type, int64_t i) {
  if (type == CUDA_R_32F)
    return static_cast<const float *>(base)[i];
  const uint16_t bits = static_cast<const uint16_t *>(base)[i];
  return type == CUDA_R_16F ? headrace::kernels::floatFromF16(bits) : headrace::kernels::floatFromBf16(bits);
}
void store(void *base, cudaDataType type, int64_t i, float value) {
  if (type == CUDA_R_32F)
    static_cast<float *>(base)[i] = value;
  else
    static_cast<uint16_t *>(base)[i] =
        type == CUDA_R_16F ? headrace::kernels::f16FromFloat(value) : headrace::kernels::bf16FromFloat(value);
}

bool isRelu(cublasLtEpilogue_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_RELU || epilogue == CUBLASLT_EPILOGUE_RELU_BIAS;
}
bool isGelu(cublasLtEpilogue_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_GELU || epilogue == CUBLASLT_EPILOGUE_GELU_BIAS;
}
bool hasBias(cublasLtEpilogue_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_RELU_BIAS ||
         epilogue == CUBLASLT_EPILOGUE_GELU_BIAS;
}

void run(void *data) {
  const Product &p = *static_cast<const Product *>(data);
  for (int64_t row = 0; row < p.m; ++row)
    for (int64_t n = 0; n < p.n; ++n) {
      float sum = 0;
      for (int64_t k = 0; k < p.k; ++k)
        sum += load(p.x, p.operands, row * p.k + k) * load(p.w, p.operands, n * p.k + k);
      if (p.beta != 0)
        sum += p.beta * load(p.c, p.result, row * p.stride + n);
      if (hasBias(p.epilogue))
        sum += load(p.bias, p.result, n);
      if (isRelu(p.epilogue))
        sum = std::max(sum, 0.0f);
      if (isGelu(p.epilogue))
        sum = 0.5f * sum * (1 + std::tanh(0.7978845608f * (sum + 0.044715f * sum * sum * sum)));
      store(p.y, p.result, row * p.stride + n, sum);
    }
}

// Graphs run it as often as they are launched, so it is kept to the program's end.
cublasStatus_t give(const Product &product, cudaStream_t stream) {
  static std::mutex mutex;
  static auto *const kept = new std::deque<Product>;
  Product *own = nullptr;
  {
    const std::lock_guard lock(mutex);
    own = &kept->emplace_back(product);
  }
  return standInHost(stream, run, own) == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

const Layout &layoutOf(cublasLtMatrixLayout_t layout) { return *reinterpret_cast<const Layout *>(layout); }

template <typename T> cublasStatus_t take(T &to, const void *from, size_t bytes) {
  if (bytes != sizeof(T))
    return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

// Of both libraries; of the device that is the thread's when it is made.
struct Handle {
  int device = 0;
  cudaStream_t stream = nullptr;
};
template <typename Own> Handle &handleOf(Own own) { return *reinterpret_cast<Handle *>(own); }
// Calls with a handle of another device than the thread's are refused: the library would work on the wrong one.
template <typename Own> bool elsewhere(Own own) { return handleOf(own).device != standInDevice(); }

// What is made by a call is counted as a handle.
template <typename T, typename Opaque> cublasStatus_t make(Opaque *out, T value) {
  standInHandles(1);
  *out = reinterpret_cast<Opaque>(new T(std::move(value)));
  return CUBLAS_STATUS_SUCCESS;
}
template <typename T, typename Opaque> cublasStatus_t destroy(Opaque own, int error) {
  standInHandles(-1);
  delete reinterpret_cast<T *>(own);
  return error == 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INTERNAL_ERROR;
}

// On another device it stays.
template <typename Own> cublasStatus_t destroyHandle(Own own, int error) {
  return elsewhere(own) ? CUBLAS_STATUS_INVALID_VALUE : destroy<Handle>(own, error);
}

#define STAND_IN_CALL()                                                                                                \
  do {                                                                                                                 \
    if (standInCalled(__func__) != 0)                                                                                  \
      return CUBLAS_STATUS_INTERNAL_ERROR;                                                                             \
  } while (false)

} // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out) {
  STAND_IN_CALL();
  return make(out, Handle{standInDevice()});
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t own) { return destroyHandle(own, standInCalled(__func__)); }
size_t cublasLtGetVersion() { return 130000; }
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t, cudaDataType_t) {
  STAND_IN_CALL();
  return make(out, Desc());
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  return destroy<Desc>(desc, standInCalled(__func__));
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes) {
  STAND_IN_CALL();
  Desc &own = *reinterpret_cast<Desc *>(desc);
  cublasOperation_t operation = CUBLAS_OP_N;
  switch (attribute) {
  case CUBLASLT_MATMUL_DESC_TRANSA: {
    const cublasStatus_t status = take(operation, value, bytes);
    own.transposed = operation == CUBLAS_OP_T;
    return status;
  }
  case CUBLASLT_MATMUL_DESC_TRANSB:
    return take(operation, value, bytes);
  case CUBLASLT_MATMUL_DESC_EPILOGUE:
    return take(own.epilogue, value, bytes);
  case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
    return take(own.biasType, value, bytes);
  case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
    return take(own.bias, value, bytes);
  default:
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows, uint64_t cols,
                                          int64_t ld) {
  STAND_IN_CALL();
  if (ld < static_cast<int64_t>(rows))
    return CUBLAS_STATUS_INVALID_VALUE;
  return make(out, Layout{type, rows, cols, ld});
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return destroy<Layout>(layout, standInCalled(__func__));
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out) {
  STAND_IN_CALL();
  return make(out, Preference());
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t own) {
  return destroy<Preference>(own, standInCalled(__func__));
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
                                                    const void *, size_t) {
  STAND_IN_CALL();
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t w, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t y, cublasLtMatmulPreference_t, int most,
                                              cublasLtMatmulHeuristicResult_t results[], int *count) {
  STAND_IN_CALL();
  const Desc &own = *reinterpret_cast<const Desc *>(desc);
  *count = 0;
  if (elsewhere(handle))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (!own.transposed || (hasBias(own.epilogue) && own.biasType != layoutOf(y).type) ||
      (layoutOf(y).type != CUDA_R_32F && layoutOf(y).type != layoutOf(w).type))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  // Two that compute the same, told apart by their numbers.
  for (*count = 0; *count < std::min(most, 2); ++*count) {
    results[*count] = {};
    results[*count].state = CUBLAS_STATUS_SUCCESS;
    results[*count].algo.data[0] = static_cast<uint64_t>(*count);
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute, void *value,
                                                    size_t bytes, size_t *written) {
  STAND_IN_CALL();
  std::memset(value, 0, bytes); // no split, no reduction
  if (attribute == CUBLASLT_ALGO_CONFIG_ID)
    std::memcpy(value, &algorithm->data[0], std::min(bytes, sizeof algorithm->data[0]));
  *written = bytes;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *w,
                              cublasLtMatrixLayout_t wLayout, const void *x, cublasLtMatrixLayout_t xLayout,
                              const void *beta, const void *c, cublasLtMatrixLayout_t cLayout, void *y,
                              cublasLtMatrixLayout_t yLayout, const cublasLtMatmulAlgo_t *, void *, size_t,
                              cudaStream_t stream) {
  STAND_IN_CALL();
  const Desc &own = *reinterpret_cast<const Desc *>(desc);
  const Layout &weights = layoutOf(wLayout), &rows = layoutOf(xLayout), &result = layoutOf(yLayout);
  if (elsewhere(handle) || *static_cast<const float *>(alpha) != 1 || weights.rows != rows.rows ||
      result.rows != weights.cols || result.cols != rows.cols || weights.type != rows.type || cLayout != yLayout ||
      weights.ld != static_cast<int64_t>(weights.rows) || rows.ld != static_cast<int64_t>(rows.rows)) // as given here
    return CUBLAS_STATUS_INVALID_VALUE;
  return give({.w = w,
               .x = x,
               .c = c,
               .bias = own.bias,
               .y = y,
               .operands = weights.type,
               .result = result.type,
               .m = static_cast<int64_t>(rows.cols),
               .n = static_cast<int64_t>(weights.cols),
               .k = static_cast<int64_t>(weights.rows),
               .stride = result.ld,
               .beta = *static_cast<const float *>(beta),
               .epilogue = own.epilogue},
              stream);
}

// ---- cuBLAS

cublasStatus_t cublasCreate_v2(cublasHandle_t *out) {
  STAND_IN_CALL();
  return make(out, Handle{standInDevice()});
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t own) { return destroyHandle(own, standInCalled(__func__)); }
cublasStatus_t cublasSetStream_v2(cublasHandle_t own, cudaStream_t stream) {
  STAND_IN_CALL();
  if (elsewhere(own))
    return CUBLAS_STATUS_INVALID_VALUE;
  handleOf(own).stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void *, size_t) {
  STAND_IN_CALL();
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGemmEx(cublasHandle_t own, cublasOperation_t wOperation, cublasOperation_t, int n, int m, int k,
                            const void *, const void *w, cudaDataType wType, int, const void *x, cudaDataType, int,
                            const void *beta, void *y, cudaDataType result, int stride, cublasComputeType_t,
                            cublasGemmAlgo_t) {
  STAND_IN_CALL();
  if (elsewhere(own))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (wOperation != CUBLAS_OP_T)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  return give({.w = w,
               .x = x,
               .c = y,
               .y = y,
               .operands = wType,
               .result = result,
               .m = m,
               .n = n,
               .k = k,
               .stride = stride,
               .beta = *static_cast<const float *>(beta)},
              handleOf(own).stream);
}

} // extern "C"
