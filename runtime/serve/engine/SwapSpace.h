// SPDX-License-Identifier: Apache-2.0
//
// Where the KV of sequences lies that are away from their blocks: swap memory (core::Device::reserveSwap) in slots, one
// for a KV block of all layers and the ids of its tokens; and what is moved between blocks and slots.
//
//   block at home on the device   over the link, beside launches: in runs, where blocks and slots follow each other
//   block at home on the host     within host memory, by the caller's thread, in portions
//
// In swap memory a slot's layers lie as those of a block on the device do: together where caches are interleaved, else
// layer by layer. So neighbours are one copy.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/core/BlockMover.h"
#include "runtime/plan/value/CacheMap.h"

namespace headrace::serve {

class SwapSpace {
public:
  // As many whole slots as `bytes` hold.
  SwapSpace(const plan::Plan &plan, uint64_t bytes);

  uint64_t bytes() const { return static_cast<uint64_t>(slots_) * slotBytes_; } // of all slots
  int64_t slots() const { return slots_; }
  int64_t freeSlots() const { return static_cast<int64_t>(free_.size()); }

  // The lowest of those that are free; false, and nothing is taken, where there are fewer. Allocates nothing where
  // `slots` has the capacity.
  bool take(int64_t count, std::vector<int32_t> &slots);
  void giveBack(std::vector<int32_t> &slots);

  // A block of a sequence for each slot of `slots`: `toBlocks` says which way they go.
  struct Move {
    const plan::CacheMap *map = nullptr; // of the placement
    uint32_t miniBatch = 0;              // whose blocks they are
    bool toBlocks = false;
    absl::Span<const int32_t> blocks, slots;
  };
  // Bytes that the move takes over the link.
  uint64_t linkBytes(const Move &move) const;
  // Asks for its copies beside launches. Returns the last ticket, with which all of them have ended; 0: there are none.
  absl::StatusOr<uint64_t> copyBeside(const Move &move, core::BlockMover &mover) const;
  // Whether there is anything to move within host memory.
  bool movesOnHost(const Move &move) const;
  // Does about `bytes` of that, from `cursor` on (0 at first), on a device that holds data, whose swap memory is
  // `swap`. Returns what was moved; `cursor` is hostEnd() when all is.
  uint64_t moveOnHost(const Move &move, core::BlockMover &mover, absl::Span<std::byte> swap, uint64_t bytes,
                      uint64_t &cursor) const;
  uint64_t hostEnd(const Move &move) const { return static_cast<uint64_t>(layers_) * move.blocks.size(); }

private:
  uint64_t offset(int64_t layer, int32_t slot) const; // of a part of a slot
  plan::BlockPart part(const Move &move, uint64_t number) const;
  plan::BlockPlace placeOf(const Move &move, const plan::BlockPart &part) const {
    return move.map->of(part.layer, move.blocks[part.index], move.miniBatch);
  }

  uint64_t slotBytes_ = 0;
  int64_t slots_ = 0, layers_ = 0;
  uint64_t block_ = 0; // bytes, of one layer
  bool byNumber_ = false;
  std::vector<int32_t> free_; // a heap, the lowest on top
};

} // namespace headrace::serve
