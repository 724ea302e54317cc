// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/MatMulLibrary.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/cuda/Cublas.h"
#include "runtime/cuda/CublasLtMatMul.h"

namespace headrace::cuda {
namespace {

class GemmEx final : public MatMulLibrary {
public:
  explicit GemmEx(const Cublas &cublas) : cublas_(cublas) {}
  ~GemmEx() override {
    if (handle_ != nullptr)
      giveBack(cublas_.destroy(handle_));
  }
  absl::Status create() {
    HEADRACE_CUBLAS(cublas_.path, "cublasCreate", cublas_.create(&handle_));
    return absl::OkStatus();
  }

  absl::StatusOr<bool> prepare(const MatMul &matmul) override {
    const MatMulShape &shape = matmul.shape;
    for (int64_t size : {shape.m, shape.stride(), shape.k})
      if (size < 1 || size > std::numeric_limits<int>::max())
        return absl::UnimplementedError(absl::StrCat(toText(shape), ": cublasGemmEx takes sizes from 1 to 2^31 - 1"));
    if (shape.bias || shape.epilogue != kernels::Epilogue::None)
      return absl::UnimplementedError(absl::StrCat(toText(shape), ": cublasGemmEx adds no bias and no activation"));
    return shapes_.insert({shape, true}).second;
  }

  absl::Status enqueue(const MatMul &matmul, cudaStream_t stream) override {
    const MatMulShape &shape = matmul.shape;
    const std::string text = toText(shape);
    if (matmul.residual != nullptr && matmul.residual != matmul.y)
      return absl::UnimplementedError(absl::StrCat(text, ": cublasGemmEx adds to its result in place only"));
    // The stream first: setting it takes the workspace away.
    HEADRACE_CUBLAS(text, "cublasSetStream", cublas_.setStream(handle_, stream));
    HEADRACE_CUBLAS(text, "cublasSetWorkspace", cublas_.setWorkspace(handle_, matmul.workspace, matmul.workspaceBytes));
    const float alpha = 1, beta = shape.residual ? 1.0f : 0.0f;
    const int m = static_cast<int>(shape.m), n = static_cast<int>(shape.n), k = static_cast<int>(shape.k);
    HEADRACE_CUBLAS(text, "cublasGemmEx",
                    cublas_.gemmEx(handle_, CUBLAS_OP_T, CUBLAS_OP_N, n, m, k, &alpha, matmul.w,
                                   libraryType(shape.operands), k, matmul.x, libraryType(shape.operands), k, &beta,
                                   matmul.y, libraryType(shape.result), static_cast<int>(shape.stride()),
                                   CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    return absl::OkStatus();
  }

  std::string algorithms() const override {
    std::string text;
    for (const auto &[shape, prepared] : shapes_)
      absl::StrAppend(&text, toText(shape), ": cublasGemmEx, ", nodes(shape).value_or(0), " nodes\n");
    return text;
  }
  std::string version() const override { return "cublasGemmEx"; }
  FusePolicy fuse() const override { return FusePolicy::None; }

private:
  const Cublas cublas_;
  cublasHandle_t handle_ = nullptr;
  std::map<MatMulShape, bool> shapes_;
};

} // namespace

absl::StatusOr<std::unique_ptr<MatMulLibrary>>
MatMulLibrary::open(LibraryKind kind, const std::vector<std::string> &folders, const ProductAlgorithms &chosen) {
  if (kind == LibraryKind::CublasLt)
    return openCublasLtMatMul(folders, chosen);
  ASSIGN_OR_RETURN(cublas, openCublas(folders));
  auto library = std::make_unique<GemmEx>(cublas);
  RETURN_IF_ERROR(library->create());
  return library;
}

absl::Status MatMulLibrary::take(const MatMulShape &shape, size_t candidate) {
  return absl::InvalidArgumentError(
      absl::StrCat(toText(shape), ": candidate ", candidate, " of ", candidates(shape).size()));
}

absl::Status MatMulLibrary::checkNodes(const MatMulShape &shape, size_t nodes) {
  const auto [it, first] = nodes_.try_emplace(shape, nodes);
  if (first && nodes != 0)
    return absl::OkStatus();
  if (nodes == 0 || it->second != nodes)
    return absl::InternalError(absl::StrCat(toText(shape), ": the library made ", nodes, " nodes, expected ",
                                            nodes == 0 ? "at least one" : absl::StrCat(it->second, " as before")));
  return absl::OkStatus();
}

std::optional<size_t> MatMulLibrary::nodes(const MatMulShape &shape) const {
  const auto it = nodes_.find(shape);
  return it == nodes_.end() ? std::nullopt : std::optional<size_t>(it->second);
}

} // namespace headrace::cuda
