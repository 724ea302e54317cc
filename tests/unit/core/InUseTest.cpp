// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/InUse.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

namespace headrace::core {
namespace {

constexpr uint64_t kKiB = 1024;

// Blocks [4, 132) of 1 KiB: 128 KiB, a share is 2 blocks.
constexpr SizedCopy kRun{.firstBlock = 4, .blockBytes = kKiB, .bytes = 128 * kKiB};

TEST(InUse, IsAllUnlessSomethingElseIsSaid) {
  EXPECT_EQ(sharesInUse(kRun, InUse{}), (Shares{0, 64}));
  EXPECT_EQ(bytesInUse(kRun, InUse{}), 128 * kKiB);
}

TEST(InUse, ASizeIsTheLeastNumberOf64thsThatHoldTheBlocksInUse) {
  EXPECT_EQ(bytesInUse(kRun, InUse{.kvBlocks = 5}), 2 * kKiB);     // 1 block of 128: 1/64
  EXPECT_EQ(bytesInUse(kRun, InUse{.kvBlocks = 6}), 2 * kKiB);     // 2 of 128: 1/64
  EXPECT_EQ(bytesInUse(kRun, InUse{.kvBlocks = 7}), 4 * kKiB);     // 3 of 128: 1.5/64, so 2
  EXPECT_EQ(bytesInUse(kRun, InUse{.kvBlocks = 68}), 64 * kKiB);   // 64 of 128: 32/64
  EXPECT_EQ(bytesInUse(kRun, InUse{.kvBlocks = 131}), 128 * kKiB); // 127 of 128: 63.5/64, so 64
}

// 1,024 rows of 256 bytes, a share is 16 rows: as many as the launch computes, however many blocks are in use.
TEST(InUse, OfAResidualItIsTheLaunchsRows) {
  constexpr SizedCopy kRows{.blockBytes = 256, .bytes = 1024 * 256, .ofRows = true};
  EXPECT_EQ(bytesInUse(kRows, InUse{.kvBlocks = 7}), 1024u * 256);
  EXPECT_EQ(bytesInUse(kRows, InUse{.kvBlocks = 7, .rows = 16}), 16u * 256);
  EXPECT_EQ(bytesInUse(kRows, InUse{.kvBlocks = 7, .rows = 17}), 32u * 256);
  EXPECT_EQ(bytesInUse(kRows, InUse{.rows = 0}), 16u * 256); // the least there is
  EXPECT_EQ(bytesInUse(kRun, InUse{.kvBlocks = 5, .rows = 16}), 2 * kKiB);
}

// 2^57 - 256 bytes in blocks of 256, from block 0: no product on the way is beyond 64 bits.
TEST(InUse, TheLargestCopyHasItsShares) {
  constexpr uint64_t kMost = (uint64_t{1} << 57) - 256;
  constexpr SizedCopy kLargest{.blockBytes = 256, .bytes = kMost};
  EXPECT_EQ(bytesInUse(kLargest, InUse{}), kMost);
  EXPECT_EQ(sharesInUse(kLargest, InUse{.kvBlocks = 1}), (Shares{0, 1}));
  EXPECT_EQ(sharesInUse(kLargest, InUse{.kvBlocks = int64_t{1} << 48}),
            (Shares{0, 33})); // half of 2^49 blocks, and all are one less
  EXPECT_EQ(sharesInUse(kLargest, InUse{.kvBlocks = (int64_t{1} << 48) - 1}),
            (Shares{0, 32})); // (2^48 - 1) x 64 / (2^49 - 1): 31.99...
  EXPECT_EQ(sharesInUse(kLargest, InUse{.kvBlocks = (int64_t{1} << 49) - 1}), (Shares{0, 64}));
}

// A tail in two copies: the second begins where the first ends.
TEST(InUse, EachCopyCountsFromItsOwnFirstBlock) {
  constexpr SizedCopy kFirst{.firstBlock = 4, .blockBytes = kKiB, .bytes = 64 * kKiB};
  constexpr SizedCopy kSecond{.firstBlock = 68, .blockBytes = kKiB, .bytes = 64 * kKiB};
  EXPECT_EQ(bytesInUse(kFirst, InUse{.kvBlocks = 78}), 64 * kKiB);
  EXPECT_EQ(bytesInUse(kSecond, InUse{.kvBlocks = 78}), 10 * kKiB); // 68 to 77
  EXPECT_EQ(bytesInUse(kFirst, InUse{.kvBlocks = 68}), 64 * kKiB);
  EXPECT_EQ(bytesInUse(kSecond, InUse{.kvBlocks = 68}), kKiB); // none of it: the least there is
}

TEST(InUse, ItIsNeitherNothingNorMoreThanAll) {
  for (const int64_t blocks : {int64_t{-5}, int64_t{0}, int64_t{1}, int64_t{4}}) // none of [4, 132)
    EXPECT_EQ(bytesInUse(kRun, InUse{.kvBlocks = blocks}), 2 * kKiB) << blocks;
  for (const int64_t blocks : {int64_t{132}, int64_t{133}, int64_t{1} << 40, std::numeric_limits<int64_t>::max()})
    EXPECT_EQ(bytesInUse(kRun, InUse{.kvBlocks = blocks}), 128 * kKiB) << blocks;
}

// 10 blocks of 100 bytes: a share is 15.625 bytes.
TEST(InUse, ARunIsAMultipleOf256BytesButWhereItIsAll) {
  const SizedCopy run{.firstBlock = 1, .blockBytes = 100, .bytes = 1000};
  EXPECT_EQ(bytesInUse(run, InUse{.kvBlocks = 2}), 256u);  // 1 of 10: 6.4, so 7 shares: 109.4 bytes
  EXPECT_EQ(bytesInUse(run, InUse{.kvBlocks = 4}), 512u);  // 3 of 10: 20 shares: 312.5
  EXPECT_EQ(bytesInUse(run, InUse{.kvBlocks = 9}), 1000u); // 8 of 10: 52 shares: 812.5, aligned 1024, beyond all
  EXPECT_EQ(bytesInUse(run, InUse{.kvBlocks = 11}), 1000u);
}

TEST(InUse, InterleavedBlocksAreCopiedWhole) {
  SizedCopy rows{.firstBlock = 4, .blockBytes = 100, .bytes = 16 * 100, .wholeBlocks = true};
  EXPECT_EQ(bytesInUse(rows, InUse{.kvBlocks = 0}), 100u); // 1/64 of 16: a quarter of a block
  EXPECT_EQ(bytesInUse(rows, InUse{.kvBlocks = 9}), 500u); // 5 of 16: 20/64
  EXPECT_EQ(bytesInUse(rows, InUse{.kvBlocks = 20}), 1600u);
  rows.bytes = 128 * 100;
  EXPECT_EQ(bytesInUse(rows, InUse{.kvBlocks = 7}), 400u); // 3 of 128: 2/64 are 4
}

// The last block of a run may be a part of one.
RC_GTEST_PROP(InUse, HoldsWhatIsInUseAndNoMoreThanAllInSharesOfIt, ()) {
  const SizedCopy copy{.firstBlock = *rc::gen::inRange<int64_t>(0, 100),
                       .blockBytes = *rc::gen::inRange<uint64_t>(1, 5000),
                       .bytes = *rc::gen::inRange<uint64_t>(1, 1'000'000)};
  SizedCopy rows = copy;
  rows.bytes = (copy.bytes + copy.blockBytes - 1) / copy.blockBytes * copy.blockBytes;
  rows.wholeBlocks = true;
  const InUse inUse{.kvBlocks = *rc::gen::inRange<int64_t>(-10, 2000)};
  for (const SizedCopy &sized : {copy, rows}) {
    const auto [begin, share] = sharesInUse(sized, inUse);
    RC_ASSERT(begin == 0u && share >= 1u && share <= kShares);
    const auto [offset, bytes] = runOf(sized, {begin, share});
    RC_ASSERT(offset == 0u);
    const auto blocks = static_cast<uint64_t>(std::max<int64_t>(0, inUse.kvBlocks - sized.firstBlock));
    RC_ASSERT(bytes > 0u && bytes <= sized.bytes);
    RC_ASSERT(bytes >= std::min(sized.bytes, blocks * sized.blockBytes));
    if (share > 1) // one less would not do
      RC_ASSERT((share - 1) * sized.bytes < blocks * sized.blockBytes * kShares);
    if (sized.wholeBlocks)
      RC_ASSERT(bytes % sized.blockBytes == 0u);
  }
}

// ---- Of what was written

// As kRun, back to the host.
constexpr SizedCopy kBack{.firstBlock = 4, .blockBytes = kKiB, .bytes = 128 * kKiB, .dirtyOnly = true};

TEST(InUse, WhatWasWrittenBeginsAndEndsWithTheSharesThatHoldIt) {
  EXPECT_EQ(runInUse(kBack, InUse{}), (CopyRun{0, 128 * kKiB}));
  // Block 50 alone is number 46: share 23.
  EXPECT_EQ(sharesInUse(kBack, InUse{.writtenBegin = 50, .writtenEnd = 51}), (Shares{23, 24}));
  EXPECT_EQ(runInUse(kBack, InUse{.writtenBegin = 50, .writtenEnd = 51}), (CopyRun{46 * kKiB, 2 * kKiB}));
  // 51 to 53 are numbers 47 to 49: shares 23.5 to 25.
  EXPECT_EQ(runInUse(kBack, InUse{.writtenBegin = 51, .writtenEnd = 54}), (CopyRun{46 * kKiB, 4 * kKiB}));
  EXPECT_EQ(runInUse(kBack, InUse{.writtenBegin = 131, .writtenEnd = 132}),
            (CopyRun{126 * kKiB, 2 * kKiB})); // the last
}

TEST(InUse, OfWhatWasWrittenOnlyWhatIsInTheCopyAndInUse) {
  EXPECT_EQ(runInUse(kBack, InUse{.writtenBegin = 1, .writtenEnd = 6}), (CopyRun{0, 2 * kKiB}));
  EXPECT_EQ(runInUse(kBack, InUse{.writtenBegin = 130, .writtenEnd = 999}), (CopyRun{126 * kKiB, 2 * kKiB}));
  EXPECT_EQ(runInUse(kBack, InUse{.kvBlocks = 54}), (CopyRun{0, 50 * kKiB})); // at most that: 4 to 53
  EXPECT_EQ(runInUse(kBack, InUse{.kvBlocks = 54, .writtenBegin = 51}), (CopyRun{46 * kKiB, 4 * kKiB}));
}

TEST(InUse, WhereNothingOfItWasWrittenTheFirstShareIsCopied) {
  for (const auto &[begin, end] : {std::pair<int64_t, int64_t>{0, 0}, {9, 9}, {20, 10}, {1, 4}, {132, 140}, {-3, -1}})
    EXPECT_EQ(runInUse(kBack, InUse{.writtenBegin = begin, .writtenEnd = end}), (CopyRun{0, 2 * kKiB})) << begin;
  EXPECT_EQ(runInUse(kBack, InUse{.kvBlocks = 50, .writtenBegin = 50}), (CopyRun{0, 2 * kKiB}));
}

// 10 blocks of 100 bytes: a share is 15.625 bytes.
TEST(InUse, ARunBeginsAtAMultipleOf256Bytes) {
  const SizedCopy run{.firstBlock = 1, .blockBytes = 100, .bytes = 1000, .dirtyOnly = true};
  // Block 4 is bytes 300 to 399: shares 19.2 to 25.6, so 19 to 26: bytes 296.875 to 406.25.
  EXPECT_EQ(runInUse(run, InUse{.writtenBegin = 4, .writtenEnd = 5}), (CopyRun{256, 256}));
  // 9: 800 to 899, shares 51 to 58, bytes 796.875 to 906.25; 1024 is beyond all.
  EXPECT_EQ(runInUse(run, InUse{.writtenBegin = 9, .writtenEnd = 10}), (CopyRun{768, 232}));
  SizedCopy rows = run;
  rows.wholeBlocks = true;
  // 4 again: 10 x 19 / 64 is 2.97 blocks, 10 x 26 / 64 is 4.06.
  EXPECT_EQ(runInUse(rows, InUse{.writtenBegin = 4, .writtenEnd = 5}), (CopyRun{200, 300}));
}

TEST(InUse, OfTheLargestCopyAnyBlock) {
  constexpr uint64_t kMost = (uint64_t{1} << 57) - 256;
  constexpr SizedCopy kLargest{.blockBytes = 256, .bytes = kMost, .dirtyOnly = true};
  constexpr int64_t kLast = (int64_t{1} << 49) - 2; // of 2^49 - 1 blocks
  EXPECT_EQ(sharesInUse(kLargest, InUse{.writtenBegin = kLast, .writtenEnd = kLast + 1}), (Shares{63, 64}));
  // 2^57 - 256 bytes are 64 x (2^51 - 4): from 63 x (2^51 - 4) on, which is 252 below a multiple of 256.
  const uint64_t from = 63 * ((uint64_t{1} << 51) - 4) / 256 * 256;
  EXPECT_EQ(runInUse(kLargest, InUse{.writtenBegin = kLast, .writtenEnd = kLast + 1}), (CopyRun{from, kMost - from}));
}

RC_GTEST_PROP(InUse, HoldsWhatWasWrittenInSharesOfIt, ()) {
  const SizedCopy copy{.firstBlock = *rc::gen::inRange<int64_t>(0, 100),
                       .blockBytes = *rc::gen::inRange<uint64_t>(1, 5000),
                       .bytes = *rc::gen::inRange<uint64_t>(1, 1'000'000),
                       .dirtyOnly = true};
  SizedCopy rows = copy;
  rows.bytes = (copy.bytes + copy.blockBytes - 1) / copy.blockBytes * copy.blockBytes;
  rows.wholeBlocks = true;
  const auto first = *rc::gen::inRange<int64_t>(-10, 2000);
  const InUse inUse{.writtenBegin = first, .writtenEnd = first + *rc::gen::inRange<int64_t>(-1, 50)};
  for (const SizedCopy &sized : {copy, rows}) {
    const Shares shares = sharesInUse(sized, inUse);
    RC_ASSERT(shares.begin < shares.end && shares.end <= kShares);
    const CopyRun run = runOf(sized, shares);
    RC_ASSERT(run.bytes > 0u && run.offset < sized.bytes && run.bytes <= sized.bytes - run.offset);
    RC_ASSERT(run.offset % (sized.wholeBlocks ? sized.blockBytes : kSizeAlign) == 0u);
    const auto clipped = [&](int64_t block) {
      return std::min(sized.bytes,
                      static_cast<uint64_t>(std::max<int64_t>(0, block - sized.firstBlock)) * sized.blockBytes);
    };
    const uint64_t from = clipped(inUse.writtenBegin), to = clipped(inUse.writtenEnd);
    if (from >= to) {
      RC_ASSERT((shares == Shares{0, 1}));
      continue;
    }
    RC_ASSERT(run.offset <= from && run.offset + run.bytes >= to);
    // One share more on either side would not be less.
    RC_ASSERT((shares.begin + 1) * sized.bytes > from * kShares);
    RC_ASSERT((shares.end - 1) * sized.bytes < to * kShares);
  }
}

} // namespace
} // namespace headrace::core
