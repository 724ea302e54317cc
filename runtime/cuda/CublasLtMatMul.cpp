// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/CublasLtMatMul.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/cuda/Cublas.h"

namespace headrace::cuda {
namespace {

using kernels::Epilogue;

cublasLtEpilogue_t libraryEpilogue(const MatMulShape &shape) {
  switch (shape.epilogue) {
  case Epilogue::Relu:
    return shape.bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
  case Epilogue::GeluTanh:
    return shape.bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
  case Epilogue::None:
  case Epilogue::Gelu: // splitLinear leaves it to BiasActivate
    break;
  }
  return shape.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(ProductAlgorithms::Words));

// What one shape's calls have in common. Descriptors are freed by the library that made them.
struct Prepared {
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t w = nullptr, x = nullptr, y = nullptr;
  std::vector<cublasLtMatmulAlgo_t> algorithms; // that could be used, the fastest first, as the library thinks
  size_t chosen = 0;

  const cublasLtMatmulAlgo_t &algorithm() const { return algorithms[chosen]; }
};

class CublasLtMatMul final : public MatMulLibrary {
public:
  CublasLtMatMul(CublasLt lt, ProductAlgorithms chosen) : lt_(std::move(lt)), chosen_(std::move(chosen)) {}
  ~CublasLtMatMul() override {
    for (auto &[shape, prepared] : prepared_)
      release(prepared);
    if (handle_ != nullptr)
      giveBack(lt_.destroy(handle_));
  }
  absl::Status create() {
    HEADRACE_CUBLAS(lt_.path, "cublasLtCreate", lt_.create(&handle_));
    return absl::OkStatus();
  }
  FusePolicy fuse() const override { return FusePolicy::Library; }
  void use(const ProductAlgorithms &chosen) override { chosen_ = chosen; }

  absl::StatusOr<bool> prepare(const MatMul &matmul) override {
    if (prepared_.contains(matmul.shape))
      return false;
    Prepared prepared;
    absl::Status status = describe(matmul.shape, prepared);
    if (status.ok())
      status = choose(matmul, prepared);
    if (!status.ok()) {
      release(prepared);
      return status;
    }
    takeChosen(matmul.shape, prepared);
    prepared_.emplace(matmul.shape, prepared);
    return true;
  }

  absl::Status enqueue(const MatMul &matmul, cudaStream_t stream) override {
    const std::string text = toText(matmul.shape);
    const auto it = prepared_.find(matmul.shape);
    if (it == prepared_.end())
      return absl::InternalError(absl::StrCat(text, ": not prepared"));
    const Prepared &prepared = it->second;
    RETURN_IF_ERROR(setBias(matmul, prepared.desc));
    // Host pointers: the values are baked into the node.
    const float alpha = 1, beta = matmul.shape.residual ? 1.0f : 0.0f;
    const void *c = matmul.shape.residual ? matmul.residual : matmul.y;
    HEADRACE_CUBLAS(text, "cublasLtMatmul",
                    lt_.matmul(handle_, prepared.desc, &alpha, matmul.w, prepared.w, matmul.x, prepared.x, &beta, c,
                               prepared.y, matmul.y, prepared.y, &prepared.algorithm(), matmul.workspace,
                               matmul.workspaceBytes, stream));
    return absl::OkStatus();
  }

  std::vector<std::string> candidates(const MatMulShape &shape) const override {
    std::vector<std::string> texts;
    if (const auto it = prepared_.find(shape); it != prepared_.end())
      for (const cublasLtMatmulAlgo_t &algorithm : it->second.algorithms)
        texts.push_back(configuration(algorithm));
    return texts;
  }
  absl::Status take(const MatMulShape &shape, size_t candidate) override {
    const auto it = prepared_.find(shape);
    if (it == prepared_.end() || candidate >= it->second.algorithms.size())
      return MatMulLibrary::take(shape, candidate);
    it->second.chosen = candidate;
    return absl::OkStatus();
  }

  std::string version() const override { return absl::StrCat("cublasLt ", lt_.version()); }
  std::string algorithms() const override {
    std::string text = version() + "\n";
    for (const auto &[shape, prepared] : prepared_) {
      absl::StrAppend(&text, toText(shape), ": ", configuration(prepared.algorithm()), ", bytes");
      for (uint64_t word : prepared.algorithm().data)
        absl::StrAppend(&text, " ", absl::Hex(word));
      absl::StrAppend(&text, ", ", nodes(shape).value_or(0), " nodes\n");
    }
    return text;
  }

private:
  static constexpr std::array<std::pair<cublasLtMatmulAlgoConfigAttributes_t, const char *>, 5> kConfiguration = {
      {{CUBLASLT_ALGO_CONFIG_ID, "algorithm"},
       {CUBLASLT_ALGO_CONFIG_TILE_ID, "tile"},
       {CUBLASLT_ALGO_CONFIG_STAGES_ID, "stages"},
       {CUBLASLT_ALGO_CONFIG_SPLITK_NUM, "split-k"},
       {CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, "reduction"}}};

  // Sums whose order is fixed: no split, or partial sums in the workspace, in F32, added up by a step of their own. The
  // other schemes round partial sums to the result's type.
  static constexpr uint32_t kReductions = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;

  std::string configuration(const cublasLtMatmulAlgo_t &algorithm) const {
    std::string text;
    for (const auto &[attribute, name] : kConfiguration) {
      uint64_t value = 0;
      size_t written = 0;
      if (lt_.algorithmAttribute(&algorithm, attribute, &value, sizeof(uint32_t), &written) == CUBLAS_STATUS_SUCCESS)
        absl::StrAppend(&text, text.empty() ? "" : " ", name, " ", value);
    }
    return text;
  }

  void release(Prepared &prepared) {
    if (prepared.desc != nullptr)
      giveBack(lt_.descDestroy(prepared.desc));
    for (cublasLtMatrixLayout_t layout : {prepared.w, prepared.x, prepared.y})
      if (layout != nullptr)
        giveBack(lt_.layoutDestroy(layout));
    prepared = {};
  }

  // What was chosen before is taken where the library itself names it for the shape, never on the file's word alone.
  void takeChosen(const MatMulShape &shape, Prepared &prepared) const {
    const ProductAlgorithms::Words *words = chosen_.of(version(), toText(shape));
    for (size_t i = 0; words != nullptr && i < prepared.algorithms.size(); ++i)
      if (std::equal(words->begin(), words->end(), std::begin(prepared.algorithms[i].data)))
        prepared.chosen = i;
  }

  absl::Status describe(const MatMulShape &shape, Prepared &out) {
    const std::string text = toText(shape);
    const auto m = static_cast<uint64_t>(shape.m), n = static_cast<uint64_t>(shape.n),
               k = static_cast<uint64_t>(shape.k);
    const cudaDataType operands = libraryType(shape.operands), result = libraryType(shape.result);
    // Sums in F32 for all types, and no TF32 for F32 operands.
    HEADRACE_CUBLAS(text, "cublasLtMatmulDescCreate", lt_.descCreate(&out.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    HEADRACE_CUBLAS(text, "cublasLtMatrixLayoutCreate", lt_.layoutCreate(&out.w, operands, k, n, shape.k));
    HEADRACE_CUBLAS(text, "cublasLtMatrixLayoutCreate", lt_.layoutCreate(&out.x, operands, k, m, shape.k));
    HEADRACE_CUBLAS(text, "cublasLtMatrixLayoutCreate", lt_.layoutCreate(&out.y, result, n, m, shape.stride()));
    const cublasOperation_t transposed = CUBLAS_OP_T, plain = CUBLAS_OP_N;
    const cublasLtEpilogue_t epilogue = libraryEpilogue(shape);
    RETURN_IF_ERROR(set(text, out.desc, CUBLASLT_MATMUL_DESC_TRANSA, transposed));
    RETURN_IF_ERROR(set(text, out.desc, CUBLASLT_MATMUL_DESC_TRANSB, plain));
    RETURN_IF_ERROR(set(text, out.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue));
    if (shape.bias) {
      const auto type = static_cast<int32_t>(result);
      RETURN_IF_ERROR(set(text, out.desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type));
    }
    return absl::OkStatus();
  }

  absl::Status setBias(const MatMul &matmul, cublasLtMatmulDesc_t desc) {
    if (!matmul.shape.bias)
      return absl::OkStatus();
    const void *bias = matmul.bias;
    return set(toText(matmul.shape), desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  }

  template <typename T>
  absl::Status set(const std::string &text, cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                   const T &value) {
    HEADRACE_CUBLAS(text, "cublasLtMatmulDescSetAttribute", lt_.descSet(desc, attribute, &value, sizeof(value)));
    return absl::OkStatus();
  }

  absl::Status choose(const MatMul &matmul, Prepared &out) {
    const std::string text = toText(matmul.shape);
    RETURN_IF_ERROR(setBias(matmul, out.desc)); // its alignment counts
    cublasLtMatmulPreference_t preference = nullptr;
    HEADRACE_CUBLAS(text, "cublasLtMatmulPreferenceCreate", lt_.preferenceCreate(&preference));
    absl::Status status = chooseBy(text, preference, matmul.workspaceBytes, out);
    giveBack(lt_.preferenceDestroy(preference));
    return status;
  }

  absl::Status chooseBy(const std::string &text, cublasLtMatmulPreference_t preference, uint64_t workspaceBytes,
                        Prepared &out) {
    const size_t workspace = workspaceBytes;
    const uint32_t reductions = kReductions;
    HEADRACE_CUBLAS(
        text, "cublasLtMatmulPreferenceSetAttribute",
        lt_.preferenceSet(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof(workspace)));
    HEADRACE_CUBLAS(
        text, "cublasLtMatmulPreferenceSetAttribute",
        lt_.preferenceSet(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof(reductions)));
    std::array<cublasLtMatmulHeuristicResult_t, 8> results{};
    int found = 0;
    HEADRACE_CUBLAS(text, "cublasLtMatmulAlgoGetHeuristic",
                    lt_.heuristic(handle_, out.desc, out.w, out.x, out.y, out.y, preference,
                                  static_cast<int>(results.size()), results.data(), &found));
    for (int i = 0; i < found; ++i) {
      const cublasLtMatmulHeuristicResult_t &result = results[static_cast<size_t>(i)];
      uint32_t reduction = 0;
      size_t written = 0;
      if (result.state != CUBLAS_STATUS_SUCCESS || result.workspaceSize > workspaceBytes)
        continue;
      HEADRACE_CUBLAS(text, "cublasLtMatmulAlgoConfigGetAttribute",
                      lt_.algorithmAttribute(&result.algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &reduction,
                                             sizeof(reduction), &written));
      if ((reduction & ~kReductions) == 0)
        out.algorithms.push_back(result.algo);
    }
    if (!out.algorithms.empty())
      return absl::OkStatus();
    return absl::UnimplementedError(absl::StrCat(text, ": cublasLt has no algorithm with a fixed order of sums in ",
                                                 workspaceBytes, " bytes of workspace; cublasGemmEx may"));
  }

  const CublasLt lt_;
  ProductAlgorithms chosen_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<MatMulShape, Prepared> prepared_;
};

} // namespace

absl::StatusOr<std::unique_ptr<MatMulLibrary>> openCublasLtMatMul(const std::vector<std::string> &folders,
                                                                  const ProductAlgorithms &chosen) {
  ASSIGN_OR_RETURN(lt, openCublasLt(folders));
  auto library = std::make_unique<CublasLtMatMul>(std::move(lt), chosen);
  RETURN_IF_ERROR(library->create());
  return library;
}

} // namespace headrace::cuda
