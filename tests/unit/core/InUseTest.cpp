// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/InUse.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

namespace headrace::core {
namespace {

constexpr uint64_t kKiB = 1024;

// Blocks [4, 516) of 1 KiB: 512 KiB, a share is 2 blocks.
constexpr SizedCopy kRun{.firstBlock = 4, .blockBytes = kKiB, .bytes = 512 * kKiB};

TEST(InUse, IsAllUnlessSomethingElseIsSaid) {
  EXPECT_EQ(sharesInUse(kRun, InUse{}), (Shares{0, 256}));
  EXPECT_EQ(bytesInUse(kRun, InUse{}), 512 * kKiB);
}

TEST(InUse, ASizeIsTheLeastNumberOf256thsThatHoldTheBlocksInUse) {
  EXPECT_EQ(bytesInUse(kRun, InUse{.kvBlocks = 5}), 2 * kKiB);     // 1 block of 512: half a 256th
  EXPECT_EQ(bytesInUse(kRun, InUse{.kvBlocks = 6}), 2 * kKiB);     // 2 of 512: 1/256
  EXPECT_EQ(bytesInUse(kRun, InUse{.kvBlocks = 7}), 4 * kKiB);     // 3 of 512: 1.5/256, so 2
  EXPECT_EQ(bytesInUse(kRun, InUse{.kvBlocks = 260}), 256 * kKiB); // 256 of 512: 128/256
  EXPECT_EQ(bytesInUse(kRun, InUse{.kvBlocks = 515}), 512 * kKiB); // 511 of 512: 255.5/256, so 256
}

// 4,096 rows of 256 bytes, a share is 16 rows: as many as the launch computes, however many blocks are in use.
TEST(InUse, OfAResidualItIsTheLaunchsRows) {
  constexpr SizedCopy kRows{.blockBytes = 256, .bytes = 4096 * 256, .ofRows = true};
  EXPECT_EQ(bytesInUse(kRows, InUse{.kvBlocks = 7}), 4096u * 256);
  EXPECT_EQ(bytesInUse(kRows, InUse{.kvBlocks = 7, .rows = 16}), 16u * 256);
  EXPECT_EQ(bytesInUse(kRows, InUse{.kvBlocks = 7, .rows = 17}), 32u * 256);
  EXPECT_EQ(bytesInUse(kRows, InUse{.rows = 0}), 16u * 256); // the least there is
  EXPECT_EQ(bytesInUse(kRun, InUse{.kvBlocks = 5, .rows = 16}), 2 * kKiB);
}

// 2^55 - 256 bytes in blocks of 256, from block 0: no product on the way is beyond 64 bits.
TEST(InUse, TheLargestCopyHasItsShares) {
  constexpr uint64_t kMost = (uint64_t{1} << 55) - 256;
  constexpr SizedCopy kLargest{.blockBytes = 256, .bytes = kMost};
  EXPECT_EQ(bytesInUse(kLargest, InUse{}), kMost);
  EXPECT_EQ(sharesInUse(kLargest, InUse{.kvBlocks = 1}), (Shares{0, 1}));
  EXPECT_EQ(sharesInUse(kLargest, InUse{.kvBlocks = int64_t{1} << 46}),
            (Shares{0, 129})); // half of 2^47 blocks, and all are one less
  EXPECT_EQ(sharesInUse(kLargest, InUse{.kvBlocks = (int64_t{1} << 46) - 1}),
            (Shares{0, 128})); // (2^46 - 1) x 256 / (2^47 - 1): 127.99...
  EXPECT_EQ(sharesInUse(kLargest, InUse{.kvBlocks = (int64_t{1} << 47) - 1}), (Shares{0, 256}));
}

// A tail in two copies: the second begins where the first ends.
TEST(InUse, EachCopyCountsFromItsOwnFirstBlock) {
  constexpr SizedCopy kFirst{.firstBlock = 4, .blockBytes = kKiB, .bytes = 256 * kKiB};
  constexpr SizedCopy kSecond{.firstBlock = 260, .blockBytes = kKiB, .bytes = 256 * kKiB};
  EXPECT_EQ(bytesInUse(kFirst, InUse{.kvBlocks = 270}), 256 * kKiB);
  EXPECT_EQ(bytesInUse(kSecond, InUse{.kvBlocks = 270}), 10 * kKiB); // 260 to 269
  EXPECT_EQ(bytesInUse(kFirst, InUse{.kvBlocks = 260}), 256 * kKiB);
  EXPECT_EQ(bytesInUse(kSecond, InUse{.kvBlocks = 260}), kKiB); // none of it: the least there is
}

TEST(InUse, ItIsNeitherNothingNorMoreThanAll) {
  for (const int64_t blocks : {int64_t{-5}, int64_t{0}, int64_t{1}, int64_t{4}}) // none of [4, 516)
    EXPECT_EQ(bytesInUse(kRun, InUse{.kvBlocks = blocks}), 2 * kKiB) << blocks;
  for (const int64_t blocks : {int64_t{516}, int64_t{517}, int64_t{1} << 40, std::numeric_limits<int64_t>::max()})
    EXPECT_EQ(bytesInUse(kRun, InUse{.kvBlocks = blocks}), 512 * kKiB) << blocks;
}

// 10 blocks of 100 bytes: a share is 3.90625 bytes.
TEST(InUse, ARunIsAMultipleOf256BytesButWhereItIsAll) {
  const SizedCopy run{.firstBlock = 1, .blockBytes = 100, .bytes = 1000};
  EXPECT_EQ(bytesInUse(run, InUse{.kvBlocks = 2}), 256u);  // 1 of 10: 25.6, so 26 shares: 101.6 bytes
  EXPECT_EQ(bytesInUse(run, InUse{.kvBlocks = 4}), 512u);  // 3 of 10: 77 shares: 300.8
  EXPECT_EQ(bytesInUse(run, InUse{.kvBlocks = 9}), 1000u); // 8 of 10: 205 shares: 800.8, aligned 1024, beyond all
  EXPECT_EQ(bytesInUse(run, InUse{.kvBlocks = 11}), 1000u);
}

TEST(InUse, InterleavedBlocksAreCopiedWhole) {
  SizedCopy rows{.firstBlock = 4, .blockBytes = 100, .bytes = 16 * 100, .wholeBlocks = true};
  EXPECT_EQ(bytesInUse(rows, InUse{.kvBlocks = 0}), 100u); // 1/256 of 16: a sixteenth of a block
  EXPECT_EQ(bytesInUse(rows, InUse{.kvBlocks = 9}), 500u); // 5 of 16: 80/256
  EXPECT_EQ(bytesInUse(rows, InUse{.kvBlocks = 20}), 1600u);
  rows.bytes = 512 * 100;
  EXPECT_EQ(bytesInUse(rows, InUse{.kvBlocks = 7}), 400u); // 3 of 512: 2/256 are 4
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
constexpr SizedCopy kBack{.firstBlock = 4, .blockBytes = kKiB, .bytes = 512 * kKiB, .dirtyOnly = true};

TEST(InUse, WhatWasWrittenBeginsAndEndsWithTheSharesThatHoldIt) {
  EXPECT_EQ(runInUse(kBack, InUse{}), (CopyRun{0, 512 * kKiB}));
  // Block 50 alone is number 46: share 23.
  EXPECT_EQ(sharesInUse(kBack, InUse{.writtenBegin = 50, .writtenEnd = 51}), (Shares{23, 24}));
  EXPECT_EQ(runInUse(kBack, InUse{.writtenBegin = 50, .writtenEnd = 51}), (CopyRun{46 * kKiB, 2 * kKiB}));
  // 51 to 53 are numbers 47 to 49: shares 23.5 to 25.
  EXPECT_EQ(runInUse(kBack, InUse{.writtenBegin = 51, .writtenEnd = 54}), (CopyRun{46 * kKiB, 4 * kKiB}));
  EXPECT_EQ(runInUse(kBack, InUse{.writtenBegin = 515, .writtenEnd = 516}),
            (CopyRun{510 * kKiB, 2 * kKiB})); // the last
}

TEST(InUse, OfWhatWasWrittenOnlyWhatIsInTheCopyAndInUse) {
  EXPECT_EQ(runInUse(kBack, InUse{.writtenBegin = 1, .writtenEnd = 6}), (CopyRun{0, 2 * kKiB}));
  EXPECT_EQ(runInUse(kBack, InUse{.writtenBegin = 514, .writtenEnd = 999}), (CopyRun{510 * kKiB, 2 * kKiB}));
  EXPECT_EQ(runInUse(kBack, InUse{.kvBlocks = 54}), (CopyRun{0, 50 * kKiB})); // at most that: 4 to 53
  EXPECT_EQ(runInUse(kBack, InUse{.kvBlocks = 54, .writtenBegin = 51}), (CopyRun{46 * kKiB, 4 * kKiB}));
}

TEST(InUse, WhereNothingOfItWasWrittenTheFirstShareIsCopied) {
  for (const auto &[begin, end] : {std::pair<int64_t, int64_t>{0, 0}, {9, 9}, {20, 10}, {1, 4}, {516, 520}, {-3, -1}})
    EXPECT_EQ(runInUse(kBack, InUse{.writtenBegin = begin, .writtenEnd = end}), (CopyRun{0, 2 * kKiB})) << begin;
  EXPECT_EQ(runInUse(kBack, InUse{.kvBlocks = 50, .writtenBegin = 50}), (CopyRun{0, 2 * kKiB}));
}

// 10 blocks of 100 bytes: a share is 3.90625 bytes.
TEST(InUse, ARunBeginsAtAMultipleOf256Bytes) {
  const SizedCopy run{.firstBlock = 1, .blockBytes = 100, .bytes = 1000, .dirtyOnly = true};
  // Block 4 is bytes 300 to 399: shares 76.8 to 102.4, so 76 to 103: bytes 296.875 to 402.3.
  EXPECT_EQ(runInUse(run, InUse{.writtenBegin = 4, .writtenEnd = 5}), (CopyRun{256, 256}));
  // 9: 800 to 899, shares 204 to 231, bytes 796.875 to 902.3; 1024 is beyond all.
  EXPECT_EQ(runInUse(run, InUse{.writtenBegin = 9, .writtenEnd = 10}), (CopyRun{768, 232}));
  SizedCopy rows = run;
  rows.wholeBlocks = true;
  // 4 again: 10 x 76 / 256 is 2.97 blocks, 10 x 103 / 256 is 4.02.
  EXPECT_EQ(runInUse(rows, InUse{.writtenBegin = 4, .writtenEnd = 5}), (CopyRun{200, 300}));
}

TEST(InUse, OfTheLargestCopyAnyBlock) {
  constexpr uint64_t kMost = (uint64_t{1} << 55) - 256;
  constexpr SizedCopy kLargest{.blockBytes = 256, .bytes = kMost, .dirtyOnly = true};
  constexpr int64_t kLast = (int64_t{1} << 47) - 2; // of 2^47 - 1 blocks
  EXPECT_EQ(sharesInUse(kLargest, InUse{.writtenBegin = kLast, .writtenEnd = kLast + 1}), (Shares{255, 256}));
  // 2^55 - 256 bytes are 256 x (2^47 - 1): from 255 x (2^47 - 1) on, which is 1 above a multiple of 256.
  const uint64_t from = 255 * ((uint64_t{1} << 47) - 1) / 256 * 256;
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
