// SPDX-License-Identifier: Apache-2.0
//
// Algorithms of matrix products that were chosen before, by measuring, from a file beside the performance record:
//
//   cublasLt 130001
//   m 32 n 28672 k 4096 bf16 -> bf16: algorithm 66 tile 20 ..., bytes 42 0 1f 0 0 0 0 0, 1 nodes
//
// which is what GraphCosts::algorithms lists. They are of that version of the library: its own numbers, opaque.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"

namespace headrace::cuda {

struct ProductAlgorithms {
  using Words = std::array<uint64_t, 8>; // cublasLtMatmulAlgo_t

  std::string library;                  // "cublasLt 130001"; empty: none were chosen
  std::map<std::string, Words> byShape; // toText(MatMulShape)

  // Null where this library has no choice for the shape.
  const Words *of(const std::string &version, const std::string &shape) const;
};

// InvalidArgument naming file, line and what was expected.
absl::StatusOr<ProductAlgorithms> readProductAlgorithms(const std::string &path);

// Such a file: what GraphCosts::algorithms lists of cublasLt, then what `before`, of the same library, has of other
// shapes. Empty where nothing was listed of it.
std::string productAlgorithmsText(const std::string &listed, const ProductAlgorithms &before);

} // namespace headrace::cuda
