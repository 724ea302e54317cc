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
#include "runtime/core/Device.h"
#include "runtime/core/KvPlaces.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::serve {

class SwapSpace {
public:
  // As many whole slots as `bytes` hold.
  SwapSpace(const plan::Plan &plan, uint64_t bytes);

  static uint64_t slotBytes(const plan::Plan &plan);
  uint64_t bytes() const { return static_cast<uint64_t>(slots_) * slotBytes_; } // of all slots
  int64_t slots() const { return slots_; }
  int64_t freeSlots() const { return static_cast<int64_t>(free_.size()); }

  // The lowest of those that are free; false, and nothing is taken, where there are fewer. Allocates nothing where
  // `slots` has the capacity.
  bool take(int64_t count, std::vector<int32_t> &slots);
  void giveBack(std::vector<int32_t> &slots);

  // A block of a sequence for each slot of `slots`, in a placement: `toDevice` says which way they go.
  struct Move {
    uint32_t placement = 0;
    uint32_t miniBatch = 0; // whose blocks they are
    bool toDevice = false;
    absl::Span<const int32_t> blocks, slots;
  };
  // Bytes that the move takes over the link.
  uint64_t linkBytes(const Move &move) const;
  // Asks for its copies beside launches. Returns the last ticket, with which all of them have ended; 0: there are none.
  absl::StatusOr<uint64_t> copyBeside(const Move &move, core::Device &device);
  // Whether there is anything to move within host memory.
  bool movesOnHost(const Move &move) const;
  // Does about `bytes` of that, from `cursor` on (0 at first), on a device that holds data. No launch may be under way,
  // and homes are current (Runtime::flushKv). Returns what was moved; `cursor` is hostEnd() when all is.
  uint64_t moveOnHost(const Move &move, core::Device &device, uint64_t bytes, uint64_t &cursor) const;
  uint64_t hostEnd(const Move &move) const { return static_cast<uint64_t>(layers_) * move.blocks.size(); }

private:
  uint64_t offset(int64_t layer, int32_t slot) const;
  absl::Status add(const core::BlockCopy &copy, core::Device &device);
  absl::Status flush(core::Device &device);

  uint64_t slotBytes_ = 0;
  int64_t slots_ = 0, layers_ = 0;
  uint64_t block_ = 0, idBytes_ = 0; // of one layer, and of a block's ids
  bool together_ = false;            // a slot's layers
  std::vector<core::KvLayout> layouts_;
  std::vector<bool> onHost_;           // of each placement: whether a block has a copy on the host
  std::vector<int32_t> free_;          // a heap, the lowest on top
  std::vector<core::BlockCopy> batch_; // that is asked for next
  uint64_t ticket_ = 0;
};

} // namespace headrace::serve
