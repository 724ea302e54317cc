// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/MatMul.h"

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "kernels/CudaWorkspace.h"

namespace headrace::cuda {

using kernels::Elem;
using kernels::Epilogue;

const char *elemName(Elem elem) {
  switch (elem) {
  case Elem::F32:
    return "f32";
  case Elem::F16:
    return "f16";
  case Elem::BF16:
    return "bf16";
  }
  return "?";
}

const char *epilogueName(Epilogue epilogue) {
  switch (epilogue) {
  case Epilogue::None:
    return "none";
  case Epilogue::Relu:
    return "relu";
  case Epilogue::Gelu:
    return "gelu";
  case Epilogue::GeluTanh:
    return "gelu-tanh";
  }
  return "?";
}

std::string toText(const MatMulShape &shape) {
  return absl::StrCat("m ", shape.m, " n ", shape.n, shape.gap == 0 ? "" : absl::StrCat(" of ", shape.stride()), " k ",
                      shape.k, " ", elemName(shape.operands), " -> ", elemName(shape.result), shape.bias ? " bias" : "",
                      shape.residual ? " residual" : "",
                      shape.epilogue == Epilogue::None ? "" : absl::StrCat(" ", epilogueName(shape.epilogue)));
}

namespace {

int64_t bytesOf(Elem elem) { return elem == Elem::F32 ? 4 : 2; }

template <typename T> T *offset(T *base, int64_t bytes) {
  using Bytes = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
  return base == nullptr ? nullptr : reinterpret_cast<T *>(reinterpret_cast<Bytes *>(base) + bytes);
}

// Rows of w one part behind the other to the workspace's head, and as many columns of `whole`.
std::vector<LinearPart> unpackedParts(const kernels::LinearArgs &args, const MatMul &whole) {
  const int64_t element = bytesOf(args.activation), n = args.n, k = args.k;
  const int64_t most = kernels::CudaWorkspace::unpackedRows(n, k, element);
  const uint64_t unpacked = kernels::CudaWorkspace::unpackedBytes(n, k, element);
  std::vector<LinearPart> parts;
  for (int64_t first = 0; first < n; first += most) {
    LinearPart part{.unpack = kernels::UnpackArgs{.w = offset(args.w, args.packing.bytes(first * k)),
                                                  .out = args.workspace,
                                                  .rows = std::min(most, n - first),
                                                  .k = k,
                                                  .packing = args.packing,
                                                  .activation = args.activation},
                    .matmul = whole};
    MatMul &matmul = part.matmul;
    matmul.shape.n = part.unpack->rows;
    matmul.shape.gap = n - part.unpack->rows;
    matmul.w = args.workspace;
    matmul.bias = offset(whole.bias, first * bytesOf(args.result));
    matmul.residual = offset(whole.residual, first * bytesOf(Elem::F32));
    matmul.y = offset(whole.y, first * bytesOf(args.result));
    matmul.workspace = offset(args.workspace, static_cast<int64_t>(unpacked));
    matmul.workspaceBytes = whole.workspaceBytes - std::min(whole.workspaceBytes, unpacked);
    parts.push_back(part);
  }
  return parts;
}

} // namespace

absl::StatusOr<LinearCalls> splitLinear(const kernels::LinearArgs &args, uint64_t workspaceBytes, FusePolicy fuse) {
  if (std::string why = kernels::productRefusal(args); !why.empty())
    return absl::InvalidArgumentError(why);
  if (args.packing.codeBits == 0 && args.elem != args.activation)
    return absl::InvalidArgumentError(
        absl::StrCat("a matrix of ", elemName(args.elem), " times activations of ", elemName(args.activation),
                     ": expected the same type; compile the plan for the matrices' type"));
  if (args.order != kernels::Order::RowMajor)
    return absl::InvalidArgumentError("a matrix in panels: expected one in row-major order");
  if (args.residual != nullptr && (args.result != Elem::F32 || args.epilogue != Epilogue::None))
    return absl::InvalidArgumentError(absl::StrCat("a residual with result ", elemName(args.result), " and epilogue ",
                                                   epilogueName(args.epilogue), ": expected f32 and none"));
  if (args.result != Elem::F32 && args.result != args.activation)
    return absl::InvalidArgumentError(absl::StrCat("a result of ", elemName(args.result), " from ",
                                                   elemName(args.activation), ": expected f32 or the same type"));
  if (args.bias != nullptr && args.biasElem != args.result)
    return absl::InvalidArgumentError(absl::StrCat("a bias of ", elemName(args.biasElem), " with a result of ",
                                                   elemName(args.result), ": expected the same type"));
  LinearCalls calls;
  calls.bias = args.bias;
  calls.epilogue = args.epilogue;
  MatMul whole = {.shape = {.m = args.capacity,
                            .n = args.n,
                            .k = args.k,
                            .operands = args.activation,
                            .result = args.result,
                            .residual = args.residual != nullptr},
                  .x = args.x,
                  .w = args.w,
                  .residual = args.residual,
                  .y = args.y,
                  .workspace = args.workspace,
                  .workspaceBytes = args.workspace == nullptr ? 0 : workspaceBytes};
  if (fuse == FusePolicy::Library) {
    whole.bias = args.bias;
    whole.shape.bias = args.bias != nullptr;
    calls.bias = nullptr;
    if (args.epilogue != Epilogue::Gelu) { // the library's is the tanh form; the exact one is ours
      whole.shape.epilogue = args.epilogue;
      calls.epilogue = Epilogue::None;
    }
  }
  if (args.packing.codeBits == 0)
    calls.parts.push_back({.unpack = std::nullopt, .matmul = whole});
  else
    calls.parts = unpackedParts(args, whole);
  calls.after = calls.bias != nullptr || calls.epilogue != Epilogue::None;
  return calls;
}

} // namespace headrace::cuda
