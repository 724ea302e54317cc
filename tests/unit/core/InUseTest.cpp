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
  EXPECT_EQ(shareInUse(kRun, {}), 64u);
  EXPECT_EQ(bytesInUse(kRun, {}), 128 * kKiB);
}

TEST(InUse, ASizeIsTheLeastNumberOf64thsThatHoldTheBlocksInUse) {
  EXPECT_EQ(bytesInUse(kRun, {.kvBlocks = 5}), 2 * kKiB);     // 1 block of 128: 1/64
  EXPECT_EQ(bytesInUse(kRun, {.kvBlocks = 6}), 2 * kKiB);     // 2 of 128: 1/64
  EXPECT_EQ(bytesInUse(kRun, {.kvBlocks = 7}), 4 * kKiB);     // 3 of 128: 1.5/64, so 2
  EXPECT_EQ(bytesInUse(kRun, {.kvBlocks = 68}), 64 * kKiB);   // 64 of 128: 32/64
  EXPECT_EQ(bytesInUse(kRun, {.kvBlocks = 131}), 128 * kKiB); // 127 of 128: 63.5/64, so 64
}

// 2^57 - 256 bytes in blocks of 256, from block 0: no product on the way is beyond 64 bits.
TEST(InUse, TheLargestCopyHasItsShares) {
  constexpr uint64_t kMost = (uint64_t{1} << 57) - 256;
  constexpr SizedCopy kLargest{.blockBytes = 256, .bytes = kMost};
  EXPECT_EQ(bytesInUse(kLargest, {}), kMost);
  EXPECT_EQ(shareInUse(kLargest, {.kvBlocks = 1}), 1u);
  EXPECT_EQ(shareInUse(kLargest, {.kvBlocks = int64_t{1} << 48}), 33u); // half of 2^49 blocks, and all are one less
  EXPECT_EQ(shareInUse(kLargest, {.kvBlocks = (int64_t{1} << 48) - 1}), 32u); // (2^48 - 1) x 64 / (2^49 - 1): 31.99...
  EXPECT_EQ(shareInUse(kLargest, {.kvBlocks = (int64_t{1} << 49) - 1}), 64u);
}

// A tail in two copies: the second begins where the first ends.
TEST(InUse, EachCopyCountsFromItsOwnFirstBlock) {
  constexpr SizedCopy kFirst{.firstBlock = 4, .blockBytes = kKiB, .bytes = 64 * kKiB};
  constexpr SizedCopy kSecond{.firstBlock = 68, .blockBytes = kKiB, .bytes = 64 * kKiB};
  EXPECT_EQ(bytesInUse(kFirst, {.kvBlocks = 78}), 64 * kKiB);
  EXPECT_EQ(bytesInUse(kSecond, {.kvBlocks = 78}), 10 * kKiB); // 68 to 77
  EXPECT_EQ(bytesInUse(kFirst, {.kvBlocks = 68}), 64 * kKiB);
  EXPECT_EQ(bytesInUse(kSecond, {.kvBlocks = 68}), kKiB); // none of it: the least there is
}

TEST(InUse, ItIsNeitherNothingNorMoreThanAll) {
  for (const int64_t blocks : {int64_t{-5}, int64_t{0}, int64_t{1}, int64_t{4}}) // none of [4, 132)
    EXPECT_EQ(bytesInUse(kRun, {.kvBlocks = blocks}), 2 * kKiB) << blocks;
  for (const int64_t blocks : {int64_t{132}, int64_t{133}, int64_t{1} << 40, std::numeric_limits<int64_t>::max()})
    EXPECT_EQ(bytesInUse(kRun, {.kvBlocks = blocks}), 128 * kKiB) << blocks;
}

// 10 blocks of 100 bytes: a share is 15.625 bytes.
TEST(InUse, ARunIsAMultipleOf256BytesButWhereItIsAll) {
  const SizedCopy run{.firstBlock = 1, .blockBytes = 100, .bytes = 1000};
  EXPECT_EQ(bytesInUse(run, {.kvBlocks = 2}), 256u);  // 1 of 10: 6.4, so 7 shares: 109.4 bytes
  EXPECT_EQ(bytesInUse(run, {.kvBlocks = 4}), 512u);  // 3 of 10: 20 shares: 312.5
  EXPECT_EQ(bytesInUse(run, {.kvBlocks = 9}), 1000u); // 8 of 10: 52 shares: 812.5, aligned 1024, beyond all
  EXPECT_EQ(bytesInUse(run, {.kvBlocks = 11}), 1000u);
}

TEST(InUse, InterleavedBlocksAreCopiedWhole) {
  SizedCopy rows{.firstBlock = 4, .blockBytes = 100, .bytes = 16 * 100, .wholeBlocks = true};
  EXPECT_EQ(bytesInUse(rows, {.kvBlocks = 0}), 100u); // 1/64 of 16: a quarter of a block
  EXPECT_EQ(bytesInUse(rows, {.kvBlocks = 9}), 500u); // 5 of 16: 20/64
  EXPECT_EQ(bytesInUse(rows, {.kvBlocks = 20}), 1600u);
  rows.bytes = 128 * 100;
  EXPECT_EQ(bytesInUse(rows, {.kvBlocks = 7}), 400u); // 3 of 128: 2/64 are 4
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
    const uint32_t share = shareInUse(sized, inUse);
    RC_ASSERT(share >= 1u && share <= kShares);
    const uint64_t bytes = shareBytes(sized, share);
    const auto blocks = static_cast<uint64_t>(std::max<int64_t>(0, inUse.kvBlocks - sized.firstBlock));
    RC_ASSERT(bytes > 0u && bytes <= sized.bytes);
    RC_ASSERT(bytes >= std::min(sized.bytes, blocks * sized.blockBytes));
    if (share > 1) // one less would not do
      RC_ASSERT((share - 1) * sized.bytes < blocks * sized.blockBytes * kShares);
    if (sized.wholeBlocks)
      RC_ASSERT(bytes % sized.blockBytes == 0u);
  }
}

} // namespace
} // namespace headrace::core
