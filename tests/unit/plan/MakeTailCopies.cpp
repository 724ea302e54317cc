// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/plan/PlacementBuilder.h"

#include <algorithm>

namespace headrace::plan::test {

// The compute step or evict (by the compute step that it stands behind) from which on a copy's bytes may be replaced,
// and its home is current; `use`: the compute step that the copy is for.
int PlacementBuilder::freeFrom(const PlannedCopy &copy, int use) const {
  int after = lastReader(copy.address, copy.bytes, use);
  const auto meets = [&](uint64_t address, uint64_t bytes, uint64_t at) {
    return address < at + copy.bytes && at < address + bytes;
  };
  for (int i = 0; i < std::min(use, static_cast<int>(computes_.size())); ++i)
    for (const Operand &o : computes_[static_cast<size_t>(i)].operands)
      if (o.arg == Arg::KvHome && meets(o.address, o.bytes, copy.hostAddress))
        after = std::max(after, i);
  for (const PlannedCopy &evict : evicts_)
    if (evict.neededBy < use &&
        (meets(evict.address, evict.bytes, copy.address) || meets(evict.hostAddress, evict.bytes, copy.hostAddress)))
      after = std::max(after, evict.after);
  return after;
}

// A tail's way home, from a slot in which its byte 0 would be at `byte0`. `append`: what it writes back.
void PlacementBuilder::addEvicts(int64_t layer, uint64_t byte0, int append, int after, bool dirtyOnly) {
  const uint64_t block = plan_.kvBlockBytes();
  const uint64_t begin = static_cast<uint64_t>(resident()) * block, end = static_cast<uint64_t>(inUse()) * block;
  const uint32_t kv = bufferOf(layer);
  const uint64_t half = options_.tailsInParts && end - begin > block ? begin + (end - begin) / block / 2 * block : end;
  for (const auto &[from, to] : {std::pair(begin, half), std::pair(half, end)}) {
    if (from == to)
      continue;
    PlannedCopy evict{kv, from, to - from, byte0 + from, hostAddress(kv) + from, after};
    evict.neededBy = append;
    evict.toHost = true;
    evict.resizable = limits_->keepHome != KeepHome::EvictFixed;
    evict.dirtyOnly = dirtyOnly;
    evicts_.push_back(evict);
  }
}

// Once its bytes in the ring are free. A tail that is carried is there when an iteration starts: all of it, the last of
// them `cutBlocks` blocks if those are given; and is brought for the next iteration, unless it stays where it is.
void PlacementBuilder::addCopiesOfTail(int64_t layer, State &entry, State &exit) {
  const uint64_t block = plan_.kvBlockBytes();
  const uint64_t begin = static_cast<uint64_t>(resident()) * block, end = static_cast<uint64_t>(inUse()) * block;
  const int steps = static_cast<int>(computes_.size());
  const uint32_t kv = bufferOf(layer);
  const uint64_t byte0 = tailAddress(phase_, layer), next = tailAddress(otherPhase(true), layer);
  uint64_t there = begin;
  if (carries(layer))
    there = layer + 1 == options_.carriedTails && options_.cutBlocks > 0
                ? begin + static_cast<uint64_t>(options_.cutBlocks) * block
                : end;
  for (uint64_t from = there; from < end;) { // half of the blocks first
    uint64_t bytes = end - from;
    if (options_.tailsInParts && bytes > block && from == there)
      bytes = bytes / block / 2 * block;
    copies_.push_back(part(kv, from, bytes, kNever));
    copies_.back().after = freeFrom(copies_.back(), firstReader(kv));
    from += bytes;
  }
  if (!carries(layer)) {
    if (!leavesDirty(layer))
      return;
    const uint64_t before = tailAddress(otherPhase(false), layer);
    entry.contents.push_back({kv, begin, end - begin, before + begin, true});
    exit.contents.push_back({kv, begin, end - begin, byte0 + begin, true});
    return;
  }
  entry.contents.push_back({kv, begin, there - begin, byte0 + begin, leavesDirty(layer)});
  exit.contents.push_back({kv, begin, there - begin, next + begin, leavesDirty(layer)});
  bool stays = next == byte0;
  for (int64_t later = layer + 1; later < cacheCount(); ++later)
    stays &= tailAddress(phase_, later) != next;
  if (stays)
    return;
  copies_.push_back(part(kv, begin, there - begin, kNever));
  PlannedCopy &copy = copies_.back();
  copy.address = next + begin;
  copy.after = freeFrom(copy, steps);
  copy.neededBy += steps;
}

void PlacementBuilder::addCopiesOfTails(State &entry, State &exit) {
  if (inUse() == resident())
    return;
  const int steps = static_cast<int>(computes_.size());
  if (options_.cycles)
    return addPlaces(entry, exit);
  for (int64_t layer = 0; layer < cacheCount(); ++layer)
    if (leavesDirty(layer) && !carries(layer))
      addEvicts(layer, tailAddress(otherPhase(false), layer), kNever, kNever, false);
  for (int64_t layer = 0; layer < cacheCount(); ++layer)
    if (evicts(layer) && !leavesDirty(layer)) {
      const int append = firstReader(bufferOf(layer));
      addEvicts(layer, tailAddress(phase_, layer), append, std::min(append + limits_->evictAfter, steps - 1),
                limits_->keepHome == KeepHome::EvictDirty);
    }
  for (int64_t layer = 0; layer < cacheCount(); ++layer)
    addCopiesOfTail(layer, entry, exit);
  for (State *state : {&entry, &exit})
    std::sort(state->contents.begin(), state->contents.end(),
              [](const Content &a, const Content &b) { return a.address < b.address; });
  sortCopiesByUse();
}

// What is needed first is copied first; who waits for which copy is worked out anew.
void PlacementBuilder::sortCopiesByUse() {
  std::stable_sort(copies_.begin(), copies_.end(),
                   [](const PlannedCopy &a, const PlannedCopy &b) { return a.neededBy < b.neededBy; });
  for (int number = 0; PlannedCompute & c : computes_) {
    c.waitsFor = -1;
    for (const Operand &o : c.operands)
      for (size_t i = 0; i < copies_.size() && copies_[i].neededBy <= number; ++i)
        if (copies_[i].unit == o.buffer && !o.interleaved && o.space == Space::Device &&
            copies_[i].offset < o.bufferOffset + o.bytes && o.bufferOffset < copies_[i].offset + copies_[i].bytes)
          c.waitsFor = static_cast<int>(i);
    ++number;
  }
}

} // namespace headrace::plan::test
