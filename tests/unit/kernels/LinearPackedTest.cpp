// SPDX-License-Identifier: Apache-2.0
//
// Packed operands: the bits of a product with the F32 matrix of the values that they stand for.
#include <gtest/gtest.h>

#include "tests/unit/kernels/KernelTest.h"

namespace headrace::kernels {
namespace {

struct PackedCase {
  int64_t rows, n, k;
  Packing packing;
  Epilogue epilogue = Epilogue::None;
  bool withResidual = false;
};

struct PackedProblem {
  PackedCase c;
  Floats x, bias, residual;
  PackedMatrix w;
  Matrix values;

  explicit PackedProblem(const PackedCase &given)
      : c(given), x(randomFloats(c.rows * c.k, 1)), bias(randomFloats(c.n, 2)), residual(randomFloats(c.rows * c.n, 3)),
        w(c.n, c.k, c.packing, 4), values(w.values, c.n, c.k, Elem::F32, Order::Panel16) {}

  Floats run(HostIsa isa, bool packed) {
    const auto rows = static_cast<int32_t>(c.rows);
    Floats y(c.rows * c.n, kNan);
    Floats workspace(linearWorkspaceBytes(Backend::Host, c.rows, c.n, c.k) / sizeof(float), kNan);
    LinearArgs args{};
    args.count = &rows, args.x = x.data(), args.y = y.data(), args.workspace = workspace.data();
    args.w = values.stored.data();
    if (packed)
      args.w = w.bytes.data(), args.packing = c.packing, args.elem = Elem::BF16; // which says nothing
    args.bias = bias.data(), args.residual = c.withResidual ? residual.data() : nullptr;
    args.n = c.n, args.k = c.k, args.capacity = c.rows;
    args.order = Order::Panel16, args.epilogue = c.epilogue;
    runKernel(Op::Linear, isa, &args, workspace.size() * sizeof(float));
    return y;
  }
};

constexpr Packing kPackings[] = {{8, 32}, {8, 64}, {8, 128}, {4, 32}, {4, 64}, {4, 128}};

HEADRACE_ON_EACH_ISA(LinearPackedTest);

TEST_P(LinearPackedTest, IsTheProductWithTheValuesBitForBit) {
  for (const Packing &packing : kPackings)
    for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 13, 31})
      for (const int64_t n : {1, 17, 70, 100})
        for (const int64_t groups : {1, 3, 5}) { // 32 to 640: parts of a block of 256, whole ones, and both
          SCOPED_TRACE(testing::Message() << "bits " << packing.codeBits << " group " << packing.group << " rows "
                                          << rows << " n " << n << " groups " << groups);
          PackedProblem p({rows, n, groups * packing.group, packing});
          ASSERT_EQ(bitsOf(p.run(GetParam(), true)), bitsOf(p.run(GetParam(), false)));
        }
}

TEST_P(LinearPackedTest, RowBlocksAndColumnGroupsToo) {
  for (const Packing &packing : kPackings) {
    PackedProblem p({200, 300, 640, packing, Epilogue::Gelu, true});
    EXPECT_EQ(bitsOf(p.run(GetParam(), true)), bitsOf(p.run(GetParam(), false)));
  }
}

TEST_P(LinearPackedTest, IsTheSameInTeams) {
  for (const int64_t rows : {1, 5, 40}) {
    PackedProblem p({rows, 300, 320, {4, 64}, Epilogue::None, true});
    EXPECT_TRUE(sameInTeams([&] { return bitsOf(p.run(GetParam(), true)); })) << rows;
  }
}

TEST_P(LinearPackedTest, ExactSmallIntegers) {
  // A group of 32 codes 0 to 15 twice in steps of 2 from -3: -3, -1, ... 27. x is 1 for codes 0, 1 and 15, else 0, and
  // 10 for the second 15: -3 - 1 + 27 + 10 x 27 = 293.
  std::vector<uint8_t> w(64 + 32 * 8);
  const uint16_t scale = f16FromFloat(2), min = f16FromFloat(-3);
  std::memcpy(&w[2 * 9], &scale, 2); // row 9: upper halves of bytes 1
  std::memcpy(&w[32 + 2 * 9], &min, 2);
  Floats x(32, 0.0f), y(10, kNan);
  for (int c = 0; c < 32; ++c)
    w[64 + c * 8 + 1] = static_cast<uint8_t>(c % 16 << 4);
  x[0] = x[1] = x[15] = 1, x[31] = 10;
  const int32_t rows = 1;
  LinearArgs args{};
  args.count = &rows, args.x = x.data(), args.w = w.data(), args.y = y.data();
  args.n = 10, args.k = 32, args.capacity = 1, args.order = Order::Panel16, args.packing = {4, 32};
  call(Op::Linear, &args);
  EXPECT_EQ(y, (Floats{0, 0, 0, 0, 0, 0, 0, 0, 0, 293}));
}

} // namespace
} // namespace headrace::kernels
