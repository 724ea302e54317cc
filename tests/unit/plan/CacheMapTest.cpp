// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/value/CacheMap.h"

#include <gtest/gtest.h>

#include "runtime/model/ModelSpec.h"

namespace headrace::plan {
namespace {

// Two layers with 5 blocks each: a block is 2 (k, v) x 16 rows x 4 tokens x 2 bytes = 256 bytes, of both layers 512.
constexpr uint64_t kBlock = 256;
constexpr int64_t kBlocks = 5;
constexpr uint64_t kDevice = 4096, kHost = 10240; // where layer 0's caches begin: on the device, and would in the slab

Plan emptyPlan() {
  Plan p;
  p.model->layers = 2;
  p.model->heads = p.model->kvHeads = 1;
  p.model->headDim = 16;
  p.blockTokens = 4;
  p.kvEncoding = model::DType::F16;
  p.kvBlocks = kBlocks;
  for (int32_t layer = 0; layer < 2; ++layer)
    p.buffers.push_back({"kv." + std::to_string(layer), BufferKind::Kv, layer, kBlocks * kBlock, 0});
  return p;
}

// A placement with blocks below `resident` on the device, layer 1's beside layer 0's, and those up to `blocks` on the
// host, a whole cache apart.
void addSplit(Plan &p, int64_t resident, int64_t blocks = kBlocks) {
  Placement placement;
  placement.kvBlocks = blocks;
  const auto device = static_cast<uint64_t>(resident) * kBlock, all = static_cast<uint64_t>(blocks) * kBlock;
  for (uint32_t layer = 0; layer < 2; ++layer) {
    placement.extents.push_back({layer, Space::Device, false, 0, device, kDevice + layer * kBlock, true});
    if (blocks > resident)
      placement.extents.push_back(
          {layer, Space::Host, true, device, all - device, kHost + layer * kBlocks * kBlock + device});
  }
  p.placements.push_back(placement);
}

void addWhole(Plan &p) {
  Placement placement;
  placement.kvBlocks = kBlocks;
  for (uint32_t layer = 0; layer < 2; ++layer)
    placement.extents.push_back({layer, Space::Device, false, 0, kBlocks * kBlock, kDevice + layer * kBlocks * kBlock});
  p.placements.push_back(placement);
}

CacheMap mapOf(const Plan &p, size_t placement = 0) { return {p, p.placements[placement]}; }

BlockPlace onDevice(uint64_t address) { return {.device = address}; }
BlockPlace onHost(uint64_t address) { return {.host = address}; }
BlockPlace mirrored(uint64_t address, uint64_t host) { return {.device = address, .host = host}; }

TEST(CacheMap, AWholeCacheIsOneRunALayer) {
  Plan p = emptyPlan();
  addWhole(p);
  const CacheMap map = mapOf(p);
  EXPECT_EQ(map.layers(), 2);
  EXPECT_EQ(map.blocks(), 5);
  EXPECT_EQ(map.resident(), 5);
  EXPECT_FALSE(map.split());
  EXPECT_FALSE(map.byNumber());
  EXPECT_EQ(map.of(0, 0), onDevice(4096));
  EXPECT_EQ(map.of(0, 4), onDevice(4096 + 4 * 256));
  EXPECT_EQ(map.of(1, 0), onDevice(4096 + 5 * 256));
  EXPECT_EQ(map.of(1, 3), onDevice(4096 + 5 * 256 + 3 * 256));
  EXPECT_EQ(firstBlockOnHost(p), 5);
}

// What is at home on the host has no other copy, and what is below every first block there none there.
TEST(CacheMap, ASplitCacheIsInterleavedOnTheDeviceAndARunALayerOnTheHost) {
  Plan p = emptyPlan();
  addSplit(p, 2);
  const CacheMap map = mapOf(p);
  EXPECT_EQ(map.blocks(), 5);
  EXPECT_EQ(map.resident(), 2);
  EXPECT_TRUE(map.split());
  EXPECT_TRUE(map.byNumber());
  EXPECT_EQ(map.of(0, 0), onDevice(4096)); // 0:kv.0 0:kv.1 1:kv.0 1:kv.1
  EXPECT_EQ(map.of(1, 0), onDevice(4096 + 256));
  EXPECT_EQ(map.of(0, 1), onDevice(4096 + 512));
  EXPECT_EQ(map.of(1, 1), onDevice(4096 + 512 + 256));
  EXPECT_EQ(map.of(0, 2), onHost(10240 + 2 * 256)); // kv.0: 2 3 4, kv.1: 2 3 4
  EXPECT_EQ(map.of(0, 4), onHost(10240 + 4 * 256));
  EXPECT_EQ(map.of(1, 2), onHost(10240 + 5 * 256 + 2 * 256));
}

// Two blocks on the device in one placement and four in the other: blocks 2 and 3 are kept current in both places.
TEST(CacheMap, BlocksOfATailElsewhereAreMirrored) {
  Plan p = emptyPlan();
  addSplit(p, 2);
  addSplit(p, 4);
  const CacheMap larger = mapOf(p, 1);
  EXPECT_EQ(firstBlockOnHost(p), 2);
  EXPECT_EQ(larger.of(1, 1), onDevice(4096 + 256 + 1 * 512));
  EXPECT_EQ(larger.of(1, 2), mirrored(4096 + 256 + 2 * 512, 10240 + 5 * 256 + 2 * 256));
  EXPECT_EQ(larger.of(1, 3), mirrored(4096 + 256 + 3 * 512, 10240 + 5 * 256 + 3 * 256));
  EXPECT_EQ(larger.of(1, 4), onHost(10240 + 5 * 256 + 4 * 256));
  EXPECT_EQ(larger.of(1, 3).host, mapOf(p, 0).of(1, 3).host); // the other placement's home
}

// All on the device in one placement, though interleaved: the other's tail is mirrored here, too.
TEST(CacheMap, SoTheyAreWhereAPlacementHasNoTailItself) {
  Plan p = emptyPlan();
  addSplit(p, 5);
  addSplit(p, 1);
  const CacheMap whole = mapOf(p, 0);
  EXPECT_FALSE(whole.split());
  EXPECT_EQ(whole.of(0, 0), onDevice(4096));
  for (const uint64_t block : {1, 2, 3, 4})
    EXPECT_EQ(whole.of(0, static_cast<int64_t>(block)), mirrored(4096 + block * 512, 10240 + block * 256)) << block;
}

// Nothing on the device in one placement: everything of the other is mirrored, the scratch block with it.
TEST(CacheMap, AWholeCacheMayBeAtHomeOnTheHost) {
  Plan p = emptyPlan();
  Placement none;
  none.kvBlocks = kBlocks;
  for (uint32_t layer = 0; layer < 2; ++layer)
    none.extents.push_back({layer, Space::Host, true, 0, kBlocks * kBlock, kHost + layer * kBlocks * kBlock});
  p.placements.push_back(none);
  addSplit(p, 2);
  EXPECT_EQ(firstBlockOnHost(p), 0);
  EXPECT_EQ(mapOf(p, 0).resident(), 0);
  EXPECT_TRUE(mapOf(p, 0).byNumber()); // in the other placement
  for (const uint64_t block : {0, 1, 2, 3, 4})
    EXPECT_EQ(mapOf(p, 0).of(1, static_cast<int64_t>(block)), onHost(10240 + 5 * 256 + block * 256)) << block;
  EXPECT_EQ(mapOf(p, 1).of(0, 0), mirrored(4096, 10240));
  EXPECT_EQ(mapOf(p, 1).of(1, 1), mirrored(4096 + 512 + 256, 10240 + 5 * 256 + 256));
  EXPECT_EQ(mapOf(p, 1).of(0, 2), onHost(10240 + 2 * 256));
}

TEST(CacheMap, HasAsManyBlocksAsThePlacement) {
  Plan p = emptyPlan();
  addSplit(p, 2);
  addSplit(p, 2, /*blocks=*/2);
  EXPECT_EQ(mapOf(p, 0).blocks(), 5);
  EXPECT_EQ(mapOf(p, 1).blocks(), 2);
  EXPECT_EQ(mapOf(p, 1).resident(), 2);
  EXPECT_FALSE(mapOf(p, 1).split());
  EXPECT_EQ(mapOf(p, 1).of(1, 1), onDevice(4096 + 512 + 256));
}

// Two mini-batches: caches kv.0.0, kv.0.1, kv.1.0 and kv.1.1, so a block of all is 1024 bytes; ids of 4 tokens are 16
// bytes a block, those of a mini-batch 5 x 16 = 80, aligned 128.
TEST(CacheMap, EachMiniBatchHasItsOwn) {
  Plan p = emptyPlan();
  p.miniBatches = 2;
  p.buffers.clear();
  Placement placement;
  placement.kvBlocks = kBlocks;
  for (uint32_t cache = 0; cache < 4; ++cache) {
    p.buffers.push_back({"", BufferKind::Kv, static_cast<int32_t>(cache / 2), kBlocks * kBlock, cache % 2});
    placement.extents.push_back({cache, Space::Device, false, 0, kBlocks * kBlock, kDevice + cache * kBlock, true});
  }
  p.buffers.push_back({"history", BufferKind::Io, -1, 2 * 128, static_cast<uint32_t>(Io::History)});
  placement.extents.push_back({4, Space::Device, false, 0, 2 * 128, 512});
  p.placements.push_back(placement);
  const CacheMap map = mapOf(p);
  EXPECT_EQ(map.layers(), 2);
  EXPECT_EQ(map.of(0, 3, 1), onDevice(4096 + 3 * 1024 + 256));
  EXPECT_EQ(map.of(1, 3, 0), onDevice(4096 + 3 * 1024 + 512));
  // Behind the last layer: ids.
  EXPECT_EQ(map.of(2, 3, 0), onDevice(512 + 3 * 16));
  EXPECT_EQ(map.of(2, 3, 1), onDevice(512 + 128 + 3 * 16));
  EXPECT_EQ(map.bytesOf(1, 3), 256u);
  EXPECT_EQ(map.bytesOf(2, 3), 16u);
  EXPECT_EQ(map.bytesOf(3), 2 * 256u + 16);
  EXPECT_EQ(movedBlockBytes(p), 2 * 256u + 16);
}

// Activation blocks of 8 x 4 elements of 4 bytes = 128, numbered from 5 on: layer 0's at home on the host, layer 1's on
// the device.
TEST(CacheMap, ActivationBlocksAreNumberedBehindKvBlocks) {
  Plan p = emptyPlan();
  p.model->hidden = 8;
  p.activationDtype = model::DType::F32;
  p.actBlocks = 3;
  p.actRatio = {1, 2};
  for (int32_t layer = 0; layer < 2; ++layer)
    p.buffers.push_back({"act." + std::to_string(layer), BufferKind::Act, layer, 3 * 128, 0});
  addWhole(p);
  Placement &placement = p.placements.front();
  placement.extents.push_back({2, Space::Host, true, 0, 3 * 128, 20480});
  placement.extents.push_back({3, Space::Device, false, 0, 3 * 128, 30720});
  EXPECT_EQ(mapOf(p).of(0, 5), onHost(20480));
  EXPECT_EQ(mapOf(p).of(0, 7), onHost(20480 + 2 * 128));
  EXPECT_EQ(mapOf(p).of(1, 7), onDevice(30720 + 2 * 128));
  EXPECT_EQ(mapOf(p).of(1, 4), onDevice(4096 + 5 * 256 + 4 * 256)); // of KV
  EXPECT_EQ(mapOf(p).bytesOf(0, 5), 128u);
  EXPECT_EQ(mapOf(p).bytesOf(5), 2 * 128u + 16);
  EXPECT_FALSE(mapOf(p).actsOnHost());
  placement.extents.back() = {3, Space::Host, true, 0, 3 * 128, 30720};
  EXPECT_TRUE(mapOf(p).actsOnHost());
  EXPECT_EQ(mapOf(p).of(1, 7), onHost(30720 + 2 * 128));
}

// Of two layers and three blocks.
TEST(CacheMap, PartsGoByNumberOrByLayerAndIdsComeLast) {
  const auto partsOf = [](bool byNumber) {
    std::vector<std::pair<int64_t, size_t>> parts;
    for (uint64_t number = 0; number < 9; ++number) {
      const BlockPart part = blockPart(number, 2, 3, byNumber);
      parts.emplace_back(part.layer, part.index);
    }
    return parts;
  };
  using Parts = std::vector<std::pair<int64_t, size_t>>;
  EXPECT_EQ(partsOf(true), Parts({{0, 0}, {1, 0}, {0, 1}, {1, 1}, {0, 2}, {1, 2}, {2, 0}, {2, 1}, {2, 2}}));
  EXPECT_EQ(partsOf(false), Parts({{0, 0}, {0, 1}, {0, 2}, {1, 0}, {1, 1}, {1, 2}, {2, 0}, {2, 1}, {2, 2}}));
}

} // namespace
} // namespace headrace::plan
