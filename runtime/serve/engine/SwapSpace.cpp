// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/engine/SwapSpace.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "runtime/base/StatusMacros.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::serve {

SwapSpace::SwapSpace(const plan::Plan &plan, uint64_t bytes)
    : slotBytes_(plan::movedBlockBytes(plan)), layers_(plan.model->layers), block_(plan.kvBlockBytes()),
      byNumber_(plan::CacheMap(plan, plan.placements.front()).byNumber()) {
  slots_ = static_cast<int64_t>(
      std::min<uint64_t>(bytes / slotBytes_, static_cast<uint64_t>(std::numeric_limits<int32_t>::max())));
  for (int64_t slot = 0; slot < slots_; ++slot)
    free_.push_back(static_cast<int32_t>(slot)); // ascending: already a heap
}

bool SwapSpace::take(int64_t count, std::vector<int32_t> &slots) {
  if (count > freeSlots())
    return false;
  for (int64_t i = 0; i < count; ++i) {
    std::pop_heap(free_.begin(), free_.end(), std::greater<>());
    slots.push_back(free_.back());
    free_.pop_back();
  }
  return true;
}

void SwapSpace::giveBack(std::vector<int32_t> &slots) {
  for (; !slots.empty(); slots.pop_back()) {
    free_.push_back(slots.back()); // its capacity was taken by the constructor
    std::push_heap(free_.begin(), free_.end(), std::greater<>());
  }
}

// Behind the layers of all slots lie the ids of all.
uint64_t SwapSpace::offset(int64_t layer, int32_t slot) const {
  const auto l = static_cast<uint64_t>(layer), s = static_cast<uint64_t>(slot), layers = static_cast<uint64_t>(layers_);
  const auto slots = static_cast<uint64_t>(slots_);
  if (layer == layers_)
    return slots * layers * block_ + s * (slotBytes_ - layers * block_);
  return (byNumber_ ? s * layers + l : l * slots + s) * block_;
}

plan::BlockPart SwapSpace::part(const Move &move, uint64_t number) const {
  return plan::blockPart(number, layers_, move.blocks.size(), byNumber_);
}

uint64_t SwapSpace::linkBytes(const Move &move) const {
  uint64_t bytes = 0;
  for (const int32_t block : move.blocks)
    bytes += move.map->bytesOf(layers_, block) +
             (block < move.map->resident() ? static_cast<uint64_t>(layers_) * block_ : 0);
  return bytes;
}

absl::StatusOr<uint64_t> SwapSpace::copyBeside(const Move &move, core::BlockMover &mover) const {
  const uint64_t parts = hostEnd(move) + move.blocks.size();
  for (uint64_t number = 0; number < parts; ++number) {
    const plan::BlockPart one = part(move, number);
    RETURN_IF_ERROR(mover.add(move.toBlocks, placeOf(move, one), offset(one.layer, move.slots[one.index]),
                              move.map->bytesOf(one.layer, move.blocks[one.index])));
  }
  return mover.ask();
}

bool SwapSpace::movesOnHost(const Move &move) const {
  return std::any_of(move.blocks.begin(), move.blocks.end(), [&](int32_t block) {
    return core::BlockMover::movesOnHost(move.map->of(0, block, move.miniBatch), move.toBlocks);
  });
}

uint64_t SwapSpace::moveOnHost(const Move &move, core::BlockMover &mover, absl::Span<std::byte> swap, uint64_t bytes,
                               uint64_t &cursor) const {
  uint64_t moved = 0;
  for (; cursor < hostEnd(move) && moved < bytes; ++cursor) {
    const plan::BlockPart one = part(move, cursor);
    const plan::BlockPlace place = placeOf(move, one);
    if (!core::BlockMover::movesOnHost(place, move.toBlocks))
      continue;
    mover.onHost(place, move.toBlocks, swap.subspan(offset(one.layer, move.slots[one.index]), block_));
    moved += block_;
  }
  return moved;
}

} // namespace headrace::serve
