// SPDX-License-Identifier: Apache-2.0
#include "compiler/lower/Placements.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/lower/Explain.h"
#include "passes/algorithms/AssignRing.h"
#include "passes/algorithms/AssignSlots.h"
#include "passes/algorithms/PickLayers.h"
#include "runtime/model/ModelSpec.h"
#include "llvm/ADT/DenseMap.h"

namespace headrace::compiler {
namespace {

constexpr int64_t kEagerSlots = 2;

} // namespace

MemoryUse memoryUseOf(ir::IterationOp iteration) {
  MemoryUse use;
  const ir::Ranges ranges(iteration);
  llvm::DenseMap<mlir::Value, size_t> unitOf, transientOf;
  llvm::SmallVector<ir::Access> accesses;
  int64_t step = -1;
  for (mlir::Operation &op : iteration.block()) {
    if (auto weight = llvm::dyn_cast<ir::WeightOp>(op)) {
      unitOf[weight.getBuffer()] = use.units.size();
      use.units.push_back({weight.sizeInBytes(), -1, -1});
      continue;
    }
    auto compute = llvm::dyn_cast<ir::StepInterface>(op);
    if (!compute)
      continue;
    ++step;
    accesses.clear();
    compute.getAccesses(accesses);
    for (const ir::Access &access : accesses) {
      if (!access.value) {
        use.transients.push_back({compute.workspace()->bytes, step, step});
        continue;
      }
      const mlir::Value buffer = ranges.bufferOf(access.value);
      if (const auto unit = unitOf.find(buffer); unit != unitOf.end()) {
        if (llvm::isa<ir::EmbedOp>(op))
          continue; // a table away from the device is read directly
        MemoryUse::Unit &u = use.units[unit->second];
        u.firstUse = u.firstUse < 0 ? step : u.firstUse;
        u.lastUse = step;
      } else if (!llvm::isa<ir::PersistentInterface>(buffer.getDefiningOp())) {
        const auto [entry, fresh] = transientOf.try_emplace(buffer, use.transients.size());
        if (fresh)
          use.transients.push_back({ir::bufferType(buffer).getBytes(), step, step});
        use.transients[entry->second].last = step;
      }
    }
  }
  return use;
}

std::string MemoryNeed::describe() const {
  return absl::StrCat(bytes, " bytes (", bytesText(bytes), "): weights at home on the device ", bytesText(weights),
                      ", slots ", bytesText(slots), ", KV cache ", bytesText(kv),
                      ", activations and workspace beyond slots ", bytesText(transients), ", io ", bytesText(io));
}

PlacementFamily::PlacementFamily(const model::ModelSpec &spec, const model::WeightLayout &layout, const Target &target,
                                 std::vector<MemoryUse> uses)
    : spec_(spec), layout_(layout), uses_(std::move(uses)) {
  kv_ = target.kvBytes * static_cast<uint64_t>(spec.layers);
  io_ = kernels::metaBytes(target.meta) +
        2 * model::alignUp(static_cast<uint64_t>(target.meta.maxSequences) * sizeof(int32_t));
  for (const MemoryUse &use : uses_)
    transientsPeak_ = std::max(transientsPeak_, algorithms::packRanges(use.transients).peak);
}

Candidate PlacementFamily::withLayers(const model::Policy &policy, int64_t layers, int32_t interval,
                                      std::string name) const {
  Candidate candidate;
  candidate.name = std::move(name);
  candidate.interval = interval;
  candidate.layers = layers;
  candidate.startRule = policy.startRule;
  candidate.embedding = policy.offloadEmbedding == model::Choice::On;
  candidate.head = policy.offloadHead == model::Choice::On;
  return candidate;
}

std::vector<int64_t> PlacementFamily::layersOf(const Candidate &candidate) const {
  if (!candidate.units.empty())
    return {};
  return candidate.interval ? algorithms::intervalLayers(spec_.layers, candidate.interval)
                            : algorithms::spreadLayers(spec_.layers, candidate.layers);
}

// As many as the rule asks for; with the paper's, two where a layer's copy must run while its neighbour computes.
int64_t PlacementFamily::slotsFor(const Candidate &candidate, const model::Policy &policy) const {
  if (policy.slots)
    return *policy.slots;
  if (candidate.startRule == model::StartRule::Eager)
    return kEagerSlots;
  const std::vector<int64_t> layers = layersOf(candidate);
  for (size_t i = 1; i < layers.size(); ++i)
    if (layers[i] == layers[i - 1] + 1)
      return 2;
  return 1;
}

std::vector<Candidate> PlacementFamily::candidates(const model::Policy &policy) const {
  const bool tied = spec_.tiedEmbeddings;
  // With tied embeddings the table is the head's operand as well: off the device it is read directly by embed and
  // prefetched for the head, so offloading one is offloading the other.
  const bool embeddingMay =
      policy.offloadEmbedding != model::Choice::Off && (!tied || policy.offloadHead != model::Choice::Off);
  const bool headMay = policy.offloadHead != model::Choice::Off && (!tied || embeddingMay);

  std::vector<Candidate> found;
  // One placement of homes, with as many slots as the rule asks for, then with fewer where the policy leaves it open.
  const auto add = [&](Candidate candidate) {
    if (tied)
      candidate.embedding = candidate.head = candidate.embedding || candidate.head;
    candidate.wrap = candidate.startRule == model::StartRule::Eager;
    if (candidate.layers == 0 && !candidate.head) {
      candidate.slots = 0;
      candidate.wrap = false;
      found.push_back(std::move(candidate));
      return;
    }
    candidate.slots = slotsFor(candidate, policy);
    found.push_back(candidate);
    while (!policy.slots && candidate.slots > 1) {
      --candidate.slots;
      found.push_back(candidate);
    }
  };
  // The table of an embedding that is not tied costs next to nothing on the host: only the rows in use cross the link.
  const auto addWithEmbedding = [&](Candidate candidate) {
    candidate.embedding |= embeddingMay && !tied && policy.offloadEmbedding == model::Choice::Auto;
    add(std::move(candidate));
  };
  const auto addWithHead = [&](Candidate candidate) {
    if (!headMay || candidate.head)
      return;
    candidate.embedding |= embeddingMay;
    candidate.head = true;
    add(std::move(candidate));
  };

  if (policy.none || policy.interval || policy.offloadLayers) {
    const Candidate stated =
        policy.none ? withLayers(policy, 0, 0, "none")
        : policy.interval
            ? withLayers(policy, spec_.layers / *policy.interval, static_cast<int32_t>(*policy.interval),
                         absl::StrCat("interval ", *policy.interval))
            : withLayers(policy, *policy.offloadLayers, 0, absl::StrCat("layers ", *policy.offloadLayers));
    add(stated);
    if (policy.none)
      return found;
    if (embeddingMay && !tied && policy.offloadEmbedding == model::Choice::Auto)
      addWithEmbedding(stated);
    addWithHead(stated);
  } else {
    const Candidate none = withLayers(policy, 0, 0, "none");
    add(none);
    if (embeddingMay && !tied && policy.offloadEmbedding == model::Choice::Auto)
      addWithEmbedding(none);
    Candidate last = none;
    for (int64_t count = 1; count <= spec_.layers; ++count) {
      const bool divides = spec_.layers % count == 0;
      last = withLayers(policy, count, divides ? static_cast<int32_t>(spec_.layers / count) : 0,
                        divides ? absl::StrCat("interval ", spec_.layers / count) : absl::StrCat("layers ", count));
      addWithEmbedding(last);
    }
    addWithHead(last);
  }
  // What the last resort gives up is wrap-around: nothing is carried over an iteration's edge, so that transients may
  // use slots that are empty.
  if (found.back().wrap && !found.back().offloadsNothing()) {
    found.push_back(found.back());
    found.back().wrap = false;
  }
  return found;
}

std::vector<PlacementFamily::Item> PlacementFamily::itemsOf(const Candidate &candidate) const {
  std::vector<Item> items;
  for (int64_t layer : layersOf(candidate)) {
    Item item;
    for (int unit = 0; unit < model::kUnitsPerLayer; ++unit)
      item.units.push_back(layout_.layerUnit(layer, model::UnitRole::Qkv) + unit);
    items.push_back(std::move(item));
  }
  // Units of one layer are one item; so is the head's unit, whose layer is -1.
  int32_t layer = 0;
  for (const int32_t unit : candidate.units) {
    const int32_t of = layout_.units[static_cast<size_t>(unit)].layer;
    if (items.empty() || of != layer)
      items.emplace_back();
    items.back().units.push_back(unit);
    layer = of;
  }
  // Of a tied head only the last norm is a unit of its own, which stays; its operand is the table.
  if (candidate.head && (candidate.units.empty() || spec_.tiedEmbeddings))
    items.push_back({0, {spec_.tiedEmbeddings ? layout_.embeddingUnit() : layout_.headUnit()}});
  for (Item &item : items)
    for (int32_t unit : item.units)
      item.bytes += layout_.units[static_cast<size_t>(unit)].bytes;
  return items;
}

uint64_t PlacementFamily::hostBytes(const Candidate &candidate) const {
  uint64_t bytes = 0;
  for (const int32_t unit : unitsOf(candidate))
    bytes += layout_.units[static_cast<size_t>(unit)].bytes;
  return bytes;
}

std::vector<int32_t> PlacementFamily::unitsOf(const Candidate &candidate) const {
  std::vector<int32_t> units;
  if (candidate.embedding && !(candidate.head && spec_.tiedEmbeddings))
    units.push_back(layout_.embeddingUnit());
  for (const Item &item : itemsOf(candidate))
    units.insert(units.end(), item.units.begin(), item.units.end());
  return units;
}

PlacementFamily::SlotsUsed PlacementFamily::slotsOf(const Candidate &candidate, const std::vector<Item> &items,
                                                    const MemoryUse &use) const {
  std::vector<uint64_t> itemBytes;
  itemBytes.reserve(items.size());
  for (const Item &item : items)
    itemBytes.push_back(item.bytes);
  const algorithms::SlotAssignment slots = candidate.startRule == model::StartRule::Paper
                                               ? algorithms::assignSlotsInLine(itemBytes, candidate.slots)
                                               : algorithms::assignSlotsInCircle(itemBytes, candidate.slots);
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

PlacementFamily::SlotsUsed PlacementFamily::ringOf(const Candidate &candidate, const std::vector<Item> &items,
                                                   const MemoryUse &use) const {
  std::vector<uint64_t> unitBytes;
  std::vector<uint32_t> lastUse;
  for (const Item &item : items)
    for (int32_t unit : item.units) {
      unitBytes.push_back(layout_.units[static_cast<size_t>(unit)].bytes);
      lastUse.push_back(static_cast<uint32_t>(use.units[static_cast<size_t>(unit)].lastUse));
    }
  // A ring that is too small for a unit counts as one that is just large enough.
  const uint64_t ringBytes = std::max(candidate.ringBytes, *std::max_element(unitBytes.begin(), unitBytes.end()));
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

std::vector<PlacementFamily::SlotsUsed> PlacementFamily::slotsByClass(const Candidate &candidate) const {
  const std::vector<Item> items = itemsOf(candidate);
  std::vector<SlotsUsed> slots;
  if (!items.empty())
    for (const MemoryUse &use : uses_)
      slots.push_back(candidate.ringBytes ? ringOf(candidate, items, use) : slotsOf(candidate, items, use));
  return slots;
}

MemoryNeed PlacementFamily::held(const Candidate &candidate, const std::vector<SlotsUsed> &slots) const {
  MemoryNeed need;
  need.kv = kv_;
  need.io = io_;
  need.weights = layout_.totalBytes();
  for (const int32_t unit : unitsOf(candidate))
    need.weights -= layout_.units[static_cast<size_t>(unit)].bytes;
  for (uint64_t bytes : slots.empty() ? std::vector<uint64_t>() : slots[0].bytes)
    need.slots += bytes;
  need.bytes = need.kv + need.io + need.weights + need.slots;
  return need;
}

MemoryNeed PlacementFamily::held(const Candidate &candidate) const { return held(candidate, slotsByClass(candidate)); }

MemoryNeed PlacementFamily::need(const Candidate &candidate) const {
  const std::vector<SlotsUsed> slots = slotsByClass(candidate);
  MemoryNeed need = held(candidate, slots);
  if (slots.empty() || candidate.wrap) {
    need.transients = transientsPeak_;
  } else {
    std::vector<algorithms::ArenaIteration> iterations;
    for (size_t i = 0; i < uses_.size(); ++i)
      iterations.push_back({uses_[i].transients, slots[i].uses});
    need.transients = algorithms::layOutArena(0, iterations, slots[0].bytes, {}).top - need.slots;
  }
  need.bytes += need.transients;
  return need;
}

bool PlacementFamily::fits(const Candidate &candidate, uint64_t budget) const {
  // Sharing saves at most all transients; where even that would not do, nothing needs to be packed.
  if (!candidate.wrap && !candidate.offloadsNothing()) {
    Candidate apart = candidate;
    apart.wrap = true;
    const MemoryNeed most = need(apart);
    if (most.bytes <= budget)
      return true;
    if (most.bytes - most.transients > budget)
      return false;
  }
  return need(candidate).bytes <= budget;
}

} // namespace headrace::compiler
