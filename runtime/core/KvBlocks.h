// SPDX-License-Identifier: Apache-2.0
//
// Which KV blocks are whose. One number names a block in every layer's cache. Block 0 is the scratch block of padded
// rows and never given out; of the free ones the lowest is given first, so that blocks in use stay together at the
// front. How many there are depends on the placement: the runtime moves the limit, and does not take back a block that
// is in use (Runtime::kvBlocks).
//
// How many of them may be in use at a time is its user's (setOffered): so much of the KV cache, and no more.
//
// With activation blocks (runtime/job/ActRatio.h) which kind a table's next block is follows from how many it has;
// those are numbered behind the KV blocks. What is counted as free or used is blocks of either kind.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "runtime/job/ActRatio.h"

namespace headrace::core {

// As Plan has them.
struct ActBlocks {
  int64_t blocks = 0; // 0: none, all tables are of KV blocks
  int64_t context = 0;
  model::ActRatio share;
  int64_t sequences = 0; // the most that `blocks` are enough for, whatever they have of the context's
};

class KvBlocks {
public:
  // `blocks` a layer, the scratch block included; at first all of them may be given out.
  KvBlocks(int64_t blocks, int64_t blockTokens, const ActBlocks &act = {});

  // That may be given out now; below 0 while more are in use than are offered.
  int64_t freeBlocks() const { return std::min(free_, offered_ - used()); }
  // The same where as many tables that are empty may grow. With activation blocks so many more tables than sequences
  // may run (those that have left, whose last rows are in flight) may all want blocks of one kind.
  int64_t freeBlocks(int64_t tables) const {
    const bool any = act_.blocks == 0 || tables_ + tables <= act_.sequences;
    return any ? freeBlocks() : std::min({freeBlocks(), ofKind(heap_), ofKind(actHeap_)});
  }
  int64_t used() const { return inUse_; }
  // Of either kind.
  int64_t kvUsed() const { return kvBlocks_ - 1 - ofKind(heap_); }
  int64_t actUsed() const { return act_.blocks - ofKind(actHeap_); }
  int64_t blocksFor(int64_t tokens) const { return (tokens + blockTokens_ - 1) / blockTokens_; }

  // Appends blocks to `table` until it holds `tokens` tokens. ResourceExhausted, with nothing taken, if too few are
  // free. Allocates nothing if the table has the capacity.
  absl::Status grow(std::vector<int32_t> &table, int64_t tokens);
  // Takes back the blocks of `table` behind those that hold its first `tokens` tokens.
  void shrink(std::vector<int32_t> &table, int64_t tokens);
  // Takes back all blocks of `table` and empties it.
  void release(std::vector<int32_t> &table);

  // Gives the lowest free block of its kind in place of `block`, which is free then, for who moves what that holds.
  // False, and nothing changes, where no lower one is free.
  bool lower(int32_t &block);

  // Only KV blocks below the limit are given out, until the runtime changes to a placement, which sets its own.
  // FailedPrecondition, and nothing changes, while one above is in use.
  int64_t limit() const { return limit_; }
  absl::Status setLimit(int64_t limit);
  // At most so many are given out at a time, whichever they are; at first any number. Those in use stay where more are.
  // What is not given out is not moved either, so a pool whose tail is on the host grows and shrinks by this alone.
  int64_t offered() const { return offered_; }
  void setOffered(int64_t blocks) { offered_ = std::max<int64_t>(0, blocks); }
  // One more than the highest KV block that is in use; at least 1, for the scratch block.
  int64_t endOfUse() const { return end_; }
  // How many activation blocks, from the first on, have all of those in use.
  int64_t actEndOfUse() const { return actEnd_; }
  // KV blocks of this number and above that are in use: a placement with no more blocks than this must wait for them.
  int64_t blocksInUseAbove(int64_t limit) const;

private:
  void trimEnds(); // down to the highest in use
  static int64_t ofKind(const std::vector<int32_t> &heap) { return static_cast<int64_t>(heap.size()); }

  int64_t blockTokens_;
  int64_t limit_;
  int64_t free_; // below the limit; with activation blocks, of those of the context
  int64_t offered_ = std::numeric_limits<int64_t>::max();
  int64_t inUse_ = 0;
  int64_t tables_ = 0;                  // that have blocks
  int64_t end_ = 1;                     // of the KV blocks in use
  int64_t actEnd_ = 0;                  // of the activation blocks in use, counted from the first
  std::vector<uint8_t> used_;           // by block
  std::vector<int32_t> heap_, actHeap_; // of all of a kind that are not used, the lowest on top
  ActBlocks act_;
  int64_t kvBlocks_; // of all that there are
};

} // namespace headrace::core
