// SPDX-License-Identifier: Apache-2.0
#include "passes/Movables.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <optional>

#include "passes/RangeMap.h"
#include "passes/algorithms/AssignRing.h"
#include "llvm/ADT/DenseMap.h"

namespace headrace::passes {
namespace {

constexpr uint64_t kSlotAlign = 256;
uint64_t alignUp(uint64_t bytes) { return (bytes + kSlotAlign - 1) / kSlotAlign * kSlotAlign; }

// Of residual streams: what makes one, which layer brings it, and that it goes home where another layer does.
void findStreams(Movables &found, std::vector<int32_t> &layerOf) {
  llvm::DenseMap<mlir::Value, size_t> latest; // by home
  for (size_t i = 0; i < found.moved.size(); ++i) {
    MovedBuffer &buffer = found.moved[i];
    if (buffer.kind != ir::MovableKind::Residual)
      continue;
    auto first = llvm::cast<ir::StepInterface>(found.steps[buffer.firstUse]);
    buffer.made = llvm::isa<ir::EmbedOp>(first.getOperation());
    layerOf[i] = llvm::cast<ir::StepInterface>(found.steps[buffer.lastUse]).stepInfo().layer;
    if (!buffer.made)
      layerOf[i] = first.stepInfo().layer;
    const auto [before, isFirst] = latest.try_emplace(buffer.use.getSource(), i);
    if (!isFirst)
      found.moved[before->second].writtenBack = true;
    before->second = i;
  }
}

// Whether some layer's copy must run while its neighbour, offloaded as well, computes.
bool haveNeighbours(const std::vector<MovedItem> &items) {
  for (size_t i = 1; i < items.size(); ++i)
    if (items[i].firstStep == items[i - 1].lastStep + 1)
      return true; // only weights move under the rules that ask
  return false;
}

// All weights in one slot.
mlir::LogicalResult layOutRing(uint64_t ringBytes, Movables &found) {
  std::vector<uint64_t> bytes;
  for (MovedBuffer &buffer : found.moved) {
    if (buffer.kind != ir::MovableKind::Weight)
      continue;
    if (alignUp(buffer.bytes) > ringBytes)
      return buffer.use.emitError() << "brings " << buffer.bytes << " bytes, more than the ring of " << ringBytes;
    bytes.push_back(buffer.bytes);
  }
  const algorithms::RingAssignment ring = *algorithms::assignRingWithin(bytes, ringBytes);
  size_t weights = 0;
  for (MovedBuffer &buffer : found.moved)
    if (buffer.kind == ir::MovableKind::Weight)
      buffer.slotOffset = ring.offset[weights++];
  if (weights > 0)
    found.slots = {{ring.bytes}, std::vector<uint32_t>(found.items.size(), 0)};
  return mlir::success();
}

// Slots of the weights' items, then those of residual streams, then those of the caches' tails.
mlir::LogicalResult assignSlots(const algorithms::Residency &residency, Movables &found) {
  std::vector<uint64_t> itemBytes(found.items.size(), 0);
  std::vector<uint32_t> weightItems, residualItems, actItems, tailItems;
  for (uint32_t i = 0; i < found.items.size(); ++i)
    (found.items[i].kind == ir::MovableKind::Weight ? weightItems
     : found.items[i].kind == ir::MovableKind::Kv   ? tailItems
     : found.items[i].kind == ir::MovableKind::Act  ? actItems
                                                    : residualItems)
        .push_back(i);
  for (MovedBuffer &buffer : found.moved) {
    buffer.slotOffset = itemBytes[buffer.item];
    itemBytes[buffer.item] += alignUp(buffer.bytes);
  }
  const auto pick = [&](const std::vector<uint32_t> &items) {
    std::vector<uint64_t> bytes;
    bytes.reserve(items.size());
    for (const uint32_t item : items)
      bytes.push_back(itemBytes[item]);
    return bytes;
  };
  if (const uint64_t ring = residency.weights().ringBytes(); ring > 0) {
    if (failed(layOutRing(ring, found)))
      return mlir::failure();
  } else {
    const algorithms::SlotAssignment weights =
        algorithms::assignSlots(residency, pick(weightItems), haveNeighbours(found.items));
    found.slots.slotBytes = weights.slotBytes;
    found.slots.slotOf.assign(found.items.size(), 0);
    for (size_t i = 0; i < weightItems.size(); ++i)
      found.slots.slotOf[weightItems[i]] = weights.slotOf[i];
  }
  const auto follow = [&](const std::vector<uint32_t> &items, const algorithms::SlotAssignment &assigned) {
    const auto first = static_cast<uint32_t>(found.slots.slotBytes.size());
    found.slots.slotOf.resize(found.items.size(), 0);
    for (size_t i = 0; i < items.size(); ++i)
      found.slots.slotOf[items[i]] = first + assigned.slotOf[i];
    if (!items.empty())
      found.slots.slotBytes.insert(found.slots.slotBytes.end(), assigned.slotBytes.begin(), assigned.slotBytes.end());
  };
  // Nothing of a residual stream is there when the iteration begins.
  if (!residualItems.empty())
    follow(residualItems, algorithms::assignSlotsInLine(pick(residualItems), residency.residuals().slots()));
  if (!actItems.empty()) // nor of activations
    follow(actItems, algorithms::assignSlotsInLine(pick(actItems), algorithms::kActSlots));
  found.firstPlace = static_cast<uint32_t>(found.slots.slotBytes.size());
  if (residency.rotates() && !tailItems.empty()) {
    uint64_t largest = 0;
    for (const uint32_t item : tailItems)
      largest = std::max(largest, itemBytes[item]);
    found.slots.slotBytes.resize(found.firstPlace + static_cast<size_t>(residency.kv().places()), largest);
    found.slots.slotOf.resize(found.items.size(), 0);
    for (const uint32_t item : tailItems)
      found.slots.slotOf[item] = found.firstPlace;
    return mlir::success();
  }
  follow(tailItems, algorithms::assignSlotsInCircle(pick(tailItems), residency.slotsOfTails()));
  return mlir::success();
}

} // namespace

algorithms::WriteBack writeBackOf(const algorithms::Residency &residency, ir::IterationClass iterationClass) {
  switch (iterationClass) {
  case ir::IterationClass::Decode:
    return residency.kv().decodeBack.value_or(algorithms::WriteBack::Mirror);
  case ir::IterationClass::Mixed:
    return residency.kv().mixedBack.value_or(algorithms::WriteBack::Mirror);
  case ir::IterationClass::Transition:
    break;
  }
  return algorithms::WriteBack::Mirror;
}

mlir::Value lastVersion(mlir::Value brought) {
  for (mlir::OpOperand &use : brought.getUses()) {
    auto step = llvm::dyn_cast<ir::StepInterface>(use.getOwner());
    for (unsigned i = 0, n = step ? step->getNumResults() : 0; i < n; ++i)
      if (step.tiedOperand(i) == static_cast<int>(use.getOperandNumber()))
        return lastVersion(step->getResult(i));
  }
  return brought;
}

mlir::FailureOr<Movables> findMovables(ir::IterationOp iteration, const algorithms::Residency &residency) {
  if (const std::string contradiction = algorithms::contradictionIn(residency); !contradiction.empty())
    return iteration.emitError() << contradiction;
  const algorithms::WriteBack writeBack = writeBackOf(residency, iteration.getIterationClass());
  Movables found;
  llvm::DenseMap<mlir::Operation *, uint32_t> indexOf;
  // Steps of each layer; the head's are those of part head.
  llvm::DenseMap<int32_t, std::pair<uint32_t, uint32_t>> stepsOf;
  std::vector<int32_t> layerOf; // by moved buffer: what it moves with; of no layer: with the head, which reads it
  for (mlir::Operation &op : iteration.block()) {
    if (auto use = llvm::dyn_cast<ir::OnDeviceOp>(op)) {
      auto movable = use.getSource().getDefiningOp<ir::MovableInterface>();
      const ir::Movable which = movable.movable();
      MovedBuffer buffer;
      buffer.use = use;
      buffer.name = which.name;
      buffer.bytes = ir::bufferType(use.getResult()).getBytes();
      buffer.miniBatch = static_cast<uint8_t>(which.miniBatch);
      buffer.kind = which.kind;
      buffer.writtenBack = which.kind == ir::MovableKind::Kv && writeBack != algorithms::WriteBack::Mirror;
      found.moved.push_back(std::move(buffer));
      layerOf.push_back(which.layer);
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

  // on_device stands before the first use, so what is moved is in order of first use already.
  for (MovedBuffer &buffer : found.moved) {
    buffer.firstUse = std::numeric_limits<uint32_t>::max();
    const auto used = [&](mlir::Value version) {
      for (mlir::Operation *user : version.getUsers()) {
        const auto it = indexOf.find(user);
        assert(it != indexOf.end() && "only steps use what on_device brings: other ops' verifiers refuse it");
        buffer.firstUse = std::min(buffer.firstUse, it->second);
        buffer.lastUse = std::max(buffer.lastUse, it->second);
      }
    };
    const mlir::Value last = lastVersion(buffer.use.getResult());
    used(buffer.use.getResult());
    used(last);
    if (const auto it = indexOf.find(last.getDefiningOp()); it != indexOf.end())
      buffer.lastUse = std::max(buffer.lastUse, it->second);
    if (buffer.firstUse == std::numeric_limits<uint32_t>::max())
      return buffer.use.emitError() << "brings what nothing uses";
  }

  findStreams(found, layerOf);
  if (residency.residuals().slots() == 0 &&
      llvm::any_of(found.moved, [](const MovedBuffer &buffer) { return buffer.kind == ir::MovableKind::Residual; }))
    return iteration.emitError() << "has residual streams that leave the device, and no slots for them";

  std::optional<uint32_t> weights; // the item of the layer's weights, which a tail may stand among
  for (uint32_t i = 0; i < found.moved.size(); ++i) {
    MovedBuffer &buffer = found.moved[i];
    const int32_t layer = layerOf[i];
    const bool isWeight = buffer.kind == ir::MovableKind::Weight;
    if (!isWeight || !weights || found.items[*weights].layer != layer) {
      const auto steps = stepsOf.find(layer);
      if (steps == stepsOf.end())
        return buffer.use.emitError() << "brings a part of a layer that computes nothing";
      buffer.item = static_cast<uint32_t>(found.items.size());
      found.items.push_back({layer, 0, steps->second.first, steps->second.second, buffer.kind});
      if (isWeight)
        weights = buffer.item;
    } else {
      buffer.item = *weights;
    }
    found.items[buffer.item].moved++;
  }
  if (failed(assignSlots(residency, found)))
    return mlir::failure();
  return found;
}

RangeTimes rangeTimes(const Movables &movables) {
  struct Owner {
    int64_t lastUse = -1, number = -1;
  };
  RangeTimes times;
  std::vector<RangeMap<Owner>> owners(movables.slots.slotBytes.size());
  const auto latest = [&](const MovedBuffer &buffer) {
    Owner last;
    owners[movables.slotOf(buffer)].forEach(buffer.slotOffset, buffer.slotOffset + buffer.bytes,
                                            [&](uint64_t, uint64_t, const Owner &owner) {
                                              if (owner.lastUse > last.lastUse)
                                                last = owner;
                                            });
    return last;
  };
  for (size_t i = 0; i < movables.moved.size(); ++i) {
    const MovedBuffer &buffer = movables.moved[i];
    const Owner before = latest(buffer);
    times.freeAfter.push_back(before.lastUse);
    times.heldBefore.push_back(before.number);
    // Ranges of one owner may end at different steps; what counts is the last of all so far.
    const bool later = before.lastUse > buffer.lastUse;
    owners[movables.slotOf(buffer)].assign(buffer.slotOffset, buffer.slotOffset + buffer.bytes,
                                           later ? before : Owner{buffer.lastUse, static_cast<int64_t>(i)});
  }
  for (const MovedBuffer &buffer : movables.moved) {
    const Owner last = latest(buffer);
    times.tailFreeAfter.push_back(last.lastUse);
    times.heldLast.push_back(last.number);
  }
  return times;
}

} // namespace headrace::passes
