// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/plan/PlacementBuilder.h"

#include <algorithm>

namespace headrace::plan::test {

// Visits of layers, layer by layer, in it mini-batch by mini-batch. Each has the next slot, and what it leaves there
// goes home; or, where residuals stay, what is in a slot is used there, and makes room only for what is in none: the
// one that was used longest ago. A stage that receives brings what its first layer is for; what the last of one that
// sends has left goes home.
void PlacementBuilder::chooseVisits() {
  visits_.clear();
  if (!plan_.residualsLeave())
    return;
  const uint32_t count = plan_.miniBatches, layers = static_cast<uint32_t>(plan_.model->layers);
  const auto slots = static_cast<uint32_t>(options_.residualSlots);
  std::vector<uint32_t> held(slots, kNone); // the visit that was there last
  for (uint32_t v = 0; v < layers * count; ++v) {
    uint32_t slot = v % slots;
    const auto own = std::find_if(held.begin(), held.end(), [&](uint32_t h) { return h != kNone && h + count == v; });
    if (options_.residualsStay)
      for (uint32_t i = 0; i < slots; ++i)
        if (held[slot] != kNone && (held[i] == kNone || held[i] < held[slot]))
          slot = i;
    const bool stays = options_.residualsStay && own != held.end();
    if (stays)
      slot = static_cast<uint32_t>(own - held.begin());
    else if (options_.residualsStay && held[slot] != kNone && held[slot] + count < layers * count)
      visits_[held[slot]].leaves = true;
    const bool last = v + count >= layers * count;
    visits_.push_back({slot, v < count ? plan_.receives() : !stays, last ? plan_.sends() : !options_.residualsStay});
    held[slot] = v;
  }
}

uint64_t PlacementBuilder::residualAddress(uint32_t visit) const {
  const std::vector<Slot> &slots = placement().slots;
  return slots[slots.size() - static_cast<size_t>(options_.residualSlots) + visits_[visit].slot].address;
}
Operand PlacementBuilder::residual(Arg arg, Access access) const {
  const uint32_t buffer = residualBuffer(miniBatch_);
  return {buffer, Space::Device, access, arg, 0, plan_.buffers[buffer].bytes, residualAddress(visit_)};
}

// Home behind a visit, as long after it as the limits say, but before its slot or its home is wanted; and back into a
// slot as soon as that is free.
void PlacementBuilder::addCopiesOfResiduals() {
  const uint32_t count = plan_.miniBatches, all = static_cast<uint32_t>(visits_.size());
  std::vector<int> evicted(all, kNever); // the compute step behind which a visit's evict stands
  const auto copy = [&](uint32_t v, int after) {
    const uint32_t buffer = residualBuffer(v % count);
    PlannedCopy c{buffer, 0, plan_.buffers[buffer].bytes, residualAddress(v), hostAddress(buffer), after};
    c.neededBy = visits_[v].begin;
    c.resizable = options_.resizable;
    return c;
  };
  for (uint32_t v = 0; v < all; ++v) {
    const Visit &visit = visits_[v];
    int after = lastReader(residualAddress(v), plan_.buffers[residualBuffer(0)].bytes, visit.begin);
    for (uint32_t before = 0; before < v; ++before)
      if (visits_[before].slot == visit.slot || before + count == v)
        after = std::max(after, evicted[before]);
    if (visit.brought)
      copies_.push_back(copy(v, after));
    if (!visit.leaves)
      continue;
    int wanted = v + count < all ? visits_[v + count].begin : static_cast<int>(computes_.size()) - 1; // the publish
    for (uint32_t next = v + 1; next < all; ++next)
      if (visits_[next].slot == visit.slot) {
        wanted = std::min(wanted, visits_[next].begin);
        break;
      }
    evicted[v] = std::min(visit.last + limits_->evictAfter, wanted - 1);
    PlannedCopy evict = copy(v, evicted[v]);
    evict.toHost = true;
    evicts_.push_back(evict);
  }
  std::stable_sort(evicts_.begin(), evicts_.end(),
                   [](const PlannedCopy &a, const PlannedCopy &b) { return a.after < b.after; });
  sortCopiesByUse();
}

} // namespace headrace::plan::test
