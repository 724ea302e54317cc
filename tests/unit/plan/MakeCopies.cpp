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

} // namespace headrace::plan::test
