// SPDX-License-Identifier: Apache-2.0
#include "compiler/evaluate/Placements.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/choice/AmountText.h"
#include "passes/algorithms/AssignRing.h"
#include "passes/algorithms/AssignSlots.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {

std::string MemoryNeed::describe() const {
  return absl::StrCat(bytes, " bytes (", leastBytesText(bytes), "): weights at home on the device ", bytesText(weights),
                      ", slots ", bytesText(slots), ", KV cache ", bytesText(kv),
                      ", activations and workspace beyond slots ", bytesText(transients), ", io ", bytesText(io));
}

PlacementFamily::PlacementFamily(const model::ModelSpec &spec, const model::WeightLayout &layout, const Target &target,
                                 std::vector<MemoryUse> uses, Packed packed)
    : spec_(spec), layout_(layout), uses_(std::move(uses)), packed_(std::move(packed)) {
  kvBlockBytes_ = target.kvBlockBytes;
  kvBlocks_ = target.kvBlocks;
  const auto ids = [](int64_t count) { return model::alignUp(static_cast<uint64_t>(count) * sizeof(int32_t)); };
  io_ = static_cast<uint64_t>(target.choice.miniBatches) * (ids(target.batch) + target.historyBytes) +
        target.metaBytes() + ids(target.sequences());
  caches_ = static_cast<uint64_t>(target.caches(spec.layers));
  const auto away = static_cast<uint64_t>(target.choice.miniBatches) * target.choice.residency.actAway().size();
  actBytes_ = (caches_ - away) * target.actBytes;
  actSlots_ = std::min(static_cast<uint64_t>(target.choice.residency.slotsOf(algorithms::MovableKind::Act)), away) *
              target.actBytes;
  actHomes_ = away * target.actBytes;
  for (const StepBuffer &of : stagingBuffers(spec, target))
    staging_ += of.bytes;
  if (const algorithms::Residency &residency = target.choice.residency; residency.residualsHaveHomes()) {
    // One after the other in as many slots, as often as layers and mini-batches make; or each in its own.
    const int64_t slots = residency.residualsLeave()
                              ? std::min(residency.residuals().slots(), target.caches(spec.layers))
                              : target.choice.miniBatches;
    residualSlots_ = static_cast<uint64_t>(slots) * target.residualBytes(spec.hidden);
    residualHomes_ = static_cast<uint64_t>(target.choice.miniBatches) * target.residualBytes(spec.hidden);
  }
  for (const MemoryUse &use : uses_)
    transientsPeak_ = std::max(transientsPeak_, algorithms::packRanges(use.transients).peak);
}

std::vector<PlacementFamily::Item> PlacementFamily::itemsOf(const algorithms::Residency &residency) const {
  std::vector<Item> items;
  std::optional<Item> table; // of tied embeddings: the head's operand, brought last
  int32_t layer = 0;
  for (const int32_t unit : residency.weightsAway()) {
    const model::Unit &of = layout_.units[static_cast<size_t>(unit)];
    if (unit == layout_.embeddingUnit()) {
      if (spec_.tiedEmbeddings) // else it is read where it is
        table = Item{of.bytes, {unit}};
      continue;
    }
    if (items.empty() || of.layer != layer)
      items.emplace_back();
    items.back().units.push_back(unit);
    items.back().bytes += of.bytes;
    layer = of.layer;
  }
  if (table)
    items.push_back(*std::move(table));
  return items;
}

uint64_t PlacementFamily::kvOf(const Candidate &candidate) const {
  const std::optional<int64_t> away = candidate.residency.firstKvBlockAway();
  const int64_t onDevice = away.value_or(blocksOf(candidate));
  return caches_ * model::alignUp(static_cast<uint64_t>(onDevice) * kvBlockBytes_) + actBytes_;
}

uint64_t PlacementFamily::tailsOf(const Candidate &candidate) const {
  const algorithms::Residency &residency = candidate.residency;
  const std::optional<int64_t> away = residency.firstKvBlockAway();
  if (!away)
    return 0;
  const std::vector<uint64_t> tails(static_cast<size_t>(caches_),
                                    model::alignUp(static_cast<uint64_t>(blocksOf(candidate) - *away) * kvBlockBytes_));
  if (residency.cycles())
    return static_cast<uint64_t>(residency.kv().places()) * tails.front();
  uint64_t bytes = 0;
  for (const uint64_t slot :
       algorithms::assignSlotsInCircle(tails, residency.slotsOf(algorithms::MovableKind::Kv)).slotBytes)
    bytes += slot;
  return bytes;
}

uint64_t PlacementFamily::hostBytes(const Candidate &candidate) const {
  uint64_t bytes = residualHomes_ + actHomes_ + staging_;
  for (const int32_t unit : candidate.residency.weightsAway())
    bytes += layout_.units[static_cast<size_t>(unit)].bytes;
  if (const std::optional<int64_t> away = candidate.residency.firstKvBlockAway())
    bytes += caches_ * model::alignUp(static_cast<uint64_t>(blocksOf(candidate) - *away) * kvBlockBytes_);
  return bytes;
}

PlacementFamily::SlotsUsed PlacementFamily::slotsOf(const algorithms::Residency &residency,
                                                    const std::vector<Item> &items, const MemoryUse &use) const {
  std::vector<uint64_t> itemBytes;
  itemBytes.reserve(items.size());
  for (const Item &item : items)
    itemBytes.push_back(item.bytes);
  const algorithms::SlotAssignment slots = algorithms::assignSlots(residency, itemBytes, /*neighbours=*/true);
  SlotsUsed used{slots.slotBytes, {}};
  std::vector<int64_t> free(slots.slotBytes.size(), 0); // from which step on nothing is in the slot
  for (size_t i = 0; i < items.size(); ++i) {
    int64_t last = 0;
    for (int32_t unit : items[i].units)
      last = std::max(last, use.units[static_cast<size_t>(unit)].lastUse);
    used.uses.push_back({slots.slotOf[i], 0, items[i].bytes, free[slots.slotOf[i]], last});
    free[slots.slotOf[i]] = last + 1;
  }
  return used;
}

PlacementFamily::SlotsUsed PlacementFamily::ringOf(const algorithms::Residency &residency,
                                                   const std::vector<Item> &items, const MemoryUse &use) const {
  std::vector<uint64_t> unitBytes;
  std::vector<uint32_t> lastUse;
  for (const Item &item : items)
    for (int32_t unit : item.units) {
      unitBytes.push_back(layout_.units[static_cast<size_t>(unit)].bytes);
      lastUse.push_back(static_cast<uint32_t>(use.units[static_cast<size_t>(unit)].lastUse));
    }
  // A ring that is too small for a unit counts as one that is just large enough.
  const uint64_t ringBytes =
      std::max(residency.weights().ringBytes(), *std::max_element(unitBytes.begin(), unitBytes.end()));
  const algorithms::RingAssignment ring = *algorithms::assignRingWithin(unitBytes, ringBytes);
  const algorithms::RingTimes times = algorithms::ringTimes(ring, unitBytes, lastUse);
  SlotsUsed used{{ring.bytes}, {}};
  int64_t after = -1; // copies keep their order: none runs before one ahead of it
  for (size_t i = 0; i < unitBytes.size(); ++i) {
    after = std::max(after, times.freeAfter[i]);
    used.uses.push_back({0, ring.offset[i], unitBytes[i], after + 1, lastUse[i]});
  }
  return used;
}

std::vector<PlacementFamily::SlotsUsed> PlacementFamily::slotsByClass(const algorithms::Residency &residency) const {
  const std::vector<Item> items = itemsOf(residency);
  std::vector<SlotsUsed> slots;
  if (!items.empty())
    for (const MemoryUse &use : uses_)
      slots.push_back(residency.weights().ringBytes() ? ringOf(residency, items, use) : slotsOf(residency, items, use));
  return slots;
}

PlacementFamily::OfWeights &PlacementFamily::weightsOf(const algorithms::Residency &residency) const {
  const algorithms::Pool &pool = residency.weights();
  const auto [it, fresh] = known_.try_emplace(
      {residency.weightsAway(), pool.slots(), pool.ringBytes(), residency.start.rule, residency.start.items});
  OfWeights &of = it->second;
  if (!fresh)
    return of;
  of.home = layout_.totalBytes();
  for (const int32_t unit : std::get<0>(it->first))
    of.home -= layout_.units[static_cast<size_t>(unit)].bytes;
  if (const std::vector<SlotsUsed> slots = slotsByClass(residency); slots.empty())
    of.transients = transientsPeak_;
  else
    for (const uint64_t bytes : slots[0].bytes)
      of.slots += bytes;
  return of;
}

MemoryNeed PlacementFamily::held(const Candidate &candidate, const OfWeights &weights) const {
  MemoryNeed need;
  need.kv = kvOf(candidate);
  need.io = io_;
  need.weights = weights.home;
  need.slots = weights.slots + tailsOf(candidate) + residualSlots_ + actSlots_;
  need.bytes = need.kv + need.io + need.weights + need.slots;
  return need;
}

MemoryNeed PlacementFamily::held(const Candidate &candidate) const {
  return held(candidate, weightsOf(candidate.residency));
}

MemoryNeed PlacementFamily::need(const Candidate &candidate) const {
  OfWeights &weights = weightsOf(candidate.residency);
  MemoryNeed need = held(candidate, weights);
  need.transients = transientsPeak_;
  if (!candidate.residency.wrapsAround()) {
    if (!weights.transients) {
      const std::vector<SlotsUsed> slots = slotsByClass(candidate.residency);
      std::vector<algorithms::ArenaIteration> iterations;
      for (size_t i = 0; i < uses_.size(); ++i)
        iterations.push_back({uses_[i].transients, slots[i].uses});
      weights.transients = algorithms::layOutArena({}, iterations, slots[0].bytes, {}).top - weights.slots;
    }
    need.transients = *weights.transients;
  }
  need.bytes += need.transients;
  return need;
}

bool PlacementFamily::fits(const Candidate &candidate, uint64_t budget) const {
  // Sharing saves at most all transients; where even that would not do, nothing needs to be packed.
  const MemoryNeed without = held(candidate);
  if (without.bytes > budget || without.bytes + transientsPeak_ <= budget)
    return without.bytes <= budget;
  return packed_(candidate) <= budget;
}

} // namespace headrace::compiler
