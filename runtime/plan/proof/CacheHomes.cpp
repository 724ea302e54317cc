// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/proof/CacheHomes.h"

#include <algorithm>

#include "runtime/model/ModelSpec.h"

namespace headrace::plan {

CacheHomes::CacheHomes(const Plan &plan) : blockBytes_(plan.kvBlockBytes()), caches_(plan.kvCaches()) {
  for (const Placement &placement : plan.placements) {
    Home home;
    for (const Extent &e : placement.extents) {
      if (e.interleaved) {
        home.base = home.resident == 0 ? e.address : std::min(home.base, e.address);
        home.resident = e.bytes; // of every cache the same
      }
      split_ |= e.interleaved || (e.space == Space::Host && plan.buffers[e.buffer].kind == BufferKind::Kv);
    }
    if (!split_)
      return; // nor is any in another placement
    home.bytes = static_cast<uint64_t>(placement.kvBlocks) * blockBytes_;
    homes_.push_back(home);
  }
  const Placement *fewest = nullptr; // of those that have a tail, the one with the fewest blocks on the device
  for (size_t i = 0; i < homes_.size(); ++i) {
    mirrorEnd_ = std::max(mirrorEnd_, homes_[i].bytes);
    if (homes_[i].bytes > homes_[i].resident && (fewest == nullptr || homes_[i].resident < mirrorBegin_)) {
      fewest = &plan.placements[i];
      mirrorBegin_ = homes_[i].resident;
    }
  }
  if (fewest == nullptr) {
    mirrorEnd_ = 0;
    return;
  }
  slab_.assign(plan.buffers.size(), 0);
  for (const Extent &e : fewest->extents)
    if (e.space == Space::Host)
      slab_[e.buffer] = e.address - e.bufferOffset;
}

uint64_t CacheHomes::mostResidentBytes() const {
  uint64_t most = 0;
  for (const Home &home : homes_)
    most = std::max(most, home.resident);
  return most;
}

} // namespace headrace::plan
