// SPDX-License-Identifier: Apache-2.0
//
// Index arithmetic of the CUDA attention kernels against plain loops.
#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "kernels/AttentionTiles.h"
#include "tests/unit/kernels/KernelTest.h"

namespace headrace::kernels {
namespace {

RC_GTEST_PROP(AttentionTiles, EveryQueryIsInExactlyOneTile, ()) {
  const int64_t group = *rc::gen::inRange<int64_t>(1, 20), tileQueries = *rc::gen::element<int64_t>(1, 16, 64, 128);
  const std::vector<int32_t> rows = *rc::gen::container<std::vector<int32_t>>(rc::gen::inRange(1, 200));
  std::vector<int32_t> queryStart = {0};
  for (int32_t n : rows)
    queryStart.push_back(queryStart.back() + n);
  const int32_t sequences = static_cast<int32_t>(rows.size());
  // The grid is for a bucket that is at least as large.
  const int64_t tokens = queryStart.back() + *rc::gen::inRange(0, 100), bucket = sequences + *rc::gen::inRange(0, 5);
  std::map<int32_t, std::vector<bool>> seen;
  for (int32_t s = 0; s < sequences; ++s)
    seen[s].resize(rows[s] * group);
  for (int64_t tile = 0; tile < queryTiles(tokens, bucket, group, tileQueries); ++tile) {
    const QueryTile t = queryTile(queryStart.data(), sequences, group, tileQueries, tile);
    if (t.sequence < 0)
      continue;
    RC_ASSERT(t.sequence < sequences);
    RC_ASSERT(t.count > 0 && t.count <= tileQueries);
    RC_ASSERT(t.first % tileQueries == 0); // so that a row's place in its tile does not depend on the batch
    for (int32_t i = t.first; i < t.first + t.count; ++i) {
      RC_ASSERT(!seen[t.sequence].at(i));
      seen[t.sequence][i] = true;
    }
  }
  for (const auto &[sequence, queries] : seen)
    for (const bool one : queries)
      RC_ASSERT(one);
}

TEST(AttentionTiles, TheLargestIterationOfABucketFillsItsTiles) {
  // 4 sequences of 64 rows, 2 heads a group, tiles of 128 queries: floor(256 * 2 / 128) + 4 = 8 tiles, 4 of them empty.
  const int32_t queryStart[] = {0, 64, 128, 192, 256};
  EXPECT_EQ(queryTiles(256, 4, 2, 128), 8);
  std::vector<int32_t> sequences;
  for (int64_t tile = 0; tile < 8; ++tile)
    sequences.push_back(queryTile(queryStart, 4, 2, 128, tile).sequence);
  EXPECT_EQ(sequences, (std::vector<int32_t>{0, -1, 1, -1, 2, -1, 3, -1}));
}

TEST(AttentionTiles, NoSequencesNoWork) {
  const int32_t queryStart[] = {0};
  for (int64_t tile = 0; tile < 3; ++tile)
    EXPECT_EQ(queryTile(queryStart, 0, 4, 64, tile).sequence, -1);
}

TEST(AttentionTiles, SplitsCoverEveryTokenOnce) {
  for (int64_t reach : {0, 1, 511, 512, 513, 1024, 1025, 5000}) {
    int64_t next = 0;
    for (int64_t split = 0; split < 12; ++split) {
      const TokenRange range = splitRange(split, reach);
      if (range.begin >= range.end) {
        EXPECT_GE(split, CudaWorkspace::splits(reach));
        continue;
      }
      EXPECT_LT(split, CudaWorkspace::splits(reach));
      EXPECT_EQ(range.begin, next);
      EXPECT_EQ(range.begin % CudaWorkspace::kSplitTokens, 0);
      next = range.end;
    }
    EXPECT_EQ(next, reach);
  }
}

TEST(AttentionTiles, SplitScratchIsApartAndInsideTheWorkspace) {
  const SplitScratch at{3, 5, 4, 8}; // rows, heads, splits, headDim
  std::set<int64_t> used;
  for (int64_t row = 0; row < 3; ++row)
    for (int64_t head = 0; head < 5; ++head)
      for (int64_t split = 0; split < 4; ++split) {
        for (int64_t d = 0; d < 8; ++d)
          EXPECT_TRUE(used.insert(at.sums(row, head, split) + d).second);
        EXPECT_TRUE(used.insert(at.totals(row, head, split)).second);
        EXPECT_TRUE(used.insert(at.totals(row, head, split) + 1).second);
        EXPECT_EQ(at.sums(row, head, split) % 4, 0); // read 16 bytes at a time
      }
  const uint64_t bytes = CudaWorkspace::attentionBytes(3, 5, 8, 4 * CudaWorkspace::kSplitTokens);
  EXPECT_EQ(used.size() * sizeof(float), bytes);
  EXPECT_EQ((*used.rbegin() + 1) * sizeof(float), bytes);
}

RC_GTEST_PROP(AttentionTiles, KeysAndValuesAreWhereTheSegmentsSay, ()) {
  const int64_t kvHeads = *rc::gen::inRange(1, 9), blockTokens = *rc::gen::inRange(1, 40),
                headDim = 16 * *rc::gen::inRange(1, 17);
  const std::vector<int32_t> blocks = *rc::gen::container<std::vector<int32_t>>(8, rc::gen::inRange(0, 1000));
  const int64_t token = *rc::gen::inRange<int64_t>(0, 8 * blockTokens), kvHead = *rc::gen::inRange<int64_t>(0, kvHeads);
  const int64_t elements = kvBlockElements(kvHeads, blockTokens, headDim);
  const KvSegments segments = *rc::gen::arbitrary<bool>()
                                  ? oneRun(1000, elements)
                                  : splitRun(1000, elements, *rc::gen::inRange<int64_t>(0, 1100),
                                             *rc::gen::inRange<int64_t>(1, 5), *rc::gen::arbitrary<bool>());
  RC_ASSERT(countsInUnits(segments));
  // A block: [k = 0, v = 1][kvHead][token in block][headDim]
  const auto at = [&](int64_t kOrV) {
    return segments.of(blocks[token / blockTokens]) +
           ((kOrV * kvHeads + kvHead) * blockTokens + token % blockTokens) * headDim;
  };
  const CacheUnits units(segments, kvHeads, blockTokens, headDim);
  const int64_t key = units.keyOf(blocks.data(), static_cast<uint32_t>(token), static_cast<uint32_t>(kvHead));
  RC_ASSERT(key * kCacheUnit == at(0));
  RC_ASSERT((key + units.valuesAfter()) * kCacheUnit == at(1));
}

// Three blocks of 8 elements 16 apart, two more from 100 on; and one run.
TEST(KvSegments, SayWhereABlockBegins) {
  const KvSegments two{.start = 4, .stride = 16, .tail = 100, .tailStride = 8, .split = 3, .end = 116};
  EXPECT_EQ(two.of(0), 4);
  EXPECT_EQ(two.of(2), 36);
  EXPECT_EQ(two.of(3), 100);
  EXPECT_EQ(two.of(4), 108);
  EXPECT_TRUE(two.multipleOf(4));
  EXPECT_FALSE(two.multipleOf(8));
  const KvSegments one = oneRun(5, 8);
  EXPECT_EQ(one.of(4), 32);
  EXPECT_EQ(one.end, 40);
}

TEST(AttentionTiles, RowsInSharedMemoryAreAlignedAndFreeOfBankConflicts) {
  for (int64_t headDim = 16; headDim <= 256; headDim += 16) {
    const int64_t bytes = paddedRowBytes(headDim);
    EXPECT_EQ(bytes % 16, 0);
    EXPECT_GE(bytes, headDim * 2);
    std::set<int64_t> banks; // 16-byte groups of the 128 bytes that one cycle serves
    for (int64_t row = 0; row < 8; ++row)
      banks.insert(row * bytes % 128 / 16);
    EXPECT_EQ(banks.size(), 8u) << headDim;
  }
}

TEST(AttentionTiles, SharedMemoryFitsEveryArchitecture) {
  for (int64_t headDim : {64, 80, 96, 128}) {
    constexpr int64_t kLeast = 99 << 10; // of sm_86, sm_89 and sm_120: 99 KiB a block
    EXPECT_LE(DecodeTiles::sharedBytes(headDim), kLeast);
    EXPECT_LE(DecodeTiles::mergeBytes(headDim), DecodeTiles::sharedBytes(headDim));
    EXPECT_LE(PrefillTiles::sharedBytes(headDim, 1), kLeast);
    EXPECT_LE(PrefillTiles::sharedBytes(headDim, 2), kLeast);
  }
  EXPECT_EQ(headTiles(1), 1);
  EXPECT_EQ(headTiles(16), 1);
  EXPECT_EQ(headTiles(17), 2);
}

} // namespace
} // namespace headrace::kernels
