// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/MatMul.h"

#include "absl/strings/str_cat.h"
#include "kernels/CudaKernels.h"

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
  return absl::StrCat("m ", shape.m, " n ", shape.n, " k ", shape.k, " ", elemName(shape.operands), " -> ",
                      elemName(shape.result), shape.bias ? " bias" : "", shape.residual ? " residual" : "",
                      shape.epilogue == Epilogue::None ? "" : absl::StrCat(" ", epilogueName(shape.epilogue)));
}

absl::StatusOr<LinearCalls> splitLinear(const kernels::LinearArgs &args, uint64_t workspaceBytes, FusePolicy fuse) {
  if (std::string why = kernels::productRefusal(args); !why.empty())
    return absl::InvalidArgumentError(why);
  if (args.elem != args.activation)
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
  MatMul &matmul = calls.matmul;
  matmul = {.shape = {.m = args.capacity,
                      .n = args.n,
                      .k = args.k,
                      .operands = args.elem,
                      .result = args.result,
                      .residual = args.residual != nullptr},
            .x = args.x,
            .w = args.w,
            .residual = args.residual,
            .y = args.y,
            .workspace = args.workspace,
            .workspaceBytes = args.workspace == nullptr ? 0 : workspaceBytes};
  if (fuse == FusePolicy::Library) {
    matmul.bias = args.bias;
    matmul.shape.bias = args.bias != nullptr;
    calls.bias = nullptr;
    if (args.epilogue != Epilogue::Gelu) { // the library's is the tanh form; the exact one is ours
      matmul.shape.epilogue = args.epilogue;
      calls.epilogue = Epilogue::None;
    }
  }
  calls.after = calls.bias != nullptr || calls.epilogue != Epilogue::None;
  return calls;
}

} // namespace headrace::cuda
