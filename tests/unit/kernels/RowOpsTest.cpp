// SPDX-License-Identifier: Apache-2.0
//
// Embed, Norm, Activate, GatherRows, FetchRows and KeepIds: ops that work row by row.
#include "tests/unit/kernels/KernelTest.h"
#include "tests/unit/kernels/Reference.h"

namespace headrace::kernels {
namespace {

TestMeta rowsMeta(int64_t rows) { return TestMeta({{0, rows, {1}}}, 1 << 20); }

HEADRACE_ON_EACH_ISA(EmbedTest);

TEST_P(EmbedTest, CopiesTheTokensRowsInEveryElementTypeAndOrder) {
  for (Elem elem : kAllElems)
    for (Order order : kAllOrders)
      for (int64_t hidden : {1, 8, 21}) {
        const int64_t vocab = 37;
        Matrix table(randomFloats(vocab * hidden, 3), vocab, hidden, elem, order);
        TestMeta meta = rowsMeta(5);
        const int32_t tokens[] = {0, 36, 15, 16, 16};
        std::copy_n(tokens, 5, meta.ints(meta->tokenIds));
        Floats x(5 * hidden, kNan);
        EmbedArgs args{};
        args.meta = meta.get(), args.table = table.stored.data(), args.x = x.data();
        args.vocab = vocab, args.hidden = hidden, args.elem = elem, args.order = order;
        call(Op::Embed, &args);
        for (int64_t i = 0; i < 5 * hidden; ++i)
          ASSERT_EQ(x[i], table.values[tokens[i / hidden] * hidden + i % hidden]);
      }
}

TEST_P(EmbedTest, AddsLearnedPositionsAtTheirOffset) {
  for (Elem elem : kAllElems) {
    const int64_t hidden = 11, offset = 2;
    Matrix table(randomFloats(4 * hidden, 1), 4, hidden, elem, Order::RowMajor);
    Stored positions(elem, randomFloats(10 * hidden, 2));
    TestMeta meta({{5, 3, {1}}}, 1 << 20); // positions 5 6 7: rows 7 8 9
    for (int t = 0; t < 3; ++t)
      meta.ints(meta->tokenIds)[t] = t;
    Floats x(3 * hidden, kNan);
    EmbedArgs args{};
    args.meta = meta.get(), args.table = table.stored.data(), args.positions = positions.data(), args.x = x.data();
    args.vocab = 4, args.hidden = hidden, args.positionOffset = offset, args.elem = elem;
    call(Op::Embed, &args);
    for (int64_t i = 0; i < 3 * hidden; ++i)
      ASSERT_EQ(x[i], static_cast<float>(table.values[i]) + positions.value(7 * hidden + i));
  }
}

TEST_P(EmbedTest, AnIdBelowZeroMeansWhatASlotSampledLastAndIdsAreKept) {
  Matrix table({10, 20, 30, 40}, 4, 1, Elem::F32, Order::Panel16);
  TestMeta meta({{1, 3, {3, 1}}}, 2); // blocks of two tokens; positions 1, 2, 3
  const int32_t tokens[] = {-1, -3, 1}, sampled[] = {3, 9, 2};
  std::copy_n(tokens, 3, meta.ints(meta->tokenIds));
  Floats x(3, kNan);
  std::vector<int32_t> history(8, -7);
  EmbedArgs args{};
  args.meta = meta.get(), args.table = table.stored.data(), args.sampled = sampled, args.x = x.data();
  args.history = history.data();
  args.vocab = 4, args.hidden = 1, args.order = Order::Panel16;
  call(Op::Embed, &args);
  EXPECT_EQ(x, (Floats{40, 30, 20})); // slot 0 sampled 3, slot 2 sampled 2, token 1
  EXPECT_EQ(history, (std::vector<int32_t>{-7, -7, 2, 1, -7, -7, -7, 3})); // behind 3's first, then 1
}

HEADRACE_ON_EACH_ISA(NormTest);

TEST_P(NormTest, MatchesTheReferenceAtEveryLength) {
  for (int64_t hidden : {1, 7, 8, 31, 32, 33, 61, 100, 1000})
    for (bool layerNorm : {false, true}) {
      const int32_t rows = 3;
      Floats x = randomFloats(rows * hidden, 5), weight = randomFloats(hidden, 6), bias = randomFloats(hidden, 7);
      for (float &v : x)
        v = v * 3 + 5; // mean 5: the variance must come from differences
      Floats y(rows * hidden, kNan);
      NormArgs args{};
      args.count = &rows, args.x = x.data(), args.weight = weight.data(), args.bias = layerNorm ? bias.data() : nullptr;
      args.y = y.data(), args.hidden = hidden, args.eps = 1e-5f;
      call(Op::Norm, &args);
      for (int64_t t = 0; t < rows; ++t) {
        const auto row = widen(Floats(x.begin() + t * hidden, x.begin() + (t + 1) * hidden));
        const auto expected = reference::norm(row, widen(weight), layerNorm ? widen(bias) : reference::Values{}, 1e-5f);
        for (int64_t i = 0; i < hidden; ++i)
          ASSERT_NEAR(y[t * hidden + i], expected[i], 3e-6) << "hidden " << hidden << " row " << t << " element " << i;
      }
    }
}

TEST_P(NormTest, RoundNumbers) {
  // RMS: mean of squares of (1, 7, 1, 7) = 100 / 4 = 25, so values / 5. LayerNorm: mean 4, variance 9: (-1, 1, -1, 1).
  const int32_t rows = 1;
  const Floats x = {1, 7, 1, 7}, weight = {5, 5, 10, 10}, bias = {1, 2, 3, 4};
  Floats y(4, kNan);
  NormArgs args{};
  args.count = &rows, args.x = x.data(), args.weight = weight.data(), args.y = y.data(), args.hidden = 4;
  call(Op::Norm, &args);
  const Floats rms = {1, 7, 2, 14}, layer = {-4, 7, -7, 14};
  for (int i = 0; i < 4; ++i)
    EXPECT_NEAR(y[i], rms[i], 1e-5);
  args.bias = bias.data();
  call(Op::Norm, &args);
  for (int i = 0; i < 4; ++i)
    EXPECT_NEAR(y[i], layer[i], 1e-5);
}

TEST_P(NormTest, EpsKeepsAZeroRowFinite) {
  const int32_t rows = 1;
  const Floats x(10, 0.0f), weight(10, 1.0f);
  Floats y(10, kNan);
  NormArgs args{};
  args.count = &rows, args.x = x.data(), args.weight = weight.data(), args.y = y.data(), args.hidden = 10;
  args.eps = 1e-6f;
  call(Op::Norm, &args);
  EXPECT_EQ(y, x);
}

TEST_P(NormTest, MayWorkInPlaceAndARowDoesNotDependOnTheOthers) {
  const int64_t hidden = 45;
  const Floats x = randomFloats(6 * hidden, 5), weight = randomFloats(hidden, 6);
  Floats whole = x;
  auto run = [&](Floats &inOut, int32_t rows) {
    NormArgs args{};
    args.count = &rows, args.x = inOut.data(), args.y = inOut.data(), args.weight = weight.data(), args.hidden = hidden;
    args.eps = 1e-5f;
    call(Op::Norm, &args);
  };
  run(whole, 6);
  for (int64_t t = 0; t < 6; ++t) {
    Floats row(x.begin() + t * hidden, x.begin() + (t + 1) * hidden);
    run(row, 1);
    EXPECT_TRUE(sameBits(row.data(), whole.data() + t * hidden, hidden));
  }
}

HEADRACE_ON_EACH_ISA(ActivateTest);

Floats activate(HostIsa isa, const Floats &gateUp, int64_t n) {
  const int32_t rows = static_cast<int32_t>(gateUp.size() / (2 * n));
  Floats y(rows * n, kNan);
  ActivateArgs args{&rows, gateUp.data(), y.data(), n, Elem::F32};
  runKernel(Op::Activate, isa, &args);
  return y;
}

TEST_P(ActivateTest, IsSiluOfTheGateTimesUp) {
  for (int64_t n : {1, 8, 19}) {
    Floats gateUp = randomFloats(3 * 2 * n, 4);
    for (float &v : gateUp)
      v *= 20;
    const Floats y = activate(GetParam(), gateUp, n);
    for (int64_t i = 0; i < 3 * n; ++i) {
      const double gate = gateUp[i / n * 2 * n + i % n], up = gateUp[i / n * 2 * n + n + i % n];
      const double expected = reference::silu(gate) * up;
      ASSERT_NEAR(y[i], expected, 3e-7 * std::abs(expected) + 1e-30);
    }
  }
}

TEST_P(ActivateTest, SiluIsWithinThreeUlpUntilItVanishes) {
  Floats gateUp;
  for (float x = -104; x <= 104; x += 0.0137f)
    gateUp.push_back(x);
  const int64_t n = static_cast<int64_t>(gateUp.size());
  gateUp.resize(2 * n, 1.0f);
  const Floats y = activate(GetParam(), gateUp, n);
  for (int64_t i = 0; i < n; ++i) {
    const double expected = reference::silu(gateUp[i]);
    // 2^-23 relative is one ulp at most. Below -88.7 1 + e^-x overflows and the result is zero instead of -3e-37.
    ASSERT_NEAR(y[i], expected, 3 * 0x1p-23 * std::abs(expected) + (gateUp[i] < -88.7f ? 3e-37 : 0)) << gateUp[i];
  }
}

TEST_P(ActivateTest, ExtremesHaveTheirLimits) {
  const Floats gates = {0, 1e30f, -1e30f, INFINITY, kNan};
  Floats gateUp = gates;
  gateUp.resize(10, 1.0f);
  const Floats y = activate(GetParam(), gateUp, 5);
  EXPECT_EQ(y[0], 0);
  EXPECT_EQ(y[1], 1e30f);
  EXPECT_EQ(y[2], 0);
  EXPECT_EQ(y[3], INFINITY);
  EXPECT_TRUE(std::isnan(y[4]));
}

TEST_P(ActivateTest, AnElementDoesNotDependOnItsPlace) {
  const Floats gateUp = randomFloats(2 * 37, 4);
  const Floats whole = activate(GetParam(), gateUp, 37);
  for (int64_t i = 0; i < 37; ++i)
    EXPECT_TRUE(sameBits(activate(GetParam(), {gateUp[i], gateUp[37 + i]}, 1).data(), &whole[i], 1));
}

// Blocks of columns begin and end anywhere in a list of rows.
TEST_P(ActivateTest, AnyCutInAnyOrderGivesTheSameBits) {
  for (const int64_t n : {1, 511, 512, 513, 1500, 5000}) {
    const Floats gateUp = randomFloats(7 * 2 * n, 4);
    EXPECT_TRUE(sameInTeams([&] { return bitsOf(activate(GetParam(), gateUp, n)); })) << n;
  }
}

// Tokens to the residual stream, its norm, and rows of that.
HEADRACE_ON_EACH_ISA(RowsTest);
TEST_P(RowsTest, AnyCutInAnyOrderGivesTheSameBits) {
  const int64_t hidden = 45, vocab = 50;
  const int32_t rows = 37;
  const Floats weight = randomFloats(hidden, 6);
  for (const Elem elem : kAllElems) {
    Matrix table(randomFloats(vocab * hidden, 3), vocab, hidden, elem, Order::Panel16);
    EXPECT_TRUE(sameInTeams([&] {
      TestMeta meta = rowsMeta(rows);
      meta->numSampled = 1;
      meta.ints(meta->sampleRow)[0] = 30;
      for (int32_t t = 0; t < rows; ++t)
        meta.ints(meta->tokenIds)[t] = t * 7 % vocab;
      Floats x(rows * hidden, kNan), y(rows * hidden, kNan), gathered(hidden, kNan);
      EmbedArgs embed{};
      embed.meta = meta.get(), embed.table = table.stored.data(), embed.x = x.data();
      embed.vocab = vocab, embed.hidden = hidden, embed.elem = elem, embed.order = Order::Panel16;
      call(Op::Embed, &embed);
      NormArgs norm{};
      norm.count = &rows, norm.x = x.data(), norm.y = y.data(), norm.weight = weight.data(), norm.hidden = hidden;
      norm.eps = 1e-5f;
      call(Op::Norm, &norm);
      GatherRowsArgs gather{meta.get(), y.data(), gathered.data(), hidden};
      call(Op::GatherRows, &gather);
      return std::tuple(bitsOf(x), bitsOf(y), bitsOf(gathered));
    })) << int(elem);
  }
}

HEADRACE_ON_EACH_ISA(GatherRowsTest);

TEST_P(GatherRowsTest, CopiesTheSampledRows) {
  TestMeta meta({{0, 3, {1}}, {0, 2, {2}}}, 1 << 20);
  meta->numSampled = 2;
  meta.ints(meta->sampleRow)[0] = 2;
  meta.ints(meta->sampleRow)[1] = 4;
  const Floats x = {0, 1, 2, 10, 11, 12, 20, 21, 22, 30, 31, 32, 40, 41, 42};
  Floats y(9, 7.0f);
  GatherRowsArgs args{meta.get(), x.data(), y.data(), 3};
  call(Op::GatherRows, &args);
  EXPECT_EQ(y, (Floats{20, 21, 22, 40, 41, 42, 7, 7, 7}));
}

HEADRACE_ON_EACH_ISA(FetchRowsTest);

TEST_P(FetchRowsTest, CopiesTheRowsThatThereAre) {
  TestMeta meta({{0, 2, {1}}}, 1 << 20);
  const Floats x = {0, 1, 2, 10, 11, 12, 20, 21, 22};
  Floats y(9, 7.0f);
  FetchRowsArgs args{};
  args.meta = meta.get(), args.x = x.data(), args.y = y.data(), args.columns = 3;
  call(Op::FetchRows, &args);
  EXPECT_EQ(y, (Floats{0, 1, 2, 10, 11, 12, 7, 7, 7}));
}

HEADRACE_ON_EACH_ISA(KeepIdsTest);

// Two sequences in blocks of two tokens: two rows from position 1 on, where ids of before are, then one.
TEST_P(KeepIdsTest, KeepsEachRowsIdWhereItsKeyIs) {
  TestMeta meta({{1, 2, {3, 1}}, {0, 1, {2}}}, 2);
  const int32_t tokens[] = {-3, 5, 7}, sampled[] = {3, 9, 2};
  std::copy_n(tokens, 3, meta.ints(meta->tokenIds));
  std::vector<int32_t> history(8, -7);
  const KeepIdsArgs args{meta.get(), sampled, history.data()};
  call(Op::KeepIds, &args);
  // Block 3's second token, block 1's first; block 2's first.
  EXPECT_EQ(history, (std::vector<int32_t>{-7, -7, 5, -7, 7, -7, -7, 2}));
  meta->numTokens = 0;
  history.assign(8, -7);
  call(Op::KeepIds, &args);
  EXPECT_EQ(history, std::vector<int32_t>(8, -7));
}

TEST_P(KeepIdsTest, KeepsWhatEmbedKeepsHoweverItIsCut) {
  const int32_t rows = 1000, slots = 1024;
  const std::vector<int32_t> sampled = {11, 12, 13};
  const std::vector<float> table(40, 1.0f);
  TestMeta meta({{3, rows, {0}}}, slots);
  for (int32_t t = 0; t < rows; ++t)
    meta.ints(meta->tokenIds)[t] = t % 5 == 0 ? -1 - t % 3 : t * 7 % 40;
  std::vector<int32_t> wanted(slots, -7);
  Floats x(rows);
  EmbedArgs embed{};
  embed.meta = meta.get(), embed.table = table.data(), embed.sampled = sampled.data(), embed.history = wanted.data();
  embed.x = x.data(), embed.vocab = 40, embed.hidden = 1;
  call(Op::Embed, &embed);
  EXPECT_TRUE(sameInTeams([&] {
    std::vector<int32_t> history(slots, -7);
    const KeepIdsArgs args{meta.get(), sampled.data(), history.data()};
    call(Op::KeepIds, &args);
    EXPECT_EQ(history, wanted);
    return history;
  }));
}

} // namespace
} // namespace headrace::kernels
