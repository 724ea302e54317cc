// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>

#include "tests/unit/kernels/KernelTest.h"
#include "tests/unit/kernels/Reference.h"

namespace headrace::kernels {
namespace {

// Everything one call needs; y starts as NaN, the workspace too.
struct Case {
  int64_t rows, n, k, capacity;
  Elem elem = Elem::F32;
  Order order = Order::Panel16;
  Epilogue epilogue = Epilogue::None;
  bool withBias = true, withResidual = false;
  uint64_t seed = 1;
};

struct Problem {
  Case c;
  Floats x, bias, residual;
  Matrix *bias16 = nullptr; // in the place of `bias`
  Matrix w;

  explicit Problem(const Case &given)
      : c(given), x(randomFloats(given.rows * given.k, given.seed)), bias(randomFloats(given.n, given.seed + 1)),
        residual(randomFloats(given.rows * given.n, given.seed + 2)),
        w(randomFloats(given.n * given.k, given.seed + 3), given.n, given.k, given.elem, given.order) {}

  // Rows [first, first + count) with the given capacity.
  Floats run(HostIsa isa, int64_t first, int64_t count, int64_t capacity, bool inPlace = false) {
    const int64_t n = c.n;
    Floats y(count * n, kNan);
    Floats workspace(linearWorkspaceBytes(Backend::Host, capacity, n, c.k) / sizeof(float), kNan);
    if (inPlace)
      y.assign(residual.begin() + first * n, residual.begin() + (first + count) * n);
    const int32_t rows = static_cast<int32_t>(count);
    LinearArgs args{};
    args.count = &rows;
    args.x = x.data() + first * c.k;
    args.w = w.stored.data();
    args.bias = c.withBias ? bias.data() : nullptr;
    if (bias16 != nullptr)
      args.bias = bias16->stored.data(), args.biasElem = bias16->stored.elem;
    args.residual = !c.withResidual ? nullptr : inPlace ? y.data() : residual.data() + first * n;
    args.y = y.data();
    args.workspace = workspace.data();
    args.n = n, args.k = c.k, args.capacity = capacity;
    args.elem = c.elem, args.order = c.order, args.epilogue = c.epilogue;
    runKernel(Op::Linear, isa, &args, workspace.size() * sizeof(float));
    return y;
  }
  Floats run(HostIsa isa) { return run(isa, 0, c.rows, c.capacity); }

  // An element may differ from the exact sum by 3e-6 of the sum of the terms' magnitudes (50 roundings of 2^-24).
  void expectNear(const Floats &y) const {
    const reference::Values expected =
        reference::linear(widen(x), w.values, c.withBias ? widen(bias) : reference::Values{},
                          c.withResidual ? widen(residual) : reference::Values{}, c.epilogue, c.rows, c.n, c.k);
    for (int64_t i = 0; i < c.rows * c.n; ++i) {
      double magnitude = 2;
      for (int64_t j = 0; j < c.k; ++j)
        magnitude += std::abs(x[i / c.n * c.k + j] * w.values[i % c.n * c.k + j]);
      ASSERT_NEAR(y[i], expected[i], 3e-6 * magnitude) << "row " << i / c.n << " column " << i % c.n;
    }
  }
};

HEADRACE_ON_EACH_ISA(LinearTest);

TEST_P(LinearTest, EveryElementTypeAndOrderMatchesTheReferenceAtOddSizes) {
  for (Elem elem : kAllElems)
    for (Order order : kAllOrders)
      for (int64_t rows : {1, 2, 3, 4, 5, 6, 7, 13, 24, 25, 31})
        for (auto [n, k] : {std::pair<int64_t, int64_t>{1, 1}, {17, 5}, {33, 261}, {70, 515}}) {
          SCOPED_TRACE(testing::Message() << "elem " << int(elem) << " order " << int(order) << " rows " << rows
                                          << " n " << n << " k " << k);
          Problem p({.rows = rows, .n = n, .k = k, .capacity = rows, .elem = elem, .order = order});
          p.expectNear(p.run(GetParam()));
          if (HasFatalFailure())
            return;
        }
}

TEST_P(LinearTest, RowBlocksAndColumnGroupsMatchTheReference) {
  // 200 rows: one block of 192 and one of 8; 300 columns: one group of 256 and one of 44.
  Problem p({.rows = 200, .n = 300, .k = 300, .capacity = 256, .elem = Elem::BF16, .withResidual = true});
  p.expectNear(p.run(GetParam()));
}

TEST_P(LinearTest, EpilogueComesAfterTheBiasAndBeforeTheResidual) {
  for (Epilogue epilogue : {Epilogue::None, Epilogue::Relu, Epilogue::Gelu, Epilogue::GeluTanh})
    for (int64_t rows : {2, 9, 30}) {
      SCOPED_TRACE(testing::Message() << "epilogue " << int(epilogue) << " rows " << rows);
      Problem p({.rows = rows, .n = 21, .k = 40, .capacity = rows, .epilogue = epilogue, .withResidual = true});
      p.expectNear(p.run(GetParam()));
    }
}

TEST_P(LinearTest, ExactSmallIntegers) {
  // x = (1 2 3), w = rows (1 0 2) and (-1 1 1), bias (10 -10): y = (1 + 6 + 10, -1 + 2 + 3 - 10) = (17, -6); relu: 0.
  Floats x = {1, 2, 3}, bias = {10, -10}, y(2, kNan);
  Matrix w({1, 0, 2, -1, 1, 1}, 2, 3, Elem::F16, Order::Panel16);
  const int32_t rows = 1;
  LinearArgs args{};
  args.count = &rows, args.x = x.data(), args.w = w.stored.data(), args.bias = bias.data(), args.y = y.data();
  args.n = 2, args.k = 3, args.capacity = 1, args.elem = Elem::F16, args.order = Order::Panel16;
  call(Op::Linear, &args);
  EXPECT_EQ(y, (Floats{17, -6}));
  args.epilogue = Epilogue::Relu;
  call(Op::Linear, &args);
  EXPECT_EQ(y, (Floats{17, 0}));
}

// 16 bits are exact in F32. The bias is as long as the matrix has rows with padding.
TEST_P(LinearTest, ABiasOf16BitsIsItsValuesInF32) {
  for (Elem elem : {Elem::F16, Elem::BF16})
    for (int64_t n : {1, 8, 21, 33}) {
      Problem p({.rows = 3, .n = n, .k = 40, .capacity = 3, .epilogue = Epilogue::Relu});
      Matrix bias(p.bias, n, 1, elem, Order::RowMajor);
      for (int64_t i = 0; i < n; ++i)
        p.bias[i] = static_cast<float>(bias.values[i]);
      const Floats wide = p.run(GetParam());
      p.bias16 = &bias;
      const Floats y = p.run(GetParam());
      EXPECT_TRUE(sameBits(y.data(), wide.data(), y.size())) << n;
    }
}

TEST_P(LinearTest, ResidualMayBeTheOutput) {
  for (int64_t rows : {1, 6, 17, 40}) {
    Problem p({.rows = rows, .n = 37, .k = 300, .capacity = rows, .withResidual = true});
    const Floats apart = p.run(GetParam()), inPlace = p.run(GetParam(), 0, rows, rows, true);
    EXPECT_TRUE(sameBits(apart.data(), inPlace.data(), apart.size())) << rows << " rows";
  }
}

TEST_P(LinearTest, RowsBeyondTheCountAreNeitherReadNorWritten) {
  for (int64_t rows : {0, 3, 20, 30}) {
    const int64_t n = 20, k = 33, capacity = 40;
    Floats x(capacity * k, kNan), y(capacity * n, 7.0f);
    Floats valid = randomFloats(rows * k, 5);
    std::copy(valid.begin(), valid.end(), x.begin());
    Matrix w(randomFloats(n * k, 6), n, k, Elem::F32, Order::Panel16);
    Floats workspace(linearWorkspaceBytes(Backend::Host, capacity, n, k) / sizeof(float), kNan);
    const int32_t count = static_cast<int32_t>(rows);
    LinearArgs args{};
    args.count = &count, args.x = x.data(), args.w = w.stored.data(), args.y = y.data();
    args.workspace = workspace.data(), args.n = n, args.k = k, args.capacity = capacity;
    args.order = Order::Panel16;
    call(Op::Linear, &args);
    for (int64_t i = 0; i < rows * n; ++i)
      EXPECT_FALSE(std::isnan(y[i]));
    for (int64_t i = rows * n; i < capacity * n; ++i)
      EXPECT_EQ(y[i], 7.0f);
  }
}

TEST_P(LinearTest, NanInARowStaysInThatRow) {
  for (int64_t rows : {4, 12, 36}) {
    Problem p({.rows = rows, .n = 18, .k = 20, .capacity = rows, .epilogue = Epilogue::Relu});
    p.x[2 * 20 + 3] = kNan;
    const Floats y = p.run(GetParam());
    for (int64_t i = 0; i < rows * 18; ++i)
      EXPECT_EQ(std::isnan(y[i]), i / 18 == 2);
  }
}

TEST_P(LinearTest, BothOrdersGiveTheSameBits) {
  for (Elem elem : kAllElems)
    for (int64_t rows : {1, 2, 6, 7, 24, 25, 50}) {
      Problem panels({.rows = rows, .n = 45, .k = 531, .capacity = rows, .elem = elem});
      Problem rowMajor({.rows = rows, .n = 45, .k = 531, .capacity = rows, .elem = elem, .order = Order::RowMajor});
      const Floats a = panels.run(GetParam()), b = rowMajor.run(GetParam());
      EXPECT_TRUE(sameBits(a.data(), b.data(), a.size())) << "elem " << int(elem) << " rows " << rows;
    }
}

// Weights that BF16 and F16 hold exactly give the same bits in every element type: conversion adds nothing.
TEST_P(LinearTest, ElementTypesAgreeOnWeightsThatAllOfThemHold) {
  Problem f32({.rows = 5, .n = 50, .k = 300, .capacity = 5});
  Floats coarse(50 * 300);
  for (size_t i = 0; i < coarse.size(); ++i)
    coarse[i] = static_cast<float>(static_cast<int>(i * 37 % 255) - 127) / 64;
  f32.w = Matrix(coarse, 50, 300, Elem::F32, Order::Panel16);
  const Floats expected = f32.run(GetParam());
  for (Elem elem : {Elem::F16, Elem::BF16}) {
    f32.c.elem = elem;
    f32.w = Matrix(coarse, 50, 300, elem, Order::Panel16);
    const Floats y = f32.run(GetParam());
    EXPECT_TRUE(sameBits(y.data(), expected.data(), y.size())) << int(elem);
  }
}

TEST_P(LinearTest, ARowAloneEqualsTheRowInEveryNumberOfRowsFromOneTo200) {
  for (Elem elem : kAllElems) {
    Problem p({.rows = 200, .n = 35, .k = 270, .capacity = 200, .elem = elem});
    Floats alone;
    for (int64_t r = 0; r < 200; ++r) {
      const Floats y = p.run(GetParam(), r, 1, 1);
      alone.insert(alone.end(), y.begin(), y.end());
    }
    for (int64_t rows = 1; rows <= 200; ++rows) {
      const Floats y = p.run(GetParam(), 0, rows, rows);
      ASSERT_TRUE(sameBits(y.data(), alone.data(), y.size())) << "elem " << int(elem) << " rows " << rows;
    }
  }
}

RC_GTEST_PROP(LinearProperty, ARowAloneEqualsTheRowInEveryBatchAndCapacity, ()) {
  const auto isa = *rc::gen::elementOf(testedIsas());
  Case c{};
  c.rows = *rc::gen::inRange<int64_t>(1, 201);
  c.capacity = c.rows + *rc::gen::inRange<int64_t>(0, 100);
  c.n = *rc::gen::inRange<int64_t>(1, 80);
  c.k = *rc::gen::inRange<int64_t>(1, 600);
  c.elem = *rc::gen::elementOf(kAllElems);
  c.order = *rc::gen::elementOf(kAllOrders);
  c.epilogue = *rc::gen::element(Epilogue::None, Epilogue::Relu, Epilogue::Gelu);
  c.withBias = *rc::gen::arbitrary<bool>();
  c.withResidual = *rc::gen::arbitrary<bool>();
  c.seed = *rc::gen::arbitrary<uint32_t>();
  Problem p(c);
  const Floats whole = p.run(isa);
  const int64_t first = *rc::gen::inRange<int64_t>(0, c.rows);
  const int64_t count = *rc::gen::inRange<int64_t>(1, c.rows - first + 1);
  const int64_t capacity = count + *rc::gen::inRange<int64_t>(0, 300);
  const Floats part = p.run(isa, first, count, capacity);
  RC_ASSERT(sameBits(part.data(), whole.data() + first * c.n, part.size()));
  const Floats alone = p.run(isa, first, 1, 1);
  RC_ASSERT(sameBits(alone.data(), whole.data() + first * c.n, alone.size()));
}

RC_GTEST_PROP(LinearProperty, AnyCutInAnyOrderGivesTheSameBits, ()) {
  const auto isa = *rc::gen::elementOf(testedIsas());
  Case c{};
  c.rows = *rc::gen::element<int64_t>(1, 2, 5, 6, 7, 30, 191, 193, 400);
  c.capacity = c.rows + *rc::gen::element<int64_t>(0, 9);
  c.n = *rc::gen::inRange<int64_t>(1, 600);
  c.k = *rc::gen::inRange<int64_t>(1, 600);
  c.elem = *rc::gen::elementOf(kAllElems);
  c.order = *rc::gen::elementOf(kAllOrders);
  c.withResidual = *rc::gen::arbitrary<bool>();
  c.seed = *rc::gen::arbitrary<uint32_t>();
  Problem p(c);
  RC_ASSERT(sameInTeams([&] { return bitsOf(p.run(isa, 0, c.rows, c.capacity, c.withResidual)); }, c.seed));
}

TEST(LinearPaths, PortableAndAvx2AgreeWithinRounding) {
  if (!isaSupported(HostIsa::Avx2))
    GTEST_SKIP() << "this machine has one path only";
  for (int64_t rows : {3, 20, 100}) {
    Problem p({.rows = rows, .n = 50, .k = 700, .capacity = rows, .elem = Elem::F16});
    const Floats a = p.run(HostIsa::Portable), b = p.run(HostIsa::Avx2);
    for (size_t i = 0; i < a.size(); ++i)
      ASSERT_NEAR(a[i], b[i], 2e-4); // sums of about 700 / 4 in magnitude: 1e-6 of it
  }
}

// One row, rows of a tile and more than one, columns of a whole group of panels and a rest, sums of several K-blocks.
TEST(LinearPaths, Avx512GivesTheBitsOfAvx2) {
  if (!isaSupported(HostIsa::Avx512))
    GTEST_SKIP() << "this machine has no AVX-512";
  for (const Elem elem : kAllElems)
    for (const Order order : kAllOrders)
      for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 100, 200}) {
        Problem p({.rows = rows, .n = 300, .k = 600, .capacity = rows, .elem = elem, .order = order});
        EXPECT_EQ(bitsOf(p.run(HostIsa::Avx512)), bitsOf(p.run(HostIsa::Avx2))) << rows << " rows";
      }
}

TEST(LinearWorkspace, IsBoundedByATileAndZeroForDecode) {
  EXPECT_EQ(linearWorkspaceBytes(Backend::Host, 6, 11008, 4096), 0u);
  // 192 rows of 272 packed values and 256 sums: 192 * 528 * 4 = 405504.
  EXPECT_EQ(linearWorkspaceBytes(Backend::Host, 192, 11008, 4096), 405504u);
  EXPECT_EQ(linearWorkspaceBytes(Backend::Host, 8192, 151936, 8192), 405504u);
  // 30 rows of 8 + 16 packed values and 32 sums: 30 * 56 * 4 = 6720.
  EXPECT_EQ(linearWorkspaceBytes(Backend::Host, 30, 20, 8), 6720u);
}

} // namespace
} // namespace headrace::kernels
