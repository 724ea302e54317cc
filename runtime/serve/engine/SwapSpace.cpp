// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/engine/SwapSpace.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>

#include "runtime/base/StatusMacros.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::serve {
namespace {

constexpr size_t kBatch = 256; // copies asked for at once

} // namespace

uint64_t SwapSpace::slotBytes(const plan::Plan &plan) {
  return static_cast<uint64_t>(plan.model->layers) * plan.kvBlockBytes() +
         static_cast<uint64_t>(plan.blockTokens) * sizeof(int32_t);
}

SwapSpace::SwapSpace(const plan::Plan &plan, uint64_t bytes)
    : slotBytes_(slotBytes(plan)), layers_(plan.model->layers), block_(plan.kvBlockBytes()),
      idBytes_(static_cast<uint64_t>(plan.blockTokens) * sizeof(int32_t)) {
  slots_ = static_cast<int64_t>(
      std::min<uint64_t>(bytes / slotBytes_, static_cast<uint64_t>(std::numeric_limits<int32_t>::max())));
  for (int64_t slot = 0; slot < slots_; ++slot)
    free_.push_back(static_cast<int32_t>(slot)); // ascending: already a heap
  for (uint32_t p = 0; p < plan.placements.size(); ++p) {
    layouts_.emplace_back(plan, p);
    for (const plan::Extent &extent : plan.placements[p].extents)
      together_ |= extent.interleaved;
    bool onHost = false;
    for (int64_t block = 0; block < layouts_[p].blocks(); ++block) {
      const core::KvPlaces places = layouts_[p].of(0, block);
      onHost |= places.space == plan::Space::Host || places.mirrored;
    }
    onHost_.push_back(onHost);
  }
  batch_.reserve(kBatch);
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

uint64_t SwapSpace::offset(int64_t layer, int32_t slot) const {
  const auto l = static_cast<uint64_t>(layer), s = static_cast<uint64_t>(slot);
  return (together_ ? s * static_cast<uint64_t>(layers_) + l : l * static_cast<uint64_t>(slots_) + s) * block_;
}

uint64_t SwapSpace::linkBytes(const Move &move) const {
  uint64_t bytes = 0;
  for (const int32_t block : move.blocks)
    bytes += idBytes_ + (layouts_[move.placement].of(0, block, move.miniBatch).space == plan::Space::Device
                             ? static_cast<uint64_t>(layers_) * block_
                             : 0);
  return bytes;
}

absl::Status SwapSpace::flush(core::Device &device) {
  if (batch_.empty())
    return absl::OkStatus();
  ASSIGN_OR_RETURN(ticket, device.copyBeside(batch_));
  ticket_ = ticket;
  batch_.clear();
  return absl::OkStatus();
}

// To the batch, as one with the copy before it where both sides go on.
absl::Status SwapSpace::add(const core::BlockCopy &copy, core::Device &device) {
  if (!batch_.empty()) {
    core::BlockCopy &last = batch_.back();
    if (last.device + last.bytes == copy.device && last.swap + last.bytes == copy.swap) {
      last.bytes += copy.bytes;
      return absl::OkStatus();
    }
  }
  if (batch_.size() == kBatch)
    RETURN_IF_ERROR(flush(device));
  batch_.push_back(copy);
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> SwapSpace::copyBeside(const Move &move, core::Device &device) {
  const core::KvLayout &layout = layouts_[move.placement];
  ticket_ = 0;
  const auto addBlock = [&](int64_t layer, size_t i) {
    const core::KvPlaces places = layout.of(layer, move.blocks[i], move.miniBatch);
    if (places.space != plan::Space::Device)
      return absl::OkStatus();
    return add({move.toDevice, places.address, offset(layer, move.slots[i]), block_}, device);
  };
  const auto layers = static_cast<size_t>(layers_);
  for (size_t outer = 0; outer < (together_ ? move.blocks.size() : layers); ++outer)
    for (size_t inner = 0; inner < (together_ ? layers : move.blocks.size()); ++inner)
      RETURN_IF_ERROR(together_ ? addBlock(static_cast<int64_t>(inner), outer)
                                : addBlock(static_cast<int64_t>(outer), inner));
  const uint64_t idsOfSlots = static_cast<uint64_t>(slots_ * layers_) * block_;
  for (size_t i = 0; i < move.blocks.size(); ++i)
    RETURN_IF_ERROR(add({move.toDevice, layout.ids(move.blocks[i], move.miniBatch),
                         idsOfSlots + static_cast<uint64_t>(move.slots[i]) * idBytes_, idBytes_},
                        device));
  RETURN_IF_ERROR(flush(device));
  return ticket_;
}

bool SwapSpace::movesOnHost(const Move &move) const {
  return onHost_[move.placement] && std::any_of(move.blocks.begin(), move.blocks.end(), [&](int32_t block) {
           const core::KvPlaces places = layouts_[move.placement].of(0, block, move.miniBatch);
           return places.space == plan::Space::Host || (move.toDevice && places.mirrored);
         });
}

uint64_t SwapSpace::moveOnHost(const Move &move, core::Device &device, uint64_t bytes, uint64_t &cursor) const {
  const core::KvLayout &layout = layouts_[move.placement];
  const absl::Span<std::byte> slab = device.hostSlab(), swap = device.swapMemory();
  uint64_t moved = 0;
  for (; cursor < hostEnd(move) && moved < bytes; ++cursor) {
    const auto layer = static_cast<int64_t>(cursor / move.blocks.size());
    const size_t i = cursor % move.blocks.size();
    const core::KvPlaces places = layout.of(layer, move.blocks[i], move.miniBatch);
    const bool home = places.space == plan::Space::Host;
    if (!home && !(move.toDevice && places.mirrored))
      continue;
    std::byte *const at = slab.data() + (home ? places.address : places.mirror);
    std::byte *const slot = swap.data() + offset(layer, move.slots[i]);
    if (move.toDevice)
      std::memcpy(at, slot, block_);
    else
      std::memcpy(slot, at, block_);
    moved += block_;
  }
  return moved;
}

} // namespace headrace::serve
