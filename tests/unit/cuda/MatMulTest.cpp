// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/MatMul.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/CudaWorkspace.h"

namespace headrace::cuda {
namespace {

using kernels::Elem;
using kernels::Epilogue;
using testing::HasSubstr;

float bias[1], residual[1], result[1];

// x[8, 64] times W[96, 64]
kernels::LinearArgs linear(Elem elem, Elem out, bool withBias, Epilogue epilogue, bool withResidual = false) {
  return {.bias = withBias ? bias : nullptr,
          .residual = withResidual ? residual : nullptr,
          .y = result,
          .workspace = result,
          .n = 96,
          .k = 64,
          .capacity = 8,
          .elem = elem,
          .order = kernels::Order::RowMajor,
          .epilogue = epilogue,
          .activation = elem,
          .result = out,
          .biasElem = out};
}

LinearCalls split(const kernels::LinearArgs &args, FusePolicy fuse = FusePolicy::Library) {
  const auto calls = splitLinear(args, 4096, fuse);
  EXPECT_TRUE(calls.ok()) << calls.status();
  return calls.ok() ? *calls : LinearCalls{};
}

TEST(MatMul, PlainProductIsOneCall) {
  const LinearCalls calls = split(linear(Elem::BF16, Elem::BF16, false, Epilogue::None));
  EXPECT_FALSE(calls.after);
  EXPECT_EQ(toText(calls.parts.front().matmul.shape), "m 8 n 96 k 64 bf16 -> bf16");
  EXPECT_EQ(calls.parts.front().matmul.workspaceBytes, 4096u);
}

TEST(MatMul, F32ResultsTakeTheBiasAndTheActivationOnTheWay) {
  EXPECT_EQ(toText(split(linear(Elem::F16, Elem::F32, true, Epilogue::None, true)).parts.front().matmul.shape),
            "m 8 n 96 k 64 f16 -> f32 bias residual");
  const LinearCalls relu = split(linear(Elem::F32, Elem::F32, true, Epilogue::Relu));
  EXPECT_FALSE(relu.after);
  EXPECT_EQ(toText(relu.parts.front().matmul.shape), "m 8 n 96 k 64 f32 -> f32 bias relu");
}

TEST(MatMul, SoDo16BitResultsWhoseBiasIsOfTheirType) {
  const LinearCalls calls = split(linear(Elem::BF16, Elem::BF16, true, Epilogue::Relu));
  EXPECT_FALSE(calls.after);
  EXPECT_EQ(calls.parts.front().matmul.bias, bias);
  EXPECT_EQ(toText(calls.parts.front().matmul.shape), "m 8 n 96 k 64 bf16 -> bf16 bias relu");
}

TEST(MatMul, ActivationsWithoutBiasAreFusedForAnyResult) {
  EXPECT_FALSE(split(linear(Elem::BF16, Elem::BF16, false, Epilogue::Relu)).after);
  EXPECT_FALSE(split(linear(Elem::BF16, Elem::BF16, false, Epilogue::GeluTanh)).after);
}

TEST(MatMul, TheExactGeluIsOurs) {
  const LinearCalls calls = split(linear(Elem::F32, Elem::F32, true, Epilogue::Gelu));
  EXPECT_TRUE(calls.after);
  EXPECT_EQ(calls.bias, nullptr); // the library adds it
  EXPECT_EQ(calls.epilogue, Epilogue::Gelu);
  EXPECT_EQ(toText(calls.parts.front().matmul.shape), "m 8 n 96 k 64 f32 -> f32 bias");
}

TEST(MatMul, WithoutFusingEverythingButTheProductAndTheResidualFollows) {
  const LinearCalls calls = split(linear(Elem::F16, Elem::F32, true, Epilogue::None, true), FusePolicy::None);
  EXPECT_TRUE(calls.after);
  EXPECT_EQ(calls.bias, bias);
  EXPECT_EQ(toText(calls.parts.front().matmul.shape), "m 8 n 96 k 64 f16 -> f32 residual");
}

TEST(MatMul, RefusesTypesNoLibraryCallTakes) {
  const auto refusal = [](kernels::LinearArgs args) {
    const auto calls = splitLinear(args, 0, FusePolicy::Library);
    EXPECT_EQ(calls.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(calls.status().message());
  };
  kernels::LinearArgs args = linear(Elem::BF16, Elem::F32, false, Epilogue::None);
  args.activation = Elem::F32;
  EXPECT_THAT(refusal(args), HasSubstr("a matrix of bf16 times activations of f32"));
  args = linear(Elem::BF16, Elem::BF16, true, Epilogue::None);
  args.biasElem = Elem::F32;
  EXPECT_THAT(refusal(args), HasSubstr("a bias of f32 with a result of bf16"));
  args = linear(Elem::BF16, Elem::BF16, false, Epilogue::None);
  args.order = kernels::Order::Panel16;
  EXPECT_THAT(refusal(args), HasSubstr("in panels"));
  EXPECT_THAT(refusal(linear(Elem::BF16, Elem::BF16, false, Epilogue::None, true)), HasSubstr("a residual"));
  EXPECT_THAT(refusal(linear(Elem::F32, Elem::F32, false, Epilogue::Relu, true)), HasSubstr("epilogue relu"));
  EXPECT_THAT(refusal(linear(Elem::F16, Elem::BF16, false, Epilogue::None)), HasSubstr("a result of bf16 from f16"));
}

TEST(MatMul, PackedMatricesAreUnpackedAPartAtATime) {
  // 32 MiB hold 1,024 rows of 16,384 elements of 16 bits: 1,500 rows are two parts, of six tiles of 128 (768) and 732.
  static char memory[1500 * 10240], workspace[(32 << 20) + 4096]; // only their addresses count
  kernels::LinearArgs args = linear(Elem::BF16, Elem::BF16, true, Epilogue::Relu);
  args.n = 1500, args.k = 16384, args.packing = {4, 32};
  args.w = memory, args.workspace = workspace, args.elem = Elem::F32; // which says nothing
  const uint64_t unpacked = 1024 * 16384 * 2, library = 4096;
  ASSERT_EQ(kernels::CudaWorkspace::unpackedBytes(1500, 16384, 2), unpacked);
  const auto calls = splitLinear(args, unpacked + library, FusePolicy::Library);
  ASSERT_TRUE(calls.ok()) << calls.status();
  ASSERT_EQ(calls->parts.size(), 2u);
  EXPECT_FALSE(calls->after);
  int64_t first = 0;
  for (const LinearPart &part : calls->parts) {
    SCOPED_TRACE(first);
    ASSERT_TRUE(part.unpack.has_value());
    // A group of 32 is 4 + 16 bytes, a row of 512 of them 10,240.
    EXPECT_EQ(part.unpack->w, memory + first * 10240);
    EXPECT_EQ(part.unpack->out, args.workspace);
    EXPECT_EQ(part.unpack->k, 16384);
    EXPECT_EQ(part.unpack->activation, Elem::BF16);
    EXPECT_EQ(part.matmul.w, args.workspace);
    EXPECT_EQ(part.matmul.workspace, static_cast<char *>(args.workspace) + unpacked);
    EXPECT_EQ(part.matmul.workspaceBytes, library);
    EXPECT_EQ(part.matmul.y, reinterpret_cast<char *>(result) + 2 * first);
    EXPECT_EQ(part.matmul.bias, reinterpret_cast<char *>(bias) + 2 * first);
    first += part.unpack->rows;
  }
  EXPECT_EQ(toText(calls->parts[0].matmul.shape), "m 8 n 768 of 1500 k 16384 bf16 -> bf16 bias relu");
  EXPECT_EQ(toText(calls->parts[1].matmul.shape), "m 8 n 732 of 1500 k 16384 bf16 -> bf16 bias relu");
}

TEST(MatMul, APackedMatrixThatFitsIsOnePart) {
  kernels::LinearArgs args = linear(Elem::F16, Elem::F32, false, Epilogue::None, true);
  args.packing = {8, 64};
  const LinearCalls calls = split(args);
  ASSERT_EQ(calls.parts.size(), 1u);
  EXPECT_EQ(toText(calls.parts[0].matmul.shape), "m 8 n 96 k 64 f16 -> f32 residual");
}

TEST(MatMul, MatricesThatTheLibraryMayNotCountAreRefused) {
  kernels::LinearArgs args = linear(Elem::BF16, Elem::BF16, false, Epilogue::None);
  args.n = int64_t{1} << 25; // times 64
  const auto calls = splitLinear(args, 4096, FusePolicy::Library);
  EXPECT_EQ(calls.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(calls.status().message()), HasSubstr("its W [33554432, 64] has 2147483648 elements"));
}

} // namespace
} // namespace headrace::cuda
