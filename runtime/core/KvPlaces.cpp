// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/KvPlaces.h"

#include <algorithm>

#include "runtime/model/ModelSpec.h"

namespace headrace::core {

KvLayout::KvLayout(const plan::Plan &plan, uint32_t placement)
    : block_(plan.kvBlockBytes()), stride_(plan.kvBlockBytes()), blocks_(plan.placements[placement].kvBlocks),
      resident_(blocks_), mirrored_(blocks_), miniBatches_(plan.miniBatches),
      caches_(static_cast<size_t>(plan.kvCaches())) {
  const uint32_t history = plan.ioBuffer(plan::Io::History);
  if (history != plan::kNone)
    idsRange_ = plan.ioRangeBytes(plan.buffers[history]);
  idBytes_ = static_cast<uint64_t>(plan.blockTokens) * sizeof(int32_t);
  for (const plan::Extent &e : plan.placements[placement].extents)
    if (e.buffer == history)
      ids_ = e.address;
  const auto isCache = [&](const plan::Extent &e) { return plan.buffers[e.buffer].kind == plan::BufferKind::Kv; };
  const auto cacheOf = [&](const plan::Extent &e) -> Cache & {
    return caches_[plan.cacheNumber(plan.buffers[e.buffer])];
  };
  for (const plan::Extent &e : plan.placements[placement].extents) {
    if (!isCache(e))
      continue;
    if (e.space == plan::Space::Device) {
      cacheOf(e).device = e.address;
      stride_ = e.interleaved ? plan.kvStride() : block_;
    } else {
      resident_ = static_cast<int64_t>(e.bufferOffset / block_); // of all caches as many, or none
    }
  }
  // One slab serves all placements.
  for (const plan::Placement &other : plan.placements)
    for (const plan::Extent &e : other.extents)
      if (isCache(e) && e.space == plan::Space::Host) {
        cacheOf(e).host = e.address - e.bufferOffset;
        mirrored_ = std::min(mirrored_, static_cast<int64_t>(e.bufferOffset / block_));
      }
}

KvPlaces KvLayout::of(int64_t layer, int64_t block, uint32_t miniBatch) const {
  const Cache &of = caches_[static_cast<size_t>(layer * miniBatches_ + miniBatch)];
  const auto number = static_cast<uint64_t>(block);
  const uint64_t host = of.host + number * block_;
  if (block >= resident_)
    return {plan::Space::Host, host, false, 0};
  return {plan::Space::Device, of.device + number * stride_, block >= mirrored_, host};
}

} // namespace headrace::core
