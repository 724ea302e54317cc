// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/MetaWriter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "runtime/core/LaunchChecks.h"

namespace headrace::core {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// 8 tokens, 2 sequences, 3 blocks of 4 tokens each.
class MetaWriter : public testing::Test {
protected:
  MetaWriter() : words_(kernels::metaBytes(layout_) / sizeof(uint64_t)) { kernels::initMeta(layout_, meta()); }
  kernels::IterationMeta *meta() { return reinterpret_cast<kernels::IterationMeta *>(words_.data()); }
  template <typename T> std::vector<T> array(uint32_t offset, int64_t count) {
    const T *p = meta()->array<T>(offset);
    return {p, p + count};
  }
  absl::Status write(const std::vector<SequenceRows> &rows) { return writeMeta(layout_, 4, rows, meta()); }
  std::string refusal(const SequenceRows &rows) {
    const absl::Status status = write({rows});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }

  const kernels::MetaLayout layout_{.maxTokens = 8, .maxSequences = 2, .maxBlocksPerSequence = 3};
  std::vector<uint64_t> words_;
  const std::vector<int32_t> prompt_ = {10, 11, 12}, next_ = {-1}, blocks_ = {5, 2}, otherBlocks_ = {7, 1, 3};
};

TEST_F(MetaWriter, LaysOutTheRowsOfAMixedIteration) {
  // A prompt's positions 3..5 (block 5 row 3, block 2 rows 0 and 1), then a decode row at position 8 (block 3 row 0).
  ASSERT_TRUE(write({{.tokens = prompt_, .firstPosition = 3, .blocks = blocks_},
                     {.tokens = next_,
                      .firstPosition = 8,
                      .blocks = otherBlocks_,
                      .sample = true,
                      .requestSlot = 1,
                      .temperature = 0.5f,
                      .topP = 0.9f,
                      .seed = 77,
                      .topK = 40,
                      .minP = 0.05f,
                      .repetition = 1.5f,
                      .presence = 0.25f,
                      .frequency = -0.5f,
                      .promptTokens = 6}})
                  .ok());
  EXPECT_EQ(meta()->numTokens, 4);
  EXPECT_EQ(meta()->numSequences, 2);
  EXPECT_EQ(meta()->numSampled, 1);
  EXPECT_THAT(array<int32_t>(meta()->tokenIds, 4), ElementsAre(10, 11, 12, -1));
  EXPECT_THAT(array<int32_t>(meta()->positions, 4), ElementsAre(3, 4, 5, 8));
  EXPECT_THAT(array<int32_t>(meta()->tokenSequence, 4), ElementsAre(0, 0, 0, 1));
  EXPECT_THAT(array<int32_t>(meta()->kvSlot, 4), ElementsAre(5 * 4 + 3, 2 * 4 + 0, 2 * 4 + 1, 3 * 4 + 0));
  EXPECT_THAT(array<int32_t>(meta()->queryStart, 3), ElementsAre(0, 3, 4));
  EXPECT_THAT(array<int32_t>(meta()->contextLength, 2), ElementsAre(6, 9));
  EXPECT_THAT(array<int32_t>(meta()->blockTable, 2), ElementsAre(5, 2));
  EXPECT_THAT(array<int32_t>(meta()->blockTable + 3 * sizeof(int32_t), 3), ElementsAre(7, 1, 3));
  EXPECT_THAT(array<int32_t>(meta()->sampleRow, 1), ElementsAre(3));
  EXPECT_THAT(array<int32_t>(meta()->requestSlot, 1), ElementsAre(1));
  EXPECT_THAT(array<int32_t>(meta()->samplePosition, 1), ElementsAre(9));
  EXPECT_THAT(array<float>(meta()->temperature, 1), ElementsAre(0.5f));
  EXPECT_THAT(array<float>(meta()->topP, 1), ElementsAre(0.9f));
  EXPECT_THAT(array<uint64_t>(meta()->seed, 1), ElementsAre(77u));
  EXPECT_THAT(array<int32_t>(meta()->topK, 1), ElementsAre(40));
  EXPECT_THAT(array<float>(meta()->minP, 1), ElementsAre(0.05f));
  EXPECT_THAT(array<float>(meta()->repetition, 1), ElementsAre(1.5f));
  EXPECT_THAT(array<float>(meta()->presence, 1), ElementsAre(0.25f));
  EXPECT_THAT(array<float>(meta()->frequency, 1), ElementsAre(-0.5f));
  EXPECT_THAT(array<int32_t>(meta()->promptTokens, 1), ElementsAre(6));
}

TEST_F(MetaWriter, TablesLieOneBehindTheOtherAtTheStrideOfTheLongest) {
  ASSERT_TRUE(
      write({{.tokens = next_, .firstPosition = 8, .blocks = otherBlocks_}, {.tokens = next_, .blocks = blocks_}})
          .ok());
  EXPECT_EQ(meta()->tableStride, 3);
  EXPECT_THAT(array<int32_t>(meta()->blockTable, 4), ElementsAre(7, 1, 3, 5));
  ASSERT_TRUE(write({{.tokens = next_, .firstPosition = 3, .blocks = otherBlocks_},
                     {.tokens = next_, .firstPosition = 4, .blocks = blocks_}})
                  .ok());
  EXPECT_EQ(meta()->tableStride, 2);
  EXPECT_THAT(array<int32_t>(meta()->blockTable, 4), ElementsAre(7, 1, 5, 2)); // the first has room for two
  EXPECT_EQ(kernels::metaBytesInUse(*meta()), meta()->blockTable + 4 * sizeof(int32_t));
}

// 128 sequences of up to 131,072 tokens in blocks of 16, of which each has 4,096 now: 256 entries of 8,192.
TEST(MetaBytes, OfLongContextsWhatIsInUseIsCopied) {
  const kernels::MetaLayout layout{.maxTokens = 128, .maxSequences = 128, .maxBlocksPerSequence = 8192};
  std::vector<uint64_t> words(kernels::metaBytes(layout) / sizeof(uint64_t));
  auto *meta = reinterpret_cast<kernels::IterationMeta *>(words.data());
  kernels::initMeta(layout, meta);
  const std::vector<int32_t> token = {-1}, blocks(256, 9);
  const std::vector<SequenceRows> rows(128, {.tokens = token, .firstPosition = 4095, .blocks = blocks});
  ASSERT_TRUE(writeMeta(layout, 16, rows, meta).ok());
  EXPECT_EQ(kernels::metaBytesInUse(*meta), meta->blockTable + 131072u); // 4,194,304 at the plan's stride
  EXPECT_LT(meta->blockTable, 12000u);
}

// The iteration buffer of several mini-batches.
class Buffer {
public:
  Buffer(const kernels::MetaLayout &layout, uint32_t miniBatches)
      : layout_(layout), count_(miniBatches), words_(kernels::metaBytes(layout, miniBatches) / sizeof(uint64_t)) {
    kernels::initMetas(layout, miniBatches, first());
  }
  kernels::IterationMeta *first() { return reinterpret_cast<kernels::IterationMeta *>(words_.data()); }
  const kernels::IterationMeta &of(uint32_t miniBatch) { return *kernels::metaOf(layout_, first(), miniBatch); }
  Metas metas() { return {first(), kernels::metaFixedBytes(layout_), count_}; }
  absl::Status write(int64_t blockTokens, const std::vector<std::vector<SequenceRows>> &miniBatches) {
    const std::vector<absl::Span<const SequenceRows>> each(miniBatches.begin(), miniBatches.end());
    return writeMetas(layout_, blockTokens, each, first());
  }
  // `count` words from byte `begin` on.
  std::vector<int32_t> words(uint64_t begin, int64_t count) {
    const int32_t *p = first()->array<int32_t>(static_cast<uint32_t>(begin));
    return {p, p + count};
  }
  size_t bytes() const { return words_.size() * sizeof(uint64_t); }

private:
  const kernels::MetaLayout layout_;
  const uint32_t count_;
  std::vector<uint64_t> words_;
};

// Of three mini-batches the first has sequences of three blocks and of one, the second none, the third one of two: 2 x
// 3
// + 0 + 1 x 2 words behind the arrays of all. In the next iteration it is the first that has none.
TEST_F(MetaWriter, TablesOfMiniBatchesLieBehindAllArraysEachAtItsOwnStride) {
  Buffer buffer(layout_, 3);
  const uint64_t tables = 3 * kernels::metaFixedBytes(layout_);
  const auto tableOf = [&](uint32_t i) { return i * kernels::metaFixedBytes(layout_) + buffer.of(i).blockTable; };
  const SequenceRows three{.tokens = next_, .firstPosition = 8, .blocks = otherBlocks_, .sample = true};
  const SequenceRows two{.tokens = next_, .firstPosition = 4, .blocks = blocks_, .sample = true};
  const SequenceRows one{.tokens = next_, .blocks = blocks_, .sample = true};
  ASSERT_TRUE(buffer.write(4, {{three, one}, {}, {two}}).ok());
  EXPECT_EQ(tableOf(0), tables);
  EXPECT_EQ(tableOf(1), tables + 24);
  EXPECT_EQ(tableOf(2), tables + 24);
  EXPECT_THAT(buffer.words(tables, 4), ElementsAre(7, 1, 3, 5)); // the second row has room for three
  EXPECT_THAT(buffer.words(tables + 24, 2), ElementsAre(5, 2));
  EXPECT_EQ(bytesInUse(buffer.metas()), tables + 32);
  EXPECT_EQ(buffer.of(2).firstOutput, 2u);

  ASSERT_TRUE(buffer.write(4, {{}, {two}, {one, three}}).ok());
  EXPECT_EQ(tableOf(1), tables);
  EXPECT_EQ(tableOf(2), tables + 8);
  EXPECT_THAT(buffer.words(tables, 3), ElementsAre(5, 2, 5));
  EXPECT_THAT(buffer.words(tables + 20, 3), ElementsAre(7, 1, 3));
  EXPECT_EQ(bytesInUse(buffer.metas()), tables + 32);
}

// 4 mini-batches of 32 sequences of up to 131,072 tokens in blocks of 16: 4 tables of 32 x 8,192 words, 1,048,576 bytes
// each.
class MetaBytesOfMiniBatches : public testing::Test {
protected:
  // Bytes of tables that are copied where all sequences of each mini-batch have so many blocks.
  uint64_t tablesInUse(const std::vector<size_t> &blocks) {
    std::vector<std::vector<SequenceRows>> rows;
    for (const size_t count : blocks)
      rows.emplace_back(count == 0 ? 0 : 32, SequenceRows{.tokens = token_,
                                                          .firstPosition = static_cast<int64_t>(count) * 16 - 1,
                                                          .blocks = absl::MakeConstSpan(blocks_).first(count)});
    EXPECT_TRUE(buffer_.write(16, rows).ok());
    return bytesInUse(buffer_.metas()) - 4 * kernels::metaFixedBytes(kLayout);
  }

  static constexpr kernels::MetaLayout kLayout{.maxTokens = 32, .maxSequences = 32, .maxBlocksPerSequence = 8192};
  Buffer buffer_{kLayout, 4};
  const std::vector<int32_t> token_ = {-1}, blocks_ = std::vector<int32_t>(8192, 9);
};

TEST_F(MetaBytesOfMiniBatches, WhatIsInUseIsCopied) {
  EXPECT_EQ(kernels::metaFixedBytes(kLayout), 2624u); // header: 128, arrays: 2,496
  EXPECT_EQ(buffer_.bytes(), 4 * 2624u + 4 * 1048576u);
  EXPECT_EQ(tablesInUse({256, 256, 256, 256}), 131072u);            // 4 x 32 x 256 x 4
  EXPECT_EQ(tablesInUse({8192, 256, 256, 256}), 1048576u + 98304u); // 4,194,304 were each as long as the longest
  EXPECT_EQ(tablesInUse({256, 0, 0, 0}), 32768u);                   // 131,072
  EXPECT_EQ(tablesInUse({8192, 8192, 8192, 8192}), 4 * 1048576u);   // all there is
}

// Positions 3 to 5 of a prompt, two rows of padding at 6 and 7; then padding alone.
TEST_F(MetaWriter, PaddingStandsBehindTheRowThatIsSampled) {
  ASSERT_TRUE(write({{.tokens = prompt_, .padding = 2, .firstPosition = 3, .blocks = blocks_, .sample = true}}).ok());
  EXPECT_EQ(meta()->numTokens, 5);
  EXPECT_THAT(array<int32_t>(meta()->tokenIds, 5), ElementsAre(10, 11, 12, 0, 0));
  EXPECT_THAT(array<int32_t>(meta()->positions, 5), ElementsAre(3, 4, 5, 6, 7));
  EXPECT_THAT(array<int32_t>(meta()->contextLength, 1), ElementsAre(8));
  EXPECT_THAT(array<int32_t>(meta()->sampleRow, 1), ElementsAre(2));
  EXPECT_THAT(array<int32_t>(meta()->samplePosition, 1), ElementsAre(6));
  ASSERT_TRUE(write({{.tokens = {}, .padding = 2, .firstPosition = 6, .blocks = blocks_}}).ok());
  EXPECT_THAT(array<int32_t>(meta()->positions, 2), ElementsAre(6, 7));
  EXPECT_EQ(meta()->numSampled, 0);
  EXPECT_THAT(refusal({.tokens = {}, .padding = 2, .blocks = blocks_, .sample = true}), HasSubstr("padding only"));
}

TEST_F(MetaWriter, RowsNoLongerInUsePointToTheScratchBlock) {
  ASSERT_TRUE(write({{.tokens = prompt_, .blocks = blocks_}}).ok());
  ASSERT_TRUE(write({{.tokens = next_, .firstPosition = 3, .blocks = blocks_}}).ok());
  EXPECT_THAT(array<int32_t>(meta()->kvSlot, 3), ElementsAre(5 * 4 + 3, 0, 0));
}

TEST_F(MetaWriter, RefusesWhatThePlanHasNoRoomFor) {
  const std::vector<int32_t> nine(9, 1), manyBlocks = {1, 2, 3, 4};
  EXPECT_THAT(refusal({.tokens = nine, .blocks = manyBlocks}), HasSubstr("9 tokens, the plan's limit is 8"));
  EXPECT_THAT(refusal({.tokens = next_, .firstPosition = 12, .blocks = manyBlocks}),
              HasSubstr("context 13 needs 4 KV blocks, the plan's limit is 3"));
  EXPECT_THAT(refusal({.tokens = next_, .firstPosition = 8, .blocks = blocks_}),
              HasSubstr("context 9 needs 3 KV blocks, it has 2"));
  EXPECT_THAT(refusal({.tokens = next_, .blocks = blocks_, .requestSlot = 2}),
              HasSubstr("request slot 2, the plan has 2"));
  EXPECT_THAT(refusal({.tokens = next_, .firstPosition = -1, .blocks = blocks_}), HasSubstr("first position -1"));
  EXPECT_THAT(refusal({.tokens = next_, .firstPosition = std::numeric_limits<int64_t>::max(), .blocks = blocks_}),
              HasSubstr("is out of range"));
  EXPECT_THAT(refusal({.blocks = blocks_}), HasSubstr("sequence 0: no rows"));
  EXPECT_THAT(refusal({.tokens = prompt_, .padding = -1, .blocks = blocks_}), HasSubstr("sequence 0: no rows"));
  const SequenceRows one{.tokens = next_, .blocks = blocks_};
  EXPECT_THAT(std::string(write({one, one, one}).message()), HasSubstr("3 sequences, the plan's limit is 2"));
}

// Blocks from 8 on keep activations. A sequence at position 9 has blocks 8 and 9 of them, of which the second has one
// earlier token; one at position 0 has none of any.
TEST_F(MetaWriter, ListsActivationBlocksWithEarlierTokens) {
  const kernels::MetaLayout layout{
      .maxTokens = 8, .maxSequences = 2, .maxBlocksPerSequence = 3, .firstActBlock = 8, .maxActBlocks = 2};
  words_.assign(kernels::metaBytes(layout) / sizeof(uint64_t), 0);
  kernels::initMeta(layout, meta());
  const std::vector<int32_t> blocks = {8, 3, 9}, fresh = {9};
  ASSERT_TRUE(writeMeta(layout, 4,
                        {{{.tokens = next_, .firstPosition = 9, .blocks = blocks},
                          {.tokens = prompt_, .firstPosition = 0, .blocks = fresh}}},
                        meta())
                  .ok());
  EXPECT_EQ(meta()->numActBlocks, 2);
  EXPECT_EQ(meta()->numActRows, 8);
  EXPECT_THAT(array<int32_t>(meta()->actBlock, 2), ElementsAre(0, 1));
  EXPECT_THAT(array<int32_t>(meta()->actPosition, 2), ElementsAre(0, 8));
  EXPECT_THAT(array<int32_t>(meta()->actTokens, 2), ElementsAre(4, 1));
  EXPECT_THAT(array<int32_t>(meta()->kvSlot, 4), ElementsAre(37, 36, 37, 38)); // block 9, rows 1, 0, 1, 2

  const std::vector<int32_t> beyond = {10, 3, 9};
  EXPECT_THAT(writeMeta(layout, 4, {{{.tokens = next_, .firstPosition = 9, .blocks = beyond}}}, meta()).message(),
              HasSubstr("activation block 10 as number 1 of the iteration, the plan has 2 from 8 on"));
  const std::vector<int32_t> tooMany = {8, 9, 9};
  EXPECT_THAT(writeMeta(layout, 4, {{{.tokens = next_, .firstPosition = 9, .blocks = tooMany}}}, meta()).message(),
              HasSubstr("activation block 9 as number 3 of the iteration, the plan has 2"));
}

} // namespace
} // namespace headrace::core
