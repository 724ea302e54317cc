// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/value/BlockRuns.h"

#include <limits>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/model/ModelSpec.h"

namespace headrace::plan {
namespace {

using testing::ElementsAre;
using testing::Pair;

// A block is 2 (k, v) x 16 rows x 4 tokens x 2 bytes = 256 bytes; of 3 layers 768.
Plan threeLayers() {
  Plan p;
  p.model->layers = 3;
  p.model->heads = p.model->kvHeads = 1;
  p.model->headDim = 16;
  p.blockTokens = 4;
  p.kvEncoding = model::DType::F16;
  return p;
}

template <typename Bytes> std::vector<std::pair<uint64_t, uint64_t>> runsOf(const Bytes &of) {
  std::vector<std::pair<uint64_t, uint64_t>> runs;
  forEachRun(threeLayers(), of, [&](uint64_t address, uint64_t bytes) { runs.emplace_back(address, bytes); });
  return runs;
}

Extent extent(uint64_t bytes, bool interleaved) {
  return {.bufferOffset = 256, .bytes = bytes, .address = 1024, .interleaved = interleaved};
}

TEST(BlockRuns, WhatIsNotInterleavedIsOneRun) {
  EXPECT_THAT(runsOf(extent(1000, false)), ElementsAre(Pair(1024, 1000)));
  EXPECT_EQ(spannedBytes(threeLayers(), extent(1000, false)), 1000u);
  EXPECT_TRUE(runsOf(extent(0, false)).empty());
}

TEST(BlockRuns, InterleavedBlocksAreARunEach) {
  EXPECT_THAT(runsOf(extent(3 * 256, true)),
              ElementsAre(Pair(1024, 256), Pair(1024 + 768, 256), Pair(1024 + 1536, 256)));
  EXPECT_EQ(spannedBytes(threeLayers(), extent(3 * 256, true)), 2u * 768 + 256);
  EXPECT_THAT(runsOf(extent(256, true)), ElementsAre(Pair(1024, 256)));
  EXPECT_EQ(spannedBytes(threeLayers(), extent(256, true)), 256u);
  EXPECT_TRUE(runsOf(extent(0, true)).empty());
  EXPECT_EQ(spannedBytes(threeLayers(), extent(0, true)), 0u);
}

TEST(BlockRuns, TheLastRunMayBePartOfABlock) {
  EXPECT_THAT(runsOf(extent(300, true)), ElementsAre(Pair(1024, 256), Pair(1024 + 768, 44)));
  EXPECT_EQ(spannedBytes(threeLayers(), extent(300, true)), 768u + 44);
}

TEST(BlockRuns, OperandsLieAsExtentsDo) {
  const Operand operand{.bufferOffset = 0, .bytes = 512, .address = 2048, .interleaved = true};
  EXPECT_THAT(runsOf(operand), ElementsAre(Pair(2048, 256), Pair(2048 + 768, 256)));
  EXPECT_EQ(spannedBytes(threeLayers(), operand), 768u + 256);
}

TEST(BlockRuns, ASpanBeyondAllNumbersIsTheLargest) {
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(spannedBytes(threeLayers(), extent(kMost, false)), kMost);
  EXPECT_EQ(spannedBytes(threeLayers(), extent(kMost, true)), kMost); // 2^56 blocks of 768: above 2^64
  // So many strides fit below 2^64; two blocks more begin behind one more than that.
  const uint64_t blocks = kMost / 768;
  EXPECT_EQ(spannedBytes(threeLayers(), extent(blocks * 256, true)), (blocks - 1) * 768 + 256);
  EXPECT_EQ(spannedBytes(threeLayers(), extent((blocks + 2) * 256, true)), kMost);
}

TEST(BlockRuns, ABlockIsFoundByItsOffset) {
  EXPECT_EQ(addressAt(threeLayers(), extent(1000, false), 600), 1024u + 600);
  EXPECT_EQ(addressEnd(threeLayers(), extent(1000, false)), 1024u + 1000);
  EXPECT_EQ(addressAt(threeLayers(), extent(3 * 256, true), 2 * 256), 1024u + 2 * 768);
  EXPECT_EQ(addressEnd(threeLayers(), extent(3 * 256, true)), 1024u + 2 * 768 + 256);
}

TEST(BlockRuns, AScheduleIsForItsOwnBlocksElseForAllThatItsPlacementHas) {
  Plan p = threeLayers();
  p.placements.resize(2);
  p.placements[0].kvBlocks = 9;
  p.placements[1].kvBlocks = 5;
  Schedule s;
  s.placement = 1;
  EXPECT_EQ(kvBlocksOf(p, s), 5);
  s.kvBlocks = 3;
  EXPECT_EQ(kvBlocksOf(p, s), 3);
  s.placement = 0;
  s.kvBlocks = 0;
  EXPECT_EQ(kvBlocksOf(p, s), 9);
}

} // namespace
} // namespace headrace::plan
