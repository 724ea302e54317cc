// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/kernels/KernelTest.h"
#include "tests/unit/kernels/Reference.h"

namespace headrace::kernels {
namespace {

// Llama's inverse frequencies: theta^(-2 j / headDim).
Floats llamaFrequencies(int64_t headDim, double theta = 500000) {
  Floats f(headDim / 2);
  for (int64_t j = 0; j < headDim / 2; ++j)
    f[j] = static_cast<float>(1 / std::pow(theta, 2.0 * j / headDim));
  return f;
}

struct Model {
  int64_t heads = 3, kvHeads = 2, headDim = 22, blockTokens = 4;
  Elem elem = Elem::F32;
  int64_t rowLength() const { return (heads + 2 * kvHeads) * headDim; }
};

struct Result {
  Floats qkv;
  Stored kv;
};

Result run(HostIsa isa, const Model &s, TestMeta &meta, const Floats &qkv, const Floats *frequencies, int64_t blocks,
           const Floats *headNorms = nullptr, const KvSegments *where = nullptr, TestHome *home = nullptr) {
  const KvSegments segments =
      where != nullptr ? *where : oneRun(blocks, kvBlockElements(s.kvHeads, s.blockTokens, s.headDim));
  Result r{qkv, Stored(s.elem, Floats(segments.end, 99.0f))};
  RopeAppendArgs args{};
  args.meta = meta.get(), args.qkv = r.qkv.data(), args.kv = r.kv.data(), args.segments = segments;
  args.inverseFrequencies = frequencies != nullptr ? frequencies->data() : nullptr;
  args.heads = s.heads, args.kvHeads = s.kvHeads, args.headDim = s.headDim, args.blockTokens = s.blockTokens;
  args.headNorms = headNorms != nullptr ? headNorms->data() : nullptr;
  args.eps = 1e-2f;
  args.kvElem = s.elem;
  if (home != nullptr)
    args.home = home->data(), args.homeFirst = home->first, args.homeEnd = home->end, args.homeStride = home->stride;
  runKernel(Op::RopeAppend, isa, &args);
  return r;
}

HEADRACE_ON_EACH_ISA(RopeAppendTest);

TEST_P(RopeAppendTest, RotatesQAndKByThePositionAndLeavesVAlone) {
  for (int64_t headDim : {2, 6, 22, 128, 600}) {
    Model s{.headDim = headDim};
    const Floats frequencies = llamaFrequencies(headDim);
    // Positions 3, 4 and 8000, 8001: far positions turn fast dimensions over a thousand times.
    TestMeta meta({{3, 2, {1, 2}}, {8000, 2, std::vector<int32_t>(2001, 2)}}, s.blockTokens, 2001);
    const Floats qkv = randomFloats(4 * s.rowLength(), 7);
    const Floats out = run(GetParam(), s, meta, qkv, &frequencies, 3).qkv;
    const int64_t positions[] = {3, 4, 8000, 8001};
    for (int64_t t = 0; t < 4; ++t)
      for (int64_t head = 0; head < s.heads + 2 * s.kvHeads; ++head) {
        const int64_t start = t * s.rowLength() + head * headDim;
        reference::Values x(qkv.begin() + start, qkv.begin() + start + headDim);
        if (head < s.heads + s.kvHeads)
          x = reference::rotate(x, frequencies, positions[t]);
        for (int64_t d = 0; d < headDim; ++d)
          ASSERT_NEAR(out[start + d], x[d], 5e-7) << "row " << t << " head " << head << " element " << d;
      }
  }
}

TEST_P(RopeAppendTest, NormalisesEachHeadOfQAndKBeforeItTurns) {
  for (const bool rotated : {true, false})
    for (int64_t headDim : {2, 6, 22, 128, 600}) {
      Model s{.headDim = headDim};
      const Floats frequencies = llamaFrequencies(headDim), weights = randomFloats(2 * headDim, 17);
      TestMeta meta({{3, 2, {1, 2}}, {8000, 2, std::vector<int32_t>(2001, 2)}}, s.blockTokens, 2001);
      const Floats qkv = randomFloats(4 * s.rowLength(), 7);
      const Result result = run(GetParam(), s, meta, qkv, rotated ? &frequencies : nullptr, 3, &weights);
      const int64_t positions[] = {3, 4, 8000, 8001};
      for (int64_t t = 0; t < 4; ++t)
        for (int64_t head = 0; head < s.heads + 2 * s.kvHeads; ++head) {
          const int64_t start = t * s.rowLength() + head * headDim;
          reference::Values x(qkv.begin() + start, qkv.begin() + start + headDim);
          if (head < s.heads + s.kvHeads) {
            const auto weight = weights.begin() + (head < s.heads ? 0 : headDim);
            x = reference::norm(x, reference::Values(weight, weight + headDim), {}, 1e-2f);
            x = rotated ? reference::rotate(x, frequencies, positions[t]) : x;
          }
          for (int64_t d = 0; d < headDim; ++d)
            ASSERT_NEAR(result.qkv[start + d], x[d], 3e-6) << "row " << t << " head " << head << " element " << d;
        }
    }
}

TEST_P(RopeAppendTest, QuarterTurnSwapsTheHalves) {
  // Angle pi / 2 at position 1: (1, 2) becomes (-2, 1).
  Model s{.heads = 1, .kvHeads = 1, .headDim = 2, .blockTokens = 4};
  TestMeta meta({{1, 1, {1}}}, 4);
  const Floats frequencies = {static_cast<float>(M_PI / 2)};
  const Floats out = run(GetParam(), s, meta, {1, 2, 3, 4, 5, 6}, &frequencies, 2).qkv;
  const Floats expected = {-2, 1, -4, 3, 5, 6};
  for (int i = 0; i < 6; ++i)
    EXPECT_NEAR(out[i], expected[i], 5e-7);
}

TEST_P(RopeAppendTest, WithoutFrequenciesNothingTurns) {
  Model s;
  TestMeta meta({{5, 3, {1, 2}}}, s.blockTokens);
  const Floats qkv = randomFloats(3 * s.rowLength(), 8);
  EXPECT_EQ(run(GetParam(), s, meta, qkv, nullptr, 3).qkv, qkv);
}

TEST_P(RopeAppendTest, KeysAndValuesLandInTheirSlotsRoundedToNearest) {
  for (Elem elem : kAllElems) {
    Model s{.elem = elem};
    TestMeta meta({{2, 4, {3, 1}}}, s.blockTokens); // positions 2 3 | 4 5: block 3 rows 2 3, block 1 rows 0 1
    const Floats frequencies = llamaFrequencies(s.headDim);
    const int64_t elements = kvBlockElements(s.kvHeads, s.blockTokens, s.headDim);
    for (const KvSegments &segments :
         {oneRun(4, elements), splitRun(4, elements, 2, 3, false), splitRun(4, elements, 3, 2, true)}) {
      const Result r =
          run(GetParam(), s, meta, randomFloats(4 * s.rowLength(), 9), &frequencies, 4, nullptr, &segments);
      std::vector<bool> written(r.kv.size());
      const int64_t block[] = {3, 3, 1, 1}, line[] = {2, 3, 0, 1};
      for (int64_t t = 0; t < 4; ++t)
        for (int64_t plane = 0; plane < 2 * s.kvHeads; ++plane) // k of each head, then v of each head
          for (int64_t d = 0; d < s.headDim; ++d) {
            const size_t at = segments.of(block[t]) + (plane * s.blockTokens + line[t]) * s.headDim + d;
            Stored expected(elem, Floats{r.qkv[t * s.rowLength() + (s.heads + plane) * s.headDim + d]});
            ASSERT_EQ(r.kv.value(at), expected.value(0));
            written[at] = true;
          }
      const float untouched = Stored(elem, Floats{99.0f}).value(0);
      for (size_t i = 0; i < r.kv.size(); ++i)
        ASSERT_TRUE(written[i] || r.kv.value(i) == untouched);
    }
  }
}

TEST_P(RopeAppendTest, TheHomeHasTheRowsOfItsBlocksAsTheCacheHasThem) {
  for (Elem elem : kAllElems) {
    Model s{.elem = elem};
    TestMeta meta({{2, 4, {3, 1}}, {0, 1, {2}}, {0, 1, {0}}}, s.blockTokens); // the last row is padding
    const std::vector<TestSlot> slots = {{3, 2}, {3, 3}, {1, 0}, {1, 1}, {2, 0}, {0, 0}};
    const Floats frequencies = llamaFrequencies(s.headDim), qkv = randomFloats(6 * s.rowLength(), 9);
    const int64_t elements = kvBlockElements(s.kvHeads, s.blockTokens, s.headDim);
    for (int64_t split = 0; split <= 4; ++split)
      for (int64_t i = 0; i < 2 * 5 * 5; ++i) {
        const int64_t first = i / 2 % 5, end = i / 10; // 4, and an end that is not behind it: of no block
        const KvSegments segments = splitRun(4, elements, split, 3, i % 2 == 1);
        TestHome home(elem, 4, first, elements);
        home.end = end;
        const Result without = run(GetParam(), s, meta, qkv, &frequencies, 4, nullptr, &segments);
        const Result with = run(GetParam(), s, meta, qkv, &frequencies, 4, nullptr, &segments, &home);
        ASSERT_TRUE(sameBits(with.qkv.data(), without.qkv.data(), with.qkv.size()));
        ASSERT_EQ(with.kv.bytes, without.kv.bytes);
        ASSERT_EQ(home.stored.bytes,
                  home.expected(with.kv, segments, slots, 2 * s.kvHeads, s.blockTokens, s.headDim).bytes);
      }
  }
}

// What the device and the CPU do one behind the other, to the bit.
TEST_P(RopeAppendTest, RotateAndAppendAreItsHalves) {
  for (Elem elem : kAllElems) {
    Model s{.elem = elem};
    TestMeta meta({{2, 4, {3, 1}}, {8000, 1, std::vector<int32_t>(2001, 2)}}, s.blockTokens, 2001);
    const Floats frequencies = llamaFrequencies(s.headDim), norms = randomFloats(2 * s.headDim, 17);
    const Floats qkv = randomFloats(5 * s.rowLength(), 9);
    const KvSegments segments = splitRun(4, kvBlockElements(s.kvHeads, s.blockTokens, s.headDim), 2, 3, false);
    for (const auto &[turns, normed] : {std::pair(true, false), {false, true}, {true, true}}) {
      const Result whole =
          run(GetParam(), s, meta, qkv, turns ? &frequencies : nullptr, 4, normed ? &norms : nullptr, &segments);
      Result halves{qkv, Stored(s.elem, Floats(segments.end, 99.0f))};
      RotateArgs rotate{};
      rotate.meta = meta.get(), rotate.qkv = halves.qkv.data();
      rotate.inverseFrequencies = turns ? frequencies.data() : nullptr;
      rotate.headNorms = normed ? norms.data() : nullptr, rotate.eps = 1e-2f;
      rotate.heads = s.heads, rotate.kvHeads = s.kvHeads, rotate.headDim = s.headDim;
      runKernel(Op::Rotate, GetParam(), &rotate);
      EXPECT_TRUE(sameBits(halves.qkv.data(), whole.qkv.data(), whole.qkv.size()));
      AppendArgs append{};
      append.meta = meta.get(), append.qkv = halves.qkv.data(), append.kv = halves.kv.data();
      append.segments = segments, append.kvElem = s.elem;
      append.heads = s.heads, append.kvHeads = s.kvHeads, append.headDim = s.headDim;
      append.blockTokens = s.blockTokens;
      runKernel(Op::Append, GetParam(), &append);
      EXPECT_EQ(halves.kv.bytes, whole.kv.bytes);
    }
  }
}

// Rows of a CUDA plan: those of F32 that hold the same values. Heads of more elements than are widened at a time.
TEST_P(RopeAppendTest, RowsOfSixteenBitsAreAppendedAsTheirValues) {
  for (const Elem activation : {Elem::F16, Elem::BF16})
    for (const Elem elem : kAllElems)
      for (const int64_t headDim : {6, 64, 300}) {
        const Model s{.headDim = headDim, .elem = elem};
        TestMeta meta({{2, 4, {3, 1}}}, s.blockTokens);
        const Stored rows(activation, randomFloats(4 * s.rowLength(), 9));
        Floats values(rows.size());
        for (size_t i = 0; i < values.size(); ++i)
          values[i] = rows.value(i);
        const KvSegments segments = splitRun(4, kvBlockElements(s.kvHeads, s.blockTokens, headDim), 2, 3, false);
        AppendArgs args{};
        args.meta = meta.get(), args.segments = segments, args.kvElem = elem;
        args.heads = s.heads, args.kvHeads = s.kvHeads, args.headDim = headDim, args.blockTokens = s.blockTokens;
        Stored wide(elem, Floats(segments.end, 99.0f)), narrow = wide;
        args.qkv = values.data(), args.kv = wide.data();
        runKernel(Op::Append, GetParam(), &args);
        args.qkv = rows.bytes.data(), args.kv = narrow.data(), args.activation = activation;
        runKernel(Op::Append, GetParam(), &args);
        EXPECT_EQ(narrow.bytes, wide.bytes) << "types " << int(activation) << " " << int(elem) << ", " << headDim;
      }
}

TEST_P(RopeAppendTest, PaddedRowsWriteToTheScratchBlock) {
  Model s{.heads = 1, .kvHeads = 1, .headDim = 2, .blockTokens = 4};
  TestMeta meta({{0, 2, {1}}}, 4);
  meta.ints(meta->kvSlot)[1] = 0; // the second row is padding: block 0, row 0
  const Result r = run(GetParam(), s, meta, {0, 0, 1, 2, 3, 4, 0, 0, kNan, 6, 7, 8}, nullptr, 2);
  EXPECT_TRUE(std::isnan(r.kv.value(0))); // scratch: whatever the padded row held
  EXPECT_EQ(r.kv.value(16), 1.0f);        // block 1 starts at 2 * 4 * 2 = 16: k of row 0
  EXPECT_EQ(r.kv.value(16 + 2), 99.0f);   // its row 1 is untouched
}

// Every value that rounding treats differently goes through the vector conversions and must agree with Half.h.
TEST_P(RopeAppendTest, NarrowingAgreesWithTheScalarConversionsOnAllKindsOfValues) {
  std::vector<uint32_t> bits;
  for (uint32_t exponent = 0; exponent < 256; ++exponent)
    for (uint32_t mantissa : {0x0u, 0x1u, 0xfffu, 0x1000u, 0x1001u, 0x3000u, 0x7fffu, 0x8000u, 0x8001u, 0x18000u,
                              0x400000u, 0x7fefffu, 0x7ff000u, 0x7fffffu})
      for (uint32_t sign : {0u, 0x80000000u})
        bits.push_back(sign | exponent << 23 | mantissa);
  Model s{.heads = 1, .kvHeads = 1, .headDim = static_cast<int64_t>(bits.size()), .blockTokens = 1};
  Floats qkv(3 * bits.size());
  for (size_t i = 0; i < bits.size(); ++i)
    qkv[bits.size() + i] = qkv[2 * bits.size() + i] = floatFromBits(bits[i]);
  for (Elem elem : {Elem::F16, Elem::BF16}) {
    s.elem = elem;
    TestMeta meta({{0, 1, {0}}}, 1);
    Result r = run(GetParam(), s, meta, qkv, nullptr, 1);
    for (size_t i = 0; i < bits.size(); ++i) {
      uint16_t half;
      std::memcpy(&half, &r.kv.bytes[2 * i], 2);
      const float v = floatFromBits(bits[i]);
      ASSERT_EQ(half, elem == Elem::F16 ? f16FromFloat(v) : bf16FromFloat(v)) << std::hex << bits[i];
    }
  }
}

TEST_P(RopeAppendTest, ARowDoesNotDependOnTheOthers) {
  Model s;
  const Floats frequencies = llamaFrequencies(s.headDim), qkv = randomFloats(8 * s.rowLength(), 12);
  TestMeta all({{10, 8, std::vector<int32_t>(5, 1)}}, s.blockTokens);
  const Floats weights = randomFloats(2 * s.headDim, 13);
  for (const Floats *norms : {static_cast<const Floats *>(nullptr), &weights}) {
    const Floats whole = run(GetParam(), s, all, qkv, &frequencies, 3, norms).qkv;
    for (int64_t t = 0; t < 8; ++t) {
      TestMeta one({{10 + t, 1, std::vector<int32_t>(5, 2)}}, s.blockTokens);
      const Floats row(qkv.begin() + t * s.rowLength(), qkv.begin() + (t + 1) * s.rowLength());
      const Floats alone = run(GetParam(), s, one, row, &frequencies, 3, norms).qkv;
      EXPECT_TRUE(sameBits(alone.data(), whole.data() + t * s.rowLength(), alone.size()));
    }
  }
}

} // namespace
} // namespace headrace::kernels
