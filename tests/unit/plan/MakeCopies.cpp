// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/plan/PlacementBuilder.h"

#include <algorithm>

namespace headrace::plan::test {

// The last compute step that reads slot bytes [address, address + bytes), looking at steps before `before`.
int PlacementBuilder::lastReader(uint64_t address, uint64_t bytes, int before) const {
  for (int i = std::min(before, static_cast<int>(computes_.size())) - 1; i >= 0; --i)
    for (const Operand &o : computes_[i].operands)
      if (o.space == Space::Device && o.address < address + bytes && address < o.address + o.bytes)
        return i;
  return kNever;
}

int PlacementBuilder::firstReader(uint32_t buffer) const {
  for (size_t i = 0; i < computes_.size(); ++i)
    for (const Operand &o : computes_[i].operands)
      if (o.buffer == buffer)
        return static_cast<int>(i);
  return static_cast<int>(computes_.size());
}

int PlacementBuilder::lastReader(uint32_t unit) const {
  int last = kNever;
  for (size_t i = 0; i < computes_.size(); ++i)
    for (const Operand &o : computes_[i].operands)
      if (o.buffer == unit)
        last = static_cast<int>(i);
  return last;
}

PlannedCopy PlacementBuilder::part(uint32_t buffer, uint64_t offset, uint64_t bytes, int after) const {
  PlannedCopy copy{buffer, offset, bytes, slotAddress_.at(buffer) + offset, hostAddress(buffer) + offset, after};
  copy.neededBy = firstReader(buffer);
  copy.resizable = isCache(buffer) && options_.resizable;
  return copy;
}

// Paper: the units of an item together, once the item that had the slot before is through.
void PlacementBuilder::addCopiesOfPaper() {
  std::map<uint32_t, int> free; // slot -> the step after which it is free
  for (const Item &item : items_) {
    const int after = free.contains(item.slot) ? free[item.slot] : kNever;
    for (const uint32_t unit : item.units) {
      copies_.push_back(part(unit, 0, layout_.units[unit].bytes, after));
      copies_.back().neededBy = firstReader(item.units.front());
    }
    const int last = static_cast<int>(copies_.size()) - 1;
    for (const uint32_t unit : item.units)
      for (PlannedCompute &c : computes_)
        for (const Operand &o : c.operands)
          if (o.buffer == unit)
            c.waitsFor = std::max(c.waitsFor, last);
    for (const uint32_t unit : item.units)
      free[item.slot] = std::max(free[item.slot], lastReader(unit));
  }
}

// Eager: unit by unit, each once its own bytes are free; then the prefix of the next iteration.
void PlacementBuilder::addCopiesOfEager(const LimitOptions &limits, State &prefix) {
  int number = 0;
  std::vector<PlannedCopy> tail;
  for (const Item &item : items_)
    for (const uint32_t unit : item.units) {
      const uint64_t bytes = layout_.units[unit].bytes;
      const uint64_t there = number < limits.cutUnits ? bytes : number == limits.cutUnits ? limits.cutBytes : 0;
      ++number;
      const uint64_t address = slotAddress_.at(unit);
      if (there < bytes) {
        copies_.push_back(part(unit, there, bytes - there, lastReader(address, bytes, firstReader(unit))));
        const int copy = static_cast<int>(copies_.size()) - 1;
        for (PlannedCompute &c : computes_)
          for (const Operand &o : c.operands)
            if (o.buffer == unit && o.bufferOffset + o.bytes > there)
              c.waitsFor = std::max(c.waitsFor, copy);
      }
      if (there > 0) {
        prefix.contents.push_back({unit, 0, there, address});
        tail.push_back(part(unit, 0, there, lastReader(address, there, static_cast<int>(computes_.size()))));
        tail.back().neededBy += static_cast<int>(computes_.size());
      }
    }
  copies_.insert(copies_.end(), tail.begin(), tail.end());
  std::sort(prefix.contents.begin(), prefix.contents.end(),
            [](const Content &a, const Content &b) { return a.address < b.address; });
}

// Layer by layer, each once its bytes in the ring are free. Of the first layers the tail is there when an iteration
// starts: all of it, of the last of them `cutBlocks` blocks if those are given; and is brought for the next one where
// another has taken its slot since.
void PlacementBuilder::addCopiesOfTails(State &prefix) {
  const uint64_t block = plan_.kvBlockBytes();
  const uint64_t begin = static_cast<uint64_t>(resident()) * block, end = static_cast<uint64_t>(inUse()) * block;
  if (begin == end)
    return;
  const int steps = static_cast<int>(computes_.size());
  for (int32_t layer = 0; layer < plan_.model->layers; ++layer) {
    const uint32_t kv = plan_.kvBuffer(layer);
    const uint64_t byte0 = slotAddress_.at(kv);
    uint64_t there = begin;
    if (layer < options_.carriedTails)
      there = layer + 1 == options_.carriedTails && options_.cutBlocks > 0
                  ? begin + static_cast<uint64_t>(options_.cutBlocks) * block
                  : end;
    if (there > begin)
      prefix.contents.push_back({kv, begin, there - begin, byte0 + begin});
    for (uint64_t from = there; from < end;) { // half of the blocks first
      uint64_t bytes = end - from;
      if (options_.tailsInParts && bytes > block && from == there)
        bytes = bytes / block / 2 * block;
      copies_.push_back(part(kv, from, bytes, lastReader(byte0 + from, bytes, firstReader(kv))));
      from += bytes;
    }
    if (there > begin && layer + options_.ringSlots < plan_.model->layers) {
      copies_.push_back(part(kv, begin, there - begin, lastReader(byte0 + begin, there - begin, steps)));
      copies_.back().neededBy += steps;
    }
  }
  std::sort(prefix.contents.begin(), prefix.contents.end(),
            [](const Content &a, const Content &b) { return a.address < b.address; });
  sortCopiesByUse();
}

// What is needed first is copied first; who waits for which copy is worked out anew.
void PlacementBuilder::sortCopiesByUse() {
  std::stable_sort(copies_.begin(), copies_.end(),
                   [](const PlannedCopy &a, const PlannedCopy &b) { return a.neededBy < b.neededBy; });
  for (PlannedCompute &c : computes_) {
    c.waitsFor = -1;
    for (const Operand &o : c.operands)
      for (size_t i = 0; i < copies_.size() && copies_[i].neededBy < static_cast<int>(computes_.size()); ++i)
        if (copies_[i].unit == o.buffer && !o.interleaved && o.space == Space::Device &&
            copies_[i].offset < o.bufferOffset + o.bytes && o.bufferOffset < copies_[i].offset + copies_[i].bytes)
          c.waitsFor = static_cast<int>(i);
  }
}

} // namespace headrace::plan::test
