// SPDX-License-Identifier: Apache-2.0
//
// CUDA attention: decode split over the context, packed prefill on tensor cores, the kernel for everything else.
#include "tests/unit/kernels_cuda/PagedText.h"

namespace headrace::kernels {
namespace {

const std::vector<Elem> kHalves = {Elem::F16, Elem::BF16};

// Orders of blocks and threads to run in where the device lets us choose: ascending, descending, and random ones.
std::vector<uint64_t> orders() {
#if defined(HEADRACE_SANITIZED)
  return {2}; // each takes minutes
#else
  return testDevice().emulated() ? std::vector<uint64_t>{0, 1, 2, 3} : std::vector<uint64_t>{0};
#endif
}

std::vector<TextPart> lastRows(const std::vector<PagedText> &texts) {
  std::vector<TextPart> parts;
  for (const PagedText &text : texts)
    parts.push_back({&text, text.length - 1, 1});
  return parts;
}

TEST(CudaAttentionDecode, MatchesTheReferenceForEveryHeadSizeAndGroup) {
  for (Elem elem : kHalves)
    for (AttentionCase c : {AttentionCase{4, 4, 64, 16}, AttentionCase{4, 2, 80, 16}, AttentionCase{7, 1, 96, 32},
                            AttentionCase{8, 2, 128, 5}, AttentionCase{20, 1, 64, 16}}) {
      c.activation = c.kvElem = elem;
      SCOPED_TRACE(c);
      std::vector<PagedText> texts;
      for (int64_t length : {1, 2, 15, 16, 17, 63, 64, 65, 130})
        texts.emplace_back(c, length, 10 * length);
      const std::vector<TextPart> parts = lastRows(texts);
      expectReference(c, parts, runAttention(c, parts, {12, 12, 256}));
      if (HasFatalFailure())
        return;
    }
}

TEST(CudaAttentionDecode, SplitsJoinAtEveryBoundary) {
  for (AttentionCase c : {AttentionCase{4, 1, 64, 16}, AttentionCase{17, 1, 64, 16}, AttentionCase{2, 1, 128, 64}}) {
    SCOPED_TRACE(c);
    std::vector<PagedText> texts;
    for (int64_t length : {511, 512, 513, 1024, 1100})
      texts.emplace_back(c, length, length);
    const std::vector<TextPart> parts = lastRows(texts);
    expectReference(c, parts, runAttention(c, parts, {5, 5, 2048}));
    if (HasFatalFailure())
      return;
  }
}

TEST(CudaAttentionDecode, ARowsBitsDependOnNothingButItsSequence) {
  for (Elem elem : kHalves) {
    const AttentionCase c{6, 2, 64, 16, elem, elem};
    std::vector<PagedText> texts;
    for (int64_t length : {3, 700, 40, 530, 64})
      texts.emplace_back(c, length, length);
    const std::vector<TextPart> parts = lastRows(texts);
    std::vector<AttentionResult> alone;
    for (const TextPart &part : parts)
      alone.push_back(runAttention(c, {part}, {1, 1, 1024}, 7));
    for (uint64_t order : orders())
      for (const CudaShape &bucket : {CudaShape{5, 5, 1024}, CudaShape{16, 16, 3000}}) {
        const AttentionResult batch = runAttention(c, parts, bucket, 20 + order, order);
        for (size_t i = 0; i < parts.size(); ++i)
          ASSERT_EQ(batch.rowBits(i), alone[i].rowBits(0)) << "row " << i << " order " << order;
      }
  }
}

TEST(CudaAttentionDecode, ArrivalsStartAtZeroAgain) {
  // Different numbers of splits at the same row and head, one launch after the other.
  const AttentionCase c{2, 1, 64, 16};
  const PagedText text(c, 1300, 5);
  for (int64_t position : {1299, 600, 1100, 10, 1299}) {
    const std::vector<TextPart> parts = {{&text, position, 1}};
    expectReference(c, parts, runAttention(c, parts, {1, 1, 2048}));
    if (HasFatalFailure())
      return;
  }
}

// Two plans' launches at the same rows and heads, with other numbers of splits, their blocks mixed.
TEST(CudaAttentionDecode, LaunchesOfTwoPlansDoNotDisturbEachOther) {
  const AttentionCase c{4, 2, 64, 16};
  std::vector<PagedText> first, second;
  for (int64_t length : {1300, 600})
    first.emplace_back(c, length, length);
  for (int64_t length : {700, 1600, 520})
    second.emplace_back(c, length, length);
  DeviceArray<uint32_t> firsts(CudaWorkspace::kArrivals, 0u), seconds(CudaWorkspace::kArrivals, 0u);
  for (uint64_t order = 2; order < (testDevice().emulated() ? 8u : 20u); ++order) {
    const PagedAttention one(c, lastRows(first), {2, 2, 2048}, order, firsts);
    const PagedAttention other(c, lastRows(second), {3, 3, 2048}, order + 1, seconds);
    testDevice().run({one.run(), other.run()}, order);
    expectReference(c, lastRows(first), one.result());
    expectReference(c, lastRows(second), other.result());
    if (HasFatalFailure())
      return;
  }
  for (DeviceArray<uint32_t> *arrivals : {&firsts, &seconds})
    for (uint32_t left : arrivals->values())
      ASSERT_EQ(left, 0u);
}

TEST(CudaAttentionDecode, AnIterationWithSeveralRowsOfASequenceFitsADecodeBucket) {
  const AttentionCase c{4, 2, 64, 16};
  const PagedText a(c, 40, 5), b(c, 9, 6);
  const std::vector<TextPart> parts = {{&a, 37, 3}, {&b, 8, 1}};
  expectReference(c, parts, runAttention(c, parts, {8, 8, 512}));
}

// Where the cache's blocks lie does not change a bit: decode, prefill and the kernel for every other type.
TEST(CudaAttention, ASplitCacheDoesNotChangeABit) {
  const AttentionCase odd{3, 1, 20, 16, Elem::F32, Elem::F32};
  for (const AttentionCase &c : {AttentionCase{6, 2, 64, 16}, AttentionCase{4, 2, 80, 7}, odd}) {
    SCOPED_TRACE(c);
    const PagedText a(c, 90, 5), b(c, 40, 6);
    for (const std::vector<TextPart> &parts :
         {std::vector<TextPart>{{&a, 89, 1}, {&b, 39, 1}}, std::vector<TextPart>{{&a, 0, 90}, {&b, 30, 10}}}) {
      const bool decode = parts[0].rows == 1;
      const CudaShape bucket = decode ? CudaShape{2, 2, 256} : CudaShape{112, 2, 256};
      const AttentionResult whole = runAttention(c, parts, bucket);
      for (int64_t split : {0, 1, 3, 8, 1000})
        for (bool tailFirst : {false, true}) {
          const AttentionResult other = runAttention(c, parts, bucket, 1, 0, [&](int64_t blocks, int64_t elements) {
            return splitRun(blocks, elements, split, 3, tailFirst);
          });
          ASSERT_EQ(other.out.bytes, whole.out.bytes) << "split " << split << ", tail first " << tailFirst;
        }
    }
  }
}

TEST(CudaAttentionPrefill, MatchesTheReferenceForPackedSequencesOfEverySize) {
  for (Elem elem : kHalves)
    for (AttentionCase c : {AttentionCase{4, 4, 64, 16}, AttentionCase{4, 2, 80, 7}, AttentionCase{7, 1, 96, 32},
                            AttentionCase{8, 2, 128, 16}}) {
      c.activation = c.kvElem = elem;
      SCOPED_TRACE(c);
      std::vector<PagedText> texts;
      for (int64_t length : {1, 20, 63, 64, 65, 131})
        texts.emplace_back(c, length, 10 * length);
      // Whole prompts, later chunks of prompts, and decoding rows, in one iteration.
      std::vector<TextPart> parts = {{&texts[1], 0, 20}, {&texts[5], 120, 11}, {&texts[0], 0, 1},  {&texts[4], 0, 65},
                                     {&texts[3], 63, 1}, {&texts[2], 1, 62},   {&texts[5], 130, 1}};
      expectReference(c, parts, runAttention(c, parts, {176, 9, 256}));
      if (HasFatalFailure())
        return;
    }
}

// A shape whose launch has tiles of 128 queries: 4 K tokens of 8 query heads. Only what the iteration holds is
// computed.
const CudaShape kLarge{4096, 4, 4096};

TEST(CudaAttentionPrefill, LargeTilesMatchTheReferenceAndTheSmallOnesBits) {
  for (Elem elem : kHalves)
    for (AttentionCase c : {AttentionCase{8, 8, 64, 16}, AttentionCase{8, 4, 128, 16}}) {
      c.activation = c.kvElem = elem;
      SCOPED_TRACE(c);
      AttentionArgs args{};
      args.heads = c.heads, args.kvHeads = c.kvHeads, args.headDim = c.headDim, args.blockTokens = 16;
      args.activation = args.kvElem = elem;
      ASSERT_NE(std::string(cudaLaunch(Op::Attention, &args, kLarge, nullptr).kernel).find("_m128"), std::string::npos);
      const PagedText a(c, 150, 1), b(c, 20, 2);
      const std::vector<TextPart> parts = {{&a, 30, 120}, {&b, 19, 1}};
      const AttentionResult large = runAttention(c, parts, kLarge);
      expectReference(c, {{&a, 30, 3}}, [&] {
        AttentionResult first = large;
        first.rows = 3;
        return first;
      }());
      const AttentionResult small = runAttention(c, parts, {122, 2, 256}, 9, 1);
      for (int64_t row = 0; row < 121; ++row)
        ASSERT_EQ(large.rowBits(row), small.rowBits(row)) << row;
    }
}

// Sequences of one row in a mixed iteration, at one split and at several, beside prompts; and a bucket of large tiles.
TEST(CudaAttentionPrefill, RowsThatDecodeHaveTheirBitsOfADecodeBucket) {
  for (const AttentionCase &c :
       {AttentionCase{8, 2, 128, 16, Elem::BF16, Elem::BF16}, AttentionCase{20, 1, 64, 8, Elem::F16, Elem::F16},
        AttentionCase{3, 3, 80, 16, Elem::F16, Elem::F16}}) {
    SCOPED_TRACE(c);
    const PagedText prompt(c, 70, 11), longer(c, 1100, 12), shorter(c, 300, 13), chunk(c, 600, 14);
    const std::vector<TextPart> decoding = {{&longer, 1099, 1}, {&shorter, 299, 1}, {&shorter, 0, 1}};
    const AttentionResult alone = runAttention(c, decoding, {3, 3, 1536});
    const std::vector<TextPart> mixed = {{&prompt, 0, 70}, decoding[0], {&chunk, 590, 10}, decoding[1], decoding[2]};
    for (const CudaShape &shape : {CudaShape{96, 6, 1536}, CudaShape{8192, 5, 2048}}) {
      const AttentionResult result = runAttention(c, mixed, shape, 3, 2);
      expectReference(c, mixed, result);
      EXPECT_EQ(result.rowBits(70), alone.rowBits(0));
      EXPECT_EQ(result.rowBits(81), alone.rowBits(1));
      EXPECT_EQ(result.rowBits(82), alone.rowBits(2));
    }
  }
}

TEST(CudaAttentionPrefill, ARowsBitsDependOnNothingButItsSequence) {
  const AttentionCase c{3, 1, 64, 16, Elem::BF16, Elem::BF16};
  const PagedText a(c, 150, 1), b(c, 70, 2);
  const AttentionResult whole = runAttention(c, {{&a, 0, 150}}, {150, 1, 256});
  for (uint64_t order : orders()) {
    const AttentionResult mixed = runAttention(c, {{&b, 0, 70}, {&a, 0, 150}}, {256, 4, 512}, 30 + order, order);
    for (int64_t row = 0; row < 150; ++row)
      ASSERT_EQ(mixed.rowBits(70 + row), whole.rowBits(row)) << row << " order " << order;
    // In chunks: positions 97 .. 149 alone.
    const AttentionResult chunk = runAttention(c, {{&a, 97, 53}}, {64, 2, 256}, 40 + order, order);
    for (int64_t row = 97; row < 150; ++row)
      ASSERT_EQ(chunk.rowBits(row - 97), whole.rowBits(row)) << row << " order " << order;
  }
}

TEST(CudaAttentionAny, MatchesTheReferenceForAllTypesAndOddSizes) {
  for (Elem activation : kAllElems)
    for (Elem kvElem : kAllElems)
      for (AttentionCase c : {AttentionCase{3, 3, 7, 5}, AttentionCase{4, 2, 64, 16}, AttentionCase{2, 1, 33, 16},
                              AttentionCase{2, 1, 200, 32}, AttentionCase{1, 1, 256, 16}}) {
        c.activation = activation, c.kvElem = kvElem;
        SCOPED_TRACE(c);
        if (c.headDim == 64 && activation == kvElem && activation != Elem::F32)
          continue; // has a kernel of its own
        const PagedText a(c, 131, 1), b(c, 5, 2);
        std::vector<TextPart> parts = {{&b, 0, 5}, {&a, 125, 6}};
        expectReference(c, parts, runAttention(c, parts, {12, 3, 256}));
        if (HasFatalFailure())
          return;
      }
}

TEST(CudaAttentionAny, ARowsBitsDependOnNothingButItsSequence) {
  const AttentionCase c{2, 1, 24, 16, Elem::F32, Elem::F32};
  const PagedText a(c, 300, 1), b(c, 70, 2);
  const AttentionResult alone = runAttention(c, {{&a, 299, 1}}, {1, 1, 512});
  for (uint64_t order : orders()) {
    const AttentionResult mixed = runAttention(c, {{&b, 60, 10}, {&a, 298, 2}}, {20, 3, 512}, 3 + order, order);
    ASSERT_EQ(mixed.rowBits(11), alone.rowBits(0)) << order;
  }
}

TEST(CudaAttention, AnEmptyIterationWritesNothing) {
  for (const AttentionCase &c : {AttentionCase{4, 2, 64, 16}, AttentionCase{2, 1, 24, 16, Elem::F32, Elem::F32}})
    for (const CudaShape &shape : {CudaShape{4, 4, 512}, CudaShape{8, 2, 512}})
      EXPECT_TRUE(runAttention(c, {}, shape).paddingUntouched);
}

} // namespace
} // namespace headrace::kernels
