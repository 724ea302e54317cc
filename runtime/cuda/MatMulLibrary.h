// SPDX-License-Identifier: Apache-2.0
//
// Matrix products by a library: enqueued on a stream, which may be capturing. A shape is prepared once, before any
// graph has it: an algorithm is chosen then and used for every call of that shape, with the plan's workspace.
//
// Row-major x[m, k], W[n, k], y[m, n] are the library's column-major k x m, k x n and n x m: y^T = W x^T, the first
// operand transposed.
#pragma once

#include <cuda_runtime_api.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/cuda/MatMul.h"
#include "runtime/cuda/ProductAlgorithms.h"

namespace headrace::cuda {

// CublasLt: the way. GemmEx: the oracle that it is compared with, and what to fall back to; it fuses nothing, so graphs
// are planned with FusePolicy::None.
enum class LibraryKind : uint8_t { CublasLt = 0, GemmEx = 1 };

class MatMulLibrary {
public:
  virtual ~MatMulLibrary() = default;
  // Opens the library and its handle on the current device. A shape with an algorithm among `chosen`, which the
  // library of that version names for it too, is given that one; every other shape the first that the library names.
  static absl::StatusOr<std::unique_ptr<MatMulLibrary>> open(LibraryKind kind, const std::vector<std::string> &folders,
                                                             const ProductAlgorithms &chosen = {});

  // Of shapes that are prepared from now on: `chosen` in place of what it was opened with.
  virtual void use(const ProductAlgorithms &) {}
  // Chooses the algorithm of a shape that has none yet; true where it had none.
  virtual absl::StatusOr<bool> prepare(const MatMul &matmul) = 0;
  virtual absl::Status enqueue(const MatMul &matmul, cudaStream_t stream) = 0;
  // What a prepared shape could have been given, up to eight, in words, the one that it was given first; none where the
  // library lets nobody choose. And the one that its later calls take.
  virtual std::vector<std::string> candidates(const MatMulShape &) const { return {}; }
  virtual absl::Status take(const MatMulShape &shape, size_t candidate);
  // "m 8 n 96 k 64 bf16 -> bf16: algorithm 66 ..., 2 nodes", a line a shape in a fixed order.
  virtual std::string algorithms() const = 0;
  virtual std::string version() const = 0; // "cublasLt 130001"
  virtual FusePolicy fuse() const = 0;

  // How many graph nodes one call of a shape made: recorded the first time, compared from then on.
  absl::Status checkNodes(const MatMulShape &shape, size_t nodes);
  std::optional<size_t> nodes(const MatMulShape &shape) const;

private:
  std::map<MatMulShape, size_t> nodes_;
};

} // namespace headrace::cuda
