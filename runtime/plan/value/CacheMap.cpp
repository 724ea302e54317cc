// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/value/CacheMap.h"

#include <algorithm>

#include "runtime/model/ModelSpec.h"

namespace headrace::plan {
namespace {

bool isCacheOnHost(const Plan &plan, const Extent &extent) {
  return extent.space == Space::Host && extent.buffer < plan.buffers.size() &&
         plan.buffers[extent.buffer].kind == BufferKind::Kv;
}

uint64_t idBytesOf(const Plan &plan) { return static_cast<uint64_t>(plan.blockTokens) * sizeof(int32_t); }

} // namespace

CacheMap::CacheMap(const Plan &plan, const Placement &placement)
    : block_(plan.kvBlockBytes()), pitch_(block_), actBlock_(plan.actBlockBytes()), idBytes_(idBytesOf(plan)),
      blocks_(placement.kvBlocks), resident_(blocks_), mirrored_(std::min(blocks_, firstBlockOnHost(plan))),
      firstAct_(plan.kvBlocks), miniBatches_(plan.miniBatches), actsOnHost_(plan.actBlocks > 0),
      caches_(static_cast<size_t>(plan.kvCaches())) {
  for (const Placement &other : plan.placements) // one slab serves all
    for (const Extent &e : other.extents) {
      byNumber_ |= e.interleaved;
      if (isCacheOnHost(plan, e))
        caches_[plan.cacheNumber(plan.buffers[e.buffer])].host = e.address - e.bufferOffset;
    }
  for (const Extent &e : placement.extents) {
    const Buffer &buffer = plan.buffers[e.buffer];
    const bool onDevice = e.space == Space::Device;
    if (buffer.kind == BufferKind::Kv && onDevice) {
      caches_[plan.cacheNumber(buffer)].device = e.address;
      if (e.interleaved) { // of all caches as many, or none
        pitch_ = plan.kvStride();
        resident_ = static_cast<int64_t>(e.bytes / block_);
      }
    } else if (buffer.kind == BufferKind::Kv) {
      resident_ = static_cast<int64_t>(e.bufferOffset / block_);
    } else if (buffer.kind == BufferKind::Act) {
      (onDevice ? caches_[plan.cacheNumber(buffer)].act.device : caches_[plan.cacheNumber(buffer)].act.host) =
          e.address;
      actsOnHost_ &= !onDevice;
    } else if (buffer.kind == BufferKind::Io && buffer.index == static_cast<uint32_t>(Io::History)) {
      ids_ = e.address;
      idsRange_ = plan.ioRangeBytes(buffer);
    }
  }
}

BlockPlace CacheMap::of(int64_t layer, int64_t block, uint32_t miniBatch) const {
  const auto number = static_cast<uint64_t>(block);
  if (layer == layers())
    return {.device = ids_ + miniBatch * idsRange_ + number * idBytes_};
  const Cache &cache = caches_[static_cast<size_t>(layer * miniBatches_ + miniBatch)];
  if (isAct(block)) {
    const uint64_t offset = static_cast<uint64_t>(block - firstAct_) * actBlock_;
    BlockPlace place = cache.act;
    for (std::optional<uint64_t> *at : {&place.device, &place.host})
      if (*at)
        **at += offset;
    return place;
  }
  BlockPlace place;
  if (block < resident_)
    place.device = cache.device + number * pitch_;
  if (block >= mirrored_)
    place.host = cache.host + number * block_;
  return place;
}

std::vector<CacheMap> cacheMaps(const Plan &plan) {
  std::vector<CacheMap> maps;
  for (const Placement &placement : plan.placements)
    maps.emplace_back(plan, placement);
  return maps;
}

int64_t firstBlockOnHost(const Plan &plan) {
  int64_t first = plan.kvBlocks;
  for (const Placement &placement : plan.placements)
    for (const Extent &e : placement.extents)
      if (isCacheOnHost(plan, e))
        first = std::min(first, static_cast<int64_t>(e.bufferOffset / plan.kvBlockBytes()));
  return first;
}

uint64_t movedBlockBytes(const Plan &plan) {
  return static_cast<uint64_t>(plan.model->layers) * plan.kvBlockBytes() + idBytesOf(plan);
}

BlockPart blockPart(uint64_t number, int64_t layers, size_t blocks, bool byNumber) {
  const auto all = static_cast<uint64_t>(layers);
  if (number >= all * blocks)
    return {layers, number - all * blocks};
  return byNumber ? BlockPart{static_cast<int64_t>(number % all), number / all}
                  : BlockPart{static_cast<int64_t>(number / blocks), number % blocks};
}

} // namespace headrace::plan
