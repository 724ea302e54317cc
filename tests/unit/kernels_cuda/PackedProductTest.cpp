// SPDX-License-Identifier: Apache-2.0
//
// The product for a few rows with packed weights: that of the operands which unpacking gives.
#include <cmath>

#include "kernels/CudaWorkspace.h"
#include "tests/unit/kernels/Reference.h"
#include "tests/unit/kernels_cuda/TestDevice.h"

namespace headrace::kernels {
namespace {

struct PackedProductCase {
  int64_t rows, n, k;
  Packing packing;
  Elem elem;
  bool biased = false, toF32 = false, residual = false;
  Epilogue epilogue = Epilogue::None;
};
std::ostream &operator<<(std::ostream &out, const PackedProductCase &c) {
  return out << c.rows << " x " << c.n << " x " << c.k << ", " << c.packing.codeBits << " bits in groups of "
             << c.packing.group << ", type " << int(c.elem) << (c.biased ? ", bias" : "") << (c.toF32 ? ", F32" : "")
             << (c.residual ? ", residual" : "") << ", epilogue " << int(c.epilogue);
}

struct PackedProductProblem {
  PackedProductCase c;
  Elem result;
  PackedMatrix matrix;
  Stored w, x, bias; // w: as unpacking gives it
  Floats residual;

  explicit PackedProductProblem(const PackedProductCase &given)
      : c(given), result(c.toF32 ? Elem::F32 : c.elem), matrix(c.n, c.k, c.packing, 4, Order::RowMajor),
        w(c.elem, matrix.values), x(c.elem, randomFloats(static_cast<size_t>(c.rows * c.k), 1)),
        bias(result, randomFloats(static_cast<size_t>(c.n), 2)),
        residual(randomFloats(static_cast<size_t>(c.rows * c.n), 3)) {}

  // Rows [first, first + count) as an iteration of `capacity`; y's rows behind them stay as they were.
  Stored run(int64_t first, int64_t count, int64_t capacity, uint64_t order = 0) const {
    const size_t width = static_cast<size_t>(c.k) * 2;
    std::vector<uint8_t> rows(static_cast<size_t>(capacity) * width, 0xff);
    std::copy_n(x.bytes.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(first) * width),
                static_cast<size_t>(count) * width, rows.begin());
    DeviceArray<uint8_t> deviceX(rows), deviceW(matrix.bytes), deviceBias(bias.bytes);
    Floats added(static_cast<size_t>(capacity * c.n), kNan);
    std::copy_n(residual.begin() + first * c.n, count * c.n, added.begin());
    DeviceArray<float> deviceResidual(added);
    DeviceArray<int32_t> deviceCount(1, static_cast<int32_t>(count));
    DeviceStored y(result, static_cast<size_t>(capacity * c.n), 7.0f);
    LinearArgs args{};
    args.count = deviceCount.get(), args.x = deviceX.get(), args.w = deviceW.get(), args.y = y.data();
    args.bias = c.biased ? deviceBias.get() : nullptr;
    args.residual = c.residual ? deviceResidual.get() : nullptr;
    args.n = c.n, args.k = c.k, args.capacity = capacity, args.order = Order::RowMajor, args.epilogue = c.epilogue;
    args.activation = c.elem, args.result = args.biasElem = result, args.packing = c.packing;
    runKernel(cudaLaunch(args), args, order);
    Stored out;
    out.elem = result, out.bytes = y.raw();
    return out;
  }
};

void expectProduct(const PackedProductCase &c) {
  SCOPED_TRACE(c);
  const PackedProductProblem p(c);
  const Stored y = p.run(0, c.rows, CudaWorkspace::kPackedProductRows, 1);
  for (int64_t t = 0; t < CudaWorkspace::kPackedProductRows; ++t)
    for (int64_t n = 0; n < c.n; ++n) {
      const float found = y.value(static_cast<size_t>(t * c.n + n));
      if (t >= c.rows) {
        ASSERT_EQ(found, 7.0f);
        continue;
      }
      double sum = 0, magnitude = 0;
      for (int64_t k = 0; k < c.k; ++k) {
        const double term =
            double{p.x.value(static_cast<size_t>(t * c.k + k))} * double{p.w.value(static_cast<size_t>(n * c.k + k))};
        sum += term, magnitude += std::abs(term);
      }
      if (c.biased)
        sum += p.bias.value(static_cast<size_t>(n));
      double expected = reference::activation(c.epilogue, sum);
      if (c.residual)
        expected += p.residual[static_cast<size_t>(t * c.n + n)];
      ASSERT_NEAR(found, expected, 4e-6 + magnitude * 0x1p-20 + roundingOf(p.result) * std::abs(expected))
          << "row " << t << " column " << n;
    }
}

TEST(CudaPackedProduct, IsTheProductWithTheUnpackedOperands) {
  for (const Elem elem : {Elem::F16, Elem::BF16})
    for (const Packing &packing :
         {Packing{8, 32}, Packing{8, 64}, Packing{8, 128}, Packing{4, 32}, Packing{4, 64}, Packing{4, 128}})
      for (const int64_t groups : {1, 3, 10}) { // a part of a step, of a turn of the warps, and several turns
        expectProduct({1, 16, groups * packing.group, packing, elem});
        expectProduct({5, 37, groups * packing.group, packing, elem, true, true});
        expectProduct({8, 64, groups * packing.group, packing, elem, true, false});
        if (HasFatalFailure())
          return;
      }
}

TEST(CudaPackedProduct, EpiloguesAndTheResidualAreAsTheOpHasThem) {
  for (const Epilogue epilogue : {Epilogue::None, Epilogue::Relu, Epilogue::Gelu, Epilogue::GeluTanh})
    for (const bool biased : {false, true}) {
      expectProduct({3, 32, 192, {4, 64}, Elem::BF16, biased, false, false, epilogue});
      expectProduct({3, 32, 192, {8, 64}, Elem::F16, biased, true, false, epilogue});
    }
  expectProduct({8, 48, 192, {4, 64}, Elem::F16, true, true, true});
}

TEST(CudaPackedProduct, ARowsBitsDependOnNothingButItsX) {
  const PackedProductProblem p({8, 32, 1088, {4, 64}, Elem::BF16, true, true, true});
  const Stored all = p.run(0, 8, 8);
  for (const uint64_t order : {0, 1, 2})
    for (int64_t t = 0; t < 8; ++t) {
      const Stored alone = p.run(t, 1, t % 2 == 0 ? 1 : 8, order);
      for (int64_t n = 0; n < 32; ++n) {
        const float a = alone.value(static_cast<size_t>(n)), b = all.value(static_cast<size_t>(t * 32 + n));
        ASSERT_TRUE(sameBits(&a, &b, 1)) << "row " << t << " column " << n;
      }
    }
}

// 128 codes of 4 bits in steps of 2 from -3, 0, 1, ... 15, 0, ...: one column of x at a time finds each weight.
TEST(CudaPackedProduct, EveryColumnOfWMeetsItsColumnOfX) {
  for (const int bits : {4, 8}) {
    const int64_t k = 128, n = 16;
    const Packing packing{bits, 64};
    std::vector<uint8_t> w;
    const auto code = [&](int64_t row, int64_t c) { return static_cast<uint8_t>((row * 5 + c * 3) % (1 << bits)); };
    for (int64_t row = 0; row < n; ++row)
      for (int64_t g = 0; g < k; g += 64) {
        const uint16_t head[2] = {f16FromFloat(2), f16FromFloat(-3)};
        const auto *bytes = reinterpret_cast<const uint8_t *>(head);
        w.insert(w.end(), bytes, bytes + 4);
        for (int64_t c = g; c < g + 64; c += bits == 8 ? 1 : 2)
          w.push_back(static_cast<uint8_t>(bits == 8 ? code(row, c) : code(row, c) | code(row, c + 1) << 4));
      }
    DeviceArray<uint8_t> deviceW(w);
    DeviceArray<int32_t> count(1, 8);
    for (int64_t c = 0; c < k; c += 8) { // row t of x is one at column c + t
      Floats x(static_cast<size_t>(8 * k), 0.0f);
      for (int64_t t = 0; t < 8; ++t)
        x[static_cast<size_t>(t * k + c + t)] = 1;
      DeviceStored deviceX(Elem::F16, x), y(Elem::F32, static_cast<size_t>(8 * n), 7.0f);
      LinearArgs args{};
      args.count = count.get(), args.x = deviceX.data(), args.w = deviceW.get(), args.y = y.data();
      args.n = n, args.k = k, args.capacity = 8, args.order = Order::RowMajor, args.activation = Elem::F16;
      args.result = args.biasElem = Elem::F32, args.packing = packing;
      runKernel(cudaLaunch(args), args);
      const Floats found = y.values();
      for (int64_t t = 0; t < 8; ++t)
        for (int64_t row = 0; row < n; ++row)
          ASSERT_EQ(found[static_cast<size_t>(t * n + row)], 2.0f * code(row, c + t) - 3) << row << " " << c + t;
    }
  }
}

} // namespace
} // namespace headrace::kernels
