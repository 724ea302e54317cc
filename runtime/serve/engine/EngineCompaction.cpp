// SPDX-License-Identifier: Apache-2.0
//
// Of KV blocks at home on the host an iteration brings all up to the highest in use, and those between that nobody
// uses. Blocks are given out lowest first; what is left apart as sequences end is moved together, from the highest in
// use to the lowest that is free, at edges at which nothing is in flight:
//
//   in use   | 1 2 3 . 5 . . 8 | 9 . . 12 . 14 |     14 moves to 4, 12 to 6: nothing above 9 is brought any more
//            | device's        | host's        |
//
// What a joined prompt will take at once is left free for it. Activation blocks that are all at home on the host are
// moved among themselves.
//
// Where fewer are offered than a placement has (Pie's places), those above the ones of a smaller placement are moved
// for it to be taken.
#include <algorithm>

#include "runtime/base/StatusMacros.h"
#include "runtime/core/BlockMover.h"
#include "runtime/serve/engine/Engine.h"

namespace headrace::serve {
namespace {

constexpr uint64_t kMovedAtOnce = uint64_t{128} << 20; // bytes at an edge, one block at least
constexpr int64_t kApartShare = 64;                    // one part of so many of what is brought may lie apart

} // namespace

// Free blocks among those that are brought or below them, as many as blocks that could be moved. Where placements have
// different numbers of blocks: those in use that the smallest with as many as are offered has not.
int64_t Engine::apart(const MiniBatch &of, bool act) const {
  if (!byBlocks_.empty())
    return !act && of.blocks->used() <= expansion_->offered() ? of.blocks->blocksInUseAbove(expansion_->offered() + 1)
                                                              : 0;
  if (act && !runtime_.caches().actsOnHost())
    return 0;
  const int64_t end = act ? of.blocks->actEndOfUse() : of.blocks->endOfUse() - 1;
  const int64_t brought = act ? end : end + 1 - resident();
  if (brought <= 0)
    return 0;
  const auto ofKind = [&](int64_t blocks) {
    const int64_t acts = plan_.actBlocks > 0 ? plan_.actRatio.of(blocks) : 0;
    return act ? acts : blocks - acts;
  };
  int64_t coming = 0;
  for (const Sequence &one : of.running)
    coming += std::max<int64_t>(0, ofKind(of.blocks->blocksFor(one.prefill)) -
                                       ofKind(static_cast<int64_t>(one.blocks.size())));
  const int64_t used = act ? of.blocks->actUsed() : of.blocks->kvUsed();
  const int64_t holes = std::min(end - used - coming, brought);
  return holes > 1 + brought / kApartShare ? holes : 0;
}

bool Engine::wantsCompaction() const {
  const bool compacts = compacts_[runtime_.placement()] || (!byBlocks_.empty() && resident() == 0);
  return compacts && !isStatic() && !swapping() &&
         std::any_of(miniBatches_.begin(), miniBatches_.end(),
                     [this](const MiniBatch &one) { return apart(one, false) > 0 || apart(one, true) > 0; });
}

// The entry of a block table that has the highest block of a mini-batch.
int32_t *Engine::highestBlock(MiniBatch &of, bool act) {
  const auto highest =
      static_cast<int32_t>(act ? plan_.kvBlocks + of.blocks->actEndOfUse() - 1 : of.blocks->endOfUse() - 1);
  for (Sequences *sequences : {&of.running, &waiting_, &leaving_, &kept_})
    for (Sequence &sequence : *sequences)
      if (sequence.miniBatch == of.number)
        if (const auto at = std::find(sequence.blocks.begin(), sequence.blocks.end(), highest);
            at != sequence.blocks.end())
          return &*at;
  return nullptr; // the caller's own: blocks that it took from the pool
}

// About a portion, with nothing in flight.
absl::Status Engine::compact() {
  RETURN_IF_ERROR(runtime_.flushKv());
  RETURN_IF_ERROR(device_.drain());
  uint64_t moved = 0;
  for (MiniBatch &one : miniBatches_)
    for (const bool act : {false, true})
      for (int64_t left = apart(one, act); left > 0 && moved < kMovedAtOnce; --left) {
        int32_t *const entry = highestBlock(one, act);
        if (entry == nullptr)
          break;
        const int32_t from = *entry;
        if (from < resident() || !one.blocks->lower(*entry))
          break;
        ASSIGN_OR_RETURN(bytes, runtime_.mover().move(runtime_.caches(), one.number, from, *entry));
        moved += runtime_.caches().bytesOf(from);
        ++counters_.compactedBlocks;
        counters_.compactionBytes += bytes;
      }
  if (moved > 0)
    runtime_.kvWritten();
  return absl::OkStatus();
}

} // namespace headrace::serve
