// SPDX-License-Identifier: Apache-2.0
#include "passes/Movables.h"

#include <algorithm>
#include <cassert>
#include <limits>

#include "passes/RangeMap.h"
#include "passes/algorithms/AssignRing.h"
#include "llvm/ADT/DenseMap.h"

namespace headrace::passes {
namespace {

constexpr uint64_t kSlotAlign = 256;
uint64_t alignUp(uint64_t bytes) { return (bytes + kSlotAlign - 1) / kSlotAlign * kSlotAlign; }

// The layer that a unit moves with: its own; units of no layer move with the head, which is what reads them.
int32_t layerOf(ir::OnDeviceOp use) { return use.getSource().getDefiningOp<ir::WeightOp>().getLayer(); }

// Paper: two slots where a layer's copy must run while the layer before it, offloaded as well, computes.
int64_t defaultSlots(ir::StartRule rule, const std::vector<MovedItem> &items) {
  if (rule == ir::StartRule::Eager)
    return 2;
  for (size_t i = 1; i < items.size(); ++i)
    if (items[i].firstStep == items[i - 1].lastStep + 1)
      return 2;
  return 1;
}

mlir::LogicalResult checkChoice(ir::IterationOp iteration, const SlotChoice &choice) {
  if (choice.slots < 0)
    return iteration.emitError() << "needs a number of slots that is not negative, got " << choice.slots;
  if (choice.ringBytes < 0)
    return iteration.emitError() << "needs a ring of bytes that are not negative, got " << choice.ringBytes;
  if (choice.ringBytes && choice.slots)
    return iteration.emitError() << "has either layer-sized slots or a ring, got " << choice.slots
                                 << " slots and a ring of " << choice.ringBytes << " bytes";
  if (choice.ringBytes && iteration.getStartRule() == ir::StartRule::Paper)
    return iteration.emitError() << "has layer-sized slots under the rule paper, not a ring";
  return mlir::success();
}

// All units in one slot.
mlir::LogicalResult layOutRing(uint64_t ringBytes, Movables &found) {
  std::vector<uint64_t> bytes;
  for (MovedBuffer &unit : found.units) {
    if (alignUp(unit.bytes) > ringBytes)
      return unit.use.emitError() << "brings a unit of " << unit.bytes << " bytes, larger than the ring of "
                                  << ringBytes;
    bytes.push_back(unit.bytes);
  }
  const algorithms::RingAssignment ring = *algorithms::assignRingWithin(bytes, ringBytes);
  for (size_t i = 0; i < found.units.size(); ++i)
    found.units[i].slotOffset = ring.offset[i];
  if (!found.units.empty())
    found.slots = {{ring.bytes}, std::vector<uint32_t>(found.items.size(), 0)};
  return mlir::success();
}

} // namespace

mlir::FailureOr<Movables> findMovables(ir::IterationOp iteration, const SlotChoice &choice) {
  if (failed(checkChoice(iteration, choice)))
    return mlir::failure();
  Movables found;
  llvm::DenseMap<mlir::Operation *, uint32_t> indexOf;
  // Steps of each layer; the head's are those of part head.
  llvm::DenseMap<int32_t, std::pair<uint32_t, uint32_t>> stepsOf;
  for (mlir::Operation &op : iteration.block()) {
    if (auto use = llvm::dyn_cast<ir::OnDeviceOp>(op)) {
      if (!use.getSource().getDefiningOp<ir::WeightOp>())
        return use.emitError() << "only weights are moved unit by unit";
      MovedBuffer unit;
      unit.use = use;
      unit.bytes = ir::bufferType(use.getResult()).getBytes();
      found.units.push_back(unit);
      continue;
    }
    auto step = llvm::dyn_cast<ir::StepInterface>(op);
    if (!step)
      continue;
    const auto index = static_cast<uint32_t>(found.steps.size());
    found.steps.push_back(&op);
    indexOf[&op] = index;
    const ir::StepInfo &info = step.stepInfo();
    if (info.layer >= 0 && stepsOf.empty())
      found.layersBegin = index;
    if (info.layer >= 0 || info.part == ir::Part::Head) {
      const auto [it, isNew] = stepsOf.try_emplace(info.layer, index, index);
      if (!isNew)
        it->second.second = index;
    }
  }

  // on_device stands before the first use, so the units are in order of first use already.
  for (MovedBuffer &unit : found.units) {
    unit.firstUse = std::numeric_limits<uint32_t>::max();
    for (mlir::Operation *user : unit.use.getResult().getUsers()) {
      const auto it = indexOf.find(user);
      assert(it != indexOf.end() && "only steps use what on_device brings: other ops' verifiers refuse it");
      unit.firstUse = std::min(unit.firstUse, it->second);
      unit.lastUse = std::max(unit.lastUse, it->second);
    }
    if (unit.firstUse == std::numeric_limits<uint32_t>::max())
      return unit.use.emitError() << "brings a unit that nothing uses";
  }

  std::vector<uint64_t> itemBytes;
  for (uint32_t i = 0; i < found.units.size(); ++i) {
    MovedBuffer &unit = found.units[i];
    const int32_t layer = layerOf(unit.use);
    if (found.items.empty() || found.items.back().layer != layer) {
      const auto steps = stepsOf.find(layer);
      if (steps == stepsOf.end())
        return unit.use.emitError() << "brings a unit whose layer computes nothing";
      found.items.push_back({layer, i, 0, steps->second.first, steps->second.second});
      itemBytes.push_back(0);
    }
    found.items.back().units++;
    unit.item = static_cast<uint32_t>(found.items.size() - 1);
    unit.slotOffset = itemBytes.back();
    itemBytes.back() += alignUp(unit.bytes);
  }

  if (choice.ringBytes) {
    if (failed(layOutRing(static_cast<uint64_t>(choice.ringBytes), found)))
      return mlir::failure();
    return found;
  }
  const int64_t slots = choice.slots ? choice.slots : defaultSlots(iteration.getStartRule(), found.items);
  found.slots = iteration.getStartRule() == ir::StartRule::Paper ? algorithms::assignSlotsInLine(itemBytes, slots)
                                                                 : algorithms::assignSlotsInCircle(itemBytes, slots);
  return found;
}

RangeTimes rangeTimes(const Movables &offloaded) {
  RangeTimes times;
  std::vector<RangeMap<int64_t>> owners(offloaded.slots.slotBytes.size()); // the last step that reads the owner
  const auto latest = [&](const MovedBuffer &unit) {
    int64_t step = -1;
    owners[offloaded.slotOf(unit)].forEach(unit.slotOffset, unit.slotOffset + unit.bytes,
                                           [&](uint64_t, uint64_t, int64_t last) { step = std::max(step, last); });
    return step;
  };
  for (const MovedBuffer &unit : offloaded.units) {
    times.freeAfter.push_back(latest(unit));
    // Ranges of one owner may end at different steps; what counts is the last of all so far.
    owners[offloaded.slotOf(unit)].assign(unit.slotOffset, unit.slotOffset + unit.bytes,
                                          std::max<int64_t>(times.freeAfter.back(), unit.lastUse));
  }
  for (const MovedBuffer &unit : offloaded.units)
    times.tailFreeAfter.push_back(latest(unit));
  return times;
}

} // namespace headrace::passes
