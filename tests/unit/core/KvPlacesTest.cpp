// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/KvPlaces.h"

#include <gtest/gtest.h>

#include "runtime/model/ModelSpec.h"

namespace headrace::core {
namespace {

using plan::Space;

// Two layers with 5 blocks each: a block is 2 (k, v) x 16 rows x 4 tokens x 2 bytes = 256 bytes, of both layers 512.
constexpr uint64_t kBlock = 256;
constexpr int64_t kBlocks = 5;
constexpr uint64_t kDevice = 4096, kHost = 10240; // where layer 0's caches begin: on the device, and would in the slab

plan::Plan emptyPlan() {
  plan::Plan p;
  p.model->layers = 2;
  p.model->heads = p.model->kvHeads = 1;
  p.model->headDim = 16;
  p.blockTokens = 4;
  p.kvEncoding = model::DType::F16;
  p.kvBlocks = kBlocks;
  for (int32_t layer = 0; layer < 2; ++layer)
    p.buffers.push_back({"kv." + std::to_string(layer), plan::BufferKind::Kv, layer, kBlocks * kBlock, 0});
  return p;
}

// A placement with blocks below `resident` on the device, layer 1's beside layer 0's, and those up to `blocks` on the
// host, a whole cache apart.
void addSplit(plan::Plan &p, int64_t resident, int64_t blocks = kBlocks) {
  plan::Placement placement;
  placement.kvBlocks = blocks;
  const auto device = static_cast<uint64_t>(resident) * kBlock, all = static_cast<uint64_t>(blocks) * kBlock;
  for (uint32_t layer = 0; layer < 2; ++layer) {
    placement.extents.push_back(
        {layer, Space::Device, plan::Encoding::Bytes, false, 0, device, kDevice + layer * kBlock, true});
    if (blocks > resident)
      placement.extents.push_back({layer, Space::Host, plan::Encoding::Bytes, true, device, all - device,
                                   kHost + layer * kBlocks * kBlock + device});
  }
  p.placements.push_back(placement);
}

void expectAt(const KvPlaces &found, Space space, uint64_t address) {
  EXPECT_EQ(found.space, space);
  EXPECT_EQ(found.address, address);
}

TEST(KvLayout, AWholeCacheIsOneRunALayer) {
  plan::Plan p = emptyPlan();
  plan::Placement placement;
  placement.kvBlocks = kBlocks;
  for (uint32_t layer = 0; layer < 2; ++layer)
    placement.extents.push_back(
        {layer, Space::Device, plan::Encoding::Bytes, false, 0, kBlocks * kBlock, kDevice + layer * kBlocks * kBlock});
  p.placements.push_back(placement);
  const KvLayout layout(p, 0);
  EXPECT_EQ(layout.blockBytes(), kBlock);
  EXPECT_EQ(layout.blocks(), kBlocks);
  expectAt(layout.of(0, 0), Space::Device, 4096);
  expectAt(layout.of(0, 4), Space::Device, 4096 + 4 * 256);
  expectAt(layout.of(1, 0), Space::Device, 4096 + 5 * 256);
  expectAt(layout.of(1, 3), Space::Device, 4096 + 5 * 256 + 3 * 256);
  for (int64_t block = 0; block < kBlocks; ++block)
    EXPECT_FALSE(layout.of(0, block).mirrored) << block;
}

TEST(KvLayout, ASplitCacheIsInterleavedOnTheDeviceAndARunALayerOnTheHost) {
  plan::Plan p = emptyPlan();
  addSplit(p, 2);
  const KvLayout layout(p, 0);
  EXPECT_EQ(layout.blockBytes(), 256u);
  EXPECT_EQ(layout.blocks(), 5);
  expectAt(layout.of(0, 0), Space::Device, 4096); // 0:kv.0 0:kv.1 1:kv.0 1:kv.1
  expectAt(layout.of(1, 0), Space::Device, 4096 + 256);
  expectAt(layout.of(0, 1), Space::Device, 4096 + 512);
  expectAt(layout.of(1, 1), Space::Device, 4096 + 512 + 256);
  expectAt(layout.of(0, 2), Space::Host, 10240 + 2 * 256); // kv.0: 2 3 4, kv.1: 2 3 4
  expectAt(layout.of(0, 4), Space::Host, 10240 + 4 * 256);
  expectAt(layout.of(1, 2), Space::Host, 10240 + 5 * 256 + 2 * 256);
  // What is at home on the host has no other copy, and what is below every R none there.
  for (const int64_t layer : {0, 1})
    for (int64_t block = 0; block < kBlocks; ++block)
      EXPECT_FALSE(layout.of(layer, block).mirrored) << layer << " " << block;
}

// R = 2 in one placement and 4 in the other: blocks 2 and 3 are kept current in both places.
TEST(KvLayout, BlocksOfATailElsewhereAreMirrored) {
  plan::Plan p = emptyPlan();
  addSplit(p, 2);
  addSplit(p, 4);
  const KvLayout larger(p, 1);
  for (const int64_t block : {0, 1})
    EXPECT_FALSE(larger.of(1, block).mirrored) << block;
  for (const int64_t block : {2, 3}) {
    const KvPlaces places = larger.of(1, block);
    expectAt(places, Space::Device, 4096 + 256 + static_cast<uint64_t>(block) * 512);
    EXPECT_TRUE(places.mirrored) << block;
    EXPECT_EQ(places.mirror, KvLayout(p, 0).of(1, block).address) << block; // the other placement's home
  }
  expectAt(larger.of(1, 4), Space::Host, 10240 + 5 * 256 + 4 * 256);
  EXPECT_FALSE(larger.of(1, 4).mirrored);
}

// All on the device in one placement, though interleaved: the other's tail is mirrored here, too.
TEST(KvLayout, SoTheyAreWhereAPlacementHasNoTailItself) {
  plan::Plan p = emptyPlan();
  addSplit(p, 5);
  addSplit(p, 1);
  const KvLayout whole(p, 0);
  EXPECT_FALSE(whole.of(0, 0).mirrored);
  for (const int64_t block : {1, 2, 3, 4}) {
    const KvPlaces places = whole.of(0, block);
    expectAt(places, Space::Device, 4096 + static_cast<uint64_t>(block) * 512);
    EXPECT_TRUE(places.mirrored) << block;
    EXPECT_EQ(places.mirror, 10240 + static_cast<uint64_t>(block) * 256) << block;
  }
}

// Nothing on the device in one placement: everything of the other is mirrored, the scratch block with it.
TEST(KvLayout, AWholeCacheMayBeAtHomeOnTheHost) {
  plan::Plan p = emptyPlan();
  plan::Placement none;
  none.kvBlocks = kBlocks;
  for (uint32_t layer = 0; layer < 2; ++layer)
    none.extents.push_back(
        {layer, Space::Host, plan::Encoding::Bytes, true, 0, kBlocks * kBlock, kHost + layer * kBlocks * kBlock});
  p.placements.push_back(none);
  addSplit(p, 2);
  for (int64_t block = 0; block < kBlocks; ++block) {
    expectAt(KvLayout(p, 0).of(1, block), Space::Host, 10240 + 5 * 256 + static_cast<uint64_t>(block) * 256);
    EXPECT_FALSE(KvLayout(p, 0).of(1, block).mirrored) << block;
    EXPECT_EQ(KvLayout(p, 1).of(1, block).mirrored, block < 2) << block;
  }
  EXPECT_EQ(KvLayout(p, 1).of(0, 0).mirror, 10240u);
}

// A placement with fewer blocks than the plan's most has a layout for those.
TEST(KvLayout, HasAsManyBlocksAsThePlacement) {
  plan::Plan p = emptyPlan();
  addSplit(p, 2);
  addSplit(p, 2, /*blocks=*/2);
  EXPECT_EQ(KvLayout(p, 0).blocks(), 5);
  EXPECT_EQ(KvLayout(p, 1).blocks(), 2);
  expectAt(KvLayout(p, 1).of(1, 1), Space::Device, 4096 + 512 + 256);
}

} // namespace
} // namespace headrace::core
