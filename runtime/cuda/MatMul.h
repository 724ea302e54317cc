// SPDX-License-Identifier: Apache-2.0
//
// A linear step as a library call: y[m, n] = epilogue(x[m, k] W[n, k]^T + bias) (+ residual), F32 accumulation.
//
// m is the bucket's capacity: the library does not read the number of rows from the device. Rows beyond the
// iteration's hold what earlier iterations left; rows are independent, so nothing of theirs reaches a row in use.
//
// cublasLt adds a bias of the result's type on the way out, which is how weights are laid out (model::biasType), and
// applies an activation that it has. What it does not do is left to a kernel of our own (BiasActivate). Packed weights
// are unpacked a part of their rows at a time, each of which is a call of its own, for its columns of y.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/CudaKernels.h"

namespace headrace::cuda {

// Library: what cublasLt can fuse. None: everything but the product and the residual is left to BiasActivate, which is
// all that cublasGemmEx can be given.
enum class FusePolicy : uint8_t { Library = 0, None = 1 };

// Sizes and types: what an algorithm is chosen for.
struct MatMulShape {
  int64_t m = 0, n = 0, k = 0;
  int64_t gap = 0; // elements of y, and of the residual, between the end of a row and the next: other parts'
  kernels::Elem operands = kernels::Elem::F32;          // of x and W
  kernels::Elem result = kernels::Elem::F32;            // of y, and of the residual
  bool bias = false;                                    // added by the library
  bool residual = false;                                // beta = 1
  kernels::Epilogue epilogue = kernels::Epilogue::None; // applied by the library: None, Relu or GeluTanh

  int64_t stride() const { return n + gap; } // of y's rows

  // NOLINTNEXTLINE(modernize-use-nullptr): it takes the comparison with 0 for one with a pointer
  friend auto operator<=>(const MatMulShape &, const MatMulShape &) = default;
};

struct MatMul {
  MatMulShape shape;
  const void *x = nullptr, *w = nullptr;
  const void *bias = nullptr; // [n], shape.result
  const float *residual = nullptr;
  void *y = nullptr;
  void *workspace = nullptr;
  uint64_t workspaceBytes = 0;

  template <typename F> void pointers(F f) const {
    f("x", x);
    f("w", w);
    f("bias", bias);
    f("residual", residual);
    f("y", y);
    f("workspace", workspace);
  }
};

// A part of the columns of y: all of them but where weights are packed, whose rows are then unpacked before.
struct LinearPart {
  std::optional<kernels::UnpackArgs> unpack;
  MatMul matmul;
};

// And what is left for BiasActivate behind all.
struct LinearCalls {
  std::vector<LinearPart> parts;
  bool after = false;
  const void *bias = nullptr; // [n], the result's type
  kernels::Epilogue epilogue = kernels::Epilogue::None;
};

// Refuses types that no library call takes.
absl::StatusOr<LinearCalls> splitLinear(const kernels::LinearArgs &args, uint64_t workspaceBytes, FusePolicy fuse);

const char *elemName(kernels::Elem elem);             // "f32", "f16", "bf16"
const char *epilogueName(kernels::Epilogue epilogue); // "none", "relu", "gelu", "gelu-tanh"
std::string
toText(const MatMulShape &shape); // "m 8 n 4096 k 4096 bf16 -> f32 bias residual relu"; "n 4096 of 8192": a part

} // namespace headrace::cuda
