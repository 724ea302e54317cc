// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/BlockMover.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/model/ModelSpec.h"
#include "tests/unit/core/RecordingDevice.h"

namespace headrace::core {
namespace {

using testing::HasSubstr;

// Two layers of 5 blocks, each 2 (k, v) x 16 rows x 4 tokens x 2 bytes = 256 bytes, ids of 4 x 4 = 16 bytes. Two
// placements: blocks 0 and 1 are on the device, or 0 to 3, so that 2 and 3 are mirrored.
//
//   device   ids at 0, 16 ... | 1024: 0:kv.0 0:kv.1 1:kv.0 1:kv.1 ... 512 a block
//   host     kv.0 would begin at 0, kv.1 at 1280
plan::Plan splitPlan() {
  plan::Plan p;
  p.model->layers = 2;
  p.model->heads = p.model->kvHeads = 1;
  p.model->headDim = 16;
  p.blockTokens = 4;
  p.kvEncoding = model::DType::F16;
  p.kvBlocks = 5;
  p.arenaBytes = 4096;
  p.hostBytes = 2560;
  for (int32_t layer = 0; layer < 2; ++layer)
    p.buffers.push_back({"", plan::BufferKind::Kv, layer, 1280, 0});
  p.buffers.push_back({"", plan::BufferKind::Io, -1, 80, static_cast<uint32_t>(plan::Io::History)});
  for (const uint64_t resident : {2, 4}) {
    plan::Placement placement{.kvBlocks = 5};
    for (uint32_t layer = 0; layer < 2; ++layer) {
      placement.extents.push_back(
          {.buffer = layer, .bytes = resident * 256, .address = 1024 + layer * uint64_t{256}, .interleaved = true});
      placement.extents.push_back({.buffer = layer,
                                   .space = plan::Space::Host,
                                   .bufferOffset = resident * 256,
                                   .bytes = (5 - resident) * 256,
                                   .address = layer * uint64_t{1280} + resident * 256});
    }
    placement.extents.push_back({.buffer = 2, .bytes = 80});
    p.placements.push_back(placement);
  }
  return p;
}

class BlockMoverTest : public testing::Test {
protected:
  BlockMoverTest() { EXPECT_TRUE(device_.open(plan_, {}).ok()); }
  plan::CacheMap map(size_t placement) const { return {plan_, plan_.placements[placement]}; }
  static void fill(std::vector<std::byte> &memory, uint64_t at, uint64_t bytes, int value) {
    std::memset(memory.data() + at, value, bytes);
  }
  static bool holds(const std::vector<std::byte> &memory, uint64_t at, uint64_t bytes, int value) {
    return std::all_of(memory.begin() + static_cast<int64_t>(at), memory.begin() + static_cast<int64_t>(at + bytes),
                       [&](std::byte byte) { return byte == static_cast<std::byte>(value); });
  }

  const plan::Plan plan_ = splitPlan();
  RecordingDevice device_;
  BlockMover mover_{plan_, device_};
};

bool same(const BlockCopy &copy, bool toDevice, uint64_t device, uint64_t swap, uint64_t bytes) {
  return copy.toDevice == toDevice && copy.device == device && copy.swap == swap && copy.bytes == bytes;
}

TEST_F(BlockMoverTest, NeighboursOnBothSidesAreOneCopyAndTheHostsAreLeftOut) {
  const plan::CacheMap caches = map(0);
  uint64_t swap = 0;
  // Block 0 and then 1 are four parts behind each other; 2 is on the host; ids of 1 and 0 are not in order.
  for (const auto &[layer, block] : {std::pair{0, 0}, {1, 0}, {0, 1}, {1, 1}, {0, 2}, {2, 1}, {2, 0}}) {
    const uint64_t bytes = caches.bytesOf(layer, block);
    ASSERT_TRUE(mover_.add(false, caches.of(layer, block), swap, bytes).ok());
    swap += bytes;
  }
  EXPECT_TRUE(device_.beside.empty());
  EXPECT_EQ(*mover_.ask(), 1u);
  ASSERT_EQ(device_.beside.size(), 1u);
  const std::vector<BlockCopy> &copies = device_.beside[0];
  ASSERT_EQ(copies.size(), 3u);
  EXPECT_TRUE(same(copies[0], false, 1024, 0, 4 * 256));
  EXPECT_TRUE(same(copies[1], false, 16, 5 * 256, 16));
  EXPECT_TRUE(same(copies[2], false, 0, 5 * 256 + 16, 16));
  EXPECT_EQ(*mover_.ask(), 0u); // nothing was added since
}

TEST_F(BlockMoverTest, AsksFor256CopiesAtATimeAndTellsTheLastTicket) {
  for (uint64_t i = 0; i < 257; ++i)
    ASSERT_TRUE(mover_.add(true, {.device = 0}, 16 * i, 16).ok());
  EXPECT_EQ(*mover_.ask(), 2u);
  ASSERT_EQ(device_.beside.size(), 2u);
  EXPECT_EQ(device_.beside[0].size(), 256u);
  ASSERT_EQ(device_.beside[1].size(), 1u);
  EXPECT_TRUE(same(device_.beside[1][0], true, 0, 16 * 256, 16));
}

TEST_F(BlockMoverTest, WithinTheHostAMirrorIsWrittenAndNotRead) {
  const plan::BlockPlace home = map(0).of(1, 2), mirrored = map(1).of(1, 2), device = map(0).of(1, 1);
  EXPECT_TRUE(BlockMover::movesOnHost(home, /*toBlock=*/false));
  EXPECT_FALSE(BlockMover::movesOnHost(mirrored, false));
  EXPECT_FALSE(BlockMover::movesOnHost(device, false));
  EXPECT_TRUE(BlockMover::movesOnHost(home, true));
  EXPECT_TRUE(BlockMover::movesOnHost(mirrored, true));
  EXPECT_FALSE(BlockMover::movesOnHost(device, true));
  std::vector<std::byte> memory(256);
  fill(device_.slab, 1280 + 512, 256, 7);
  mover_.onHost(home, false, absl::MakeSpan(memory));
  EXPECT_TRUE(holds(memory, 0, 256, 7));
  fill(memory, 0, 256, 8);
  mover_.onHost(home, true, absl::MakeSpan(memory));
  EXPECT_TRUE(holds(device_.slab, 1280 + 512, 256, 8));
  EXPECT_TRUE(holds(device_.slab, 1280 + 768, 256, 0));
}

// Block 4 is on the host in both placements: to 1, which is on the device alone, 2 x 256 bytes cross the link.
TEST_F(BlockMoverTest, ABlockOfTheHostGoesToTheDeviceWithItsIds) {
  fill(device_.slab, 1024, 256, 1);
  fill(device_.slab, 1280 + 1024, 256, 2);
  fill(device_.arena, 4 * 16, 16, 3);
  const auto bytes = mover_.move(map(0), 0, 4, 1);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ(*bytes, 512u);
  EXPECT_TRUE(holds(device_.arena, 1024 + 512, 256, 1));
  EXPECT_TRUE(holds(device_.arena, 1024 + 768, 256, 2));
  EXPECT_TRUE(holds(device_.arena, 1 * 16, 16, 3));
  EXPECT_TRUE(holds(device_.slab, 0, 1024, 0)); // no other copy was made
}

TEST_F(BlockMoverTest, ItsMirrorIsWrittenToo) {
  fill(device_.slab, 1024, 256, 1);
  fill(device_.slab, 1280 + 1024, 256, 2);
  EXPECT_EQ(*mover_.move(map(1), 0, 4, 3), 512u);
  EXPECT_TRUE(holds(device_.arena, 1024 + 3 * 512, 256, 1));
  EXPECT_TRUE(holds(device_.slab, 768, 256, 1));
  EXPECT_TRUE(holds(device_.slab, 1280 + 768, 256, 2));
}

TEST_F(BlockMoverTest, WithinTheHostNothingCrossesTheLink) {
  fill(device_.slab, 1280 + 1024, 256, 2);
  EXPECT_EQ(*mover_.move(map(0), 0, 4, 2), 0u);
  EXPECT_TRUE(holds(device_.slab, 1280 + 512, 256, 2));
}

TEST_F(BlockMoverTest, ABlockAtHomeOnTheDeviceIsRefused) {
  EXPECT_THAT(std::string(mover_.move(map(0), 0, 1, 4).status().message()), HasSubstr("KV block 1 is at home on the"));
}

} // namespace
} // namespace headrace::core
