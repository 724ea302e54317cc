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

// Whether some layer's copy must run while its neighbour, offloaded as well, computes.
bool haveNeighbours(const std::vector<MovedItem> &items) {
  for (size_t i = 1; i < items.size(); ++i)
    if (items[i].firstStep == items[i - 1].lastStep + 1)
      return true;
  return false;
}

// All of it in one slot.
mlir::LogicalResult layOutRing(uint64_t ringBytes, Movables &found) {
  std::vector<uint64_t> bytes;
  for (MovedBuffer &buffer : found.moved) {
    if (alignUp(buffer.bytes) > ringBytes)
      return buffer.use.emitError() << "brings " << buffer.bytes << " bytes, more than the ring of " << ringBytes;
    bytes.push_back(buffer.bytes);
  }
  const algorithms::RingAssignment ring = *algorithms::assignRingWithin(bytes, ringBytes);
  for (size_t i = 0; i < found.moved.size(); ++i)
    found.moved[i].slotOffset = ring.offset[i];
  if (!found.moved.empty())
    found.slots = {{ring.bytes}, std::vector<uint32_t>(found.items.size(), 0)};
  return mlir::success();
}

} // namespace

mlir::FailureOr<Movables> findMovables(ir::IterationOp iteration, const algorithms::Residency &residency) {
  if (const std::string contradiction = algorithms::contradictionIn(residency); !contradiction.empty())
    return iteration.emitError() << contradiction;
  Movables found;
  llvm::DenseMap<mlir::Operation *, uint32_t> indexOf;
  // Steps of each layer; the head's are those of part head.
  llvm::DenseMap<int32_t, std::pair<uint32_t, uint32_t>> stepsOf;
  std::vector<int32_t> layerOf; // by moved buffer: what it moves with; of no layer: with the head, which reads it
  for (mlir::Operation &op : iteration.block()) {
    if (auto use = llvm::dyn_cast<ir::OnDeviceOp>(op)) {
      auto movable = use.getSource().getDefiningOp<ir::MovableInterface>();
      const ir::Movable which = movable.movable();
      if (which.kind != ir::MovableKind::Weight)
        return use.emitError() << "brings '" << which.name << "': " << stringifyMovableKind(which.kind)
                               << " cannot be moved yet";
      MovedBuffer buffer;
      buffer.use = use;
      buffer.name = which.name;
      buffer.bytes = ir::bufferType(use.getResult()).getBytes();
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
    for (mlir::Operation *user : buffer.use.getResult().getUsers()) {
      const auto it = indexOf.find(user);
      assert(it != indexOf.end() && "only steps use what on_device brings: other ops' verifiers refuse it");
      buffer.firstUse = std::min(buffer.firstUse, it->second);
      buffer.lastUse = std::max(buffer.lastUse, it->second);
    }
    if (buffer.firstUse == std::numeric_limits<uint32_t>::max())
      return buffer.use.emitError() << "brings what nothing uses";
  }

  std::vector<uint64_t> itemBytes;
  for (uint32_t i = 0; i < found.moved.size(); ++i) {
    MovedBuffer &buffer = found.moved[i];
    const int32_t layer = layerOf[i];
    if (found.items.empty() || found.items.back().layer != layer) {
      const auto steps = stepsOf.find(layer);
      if (steps == stepsOf.end())
        return buffer.use.emitError() << "brings a part of a layer that computes nothing";
      found.items.push_back({layer, i, 0, steps->second.first, steps->second.second});
      itemBytes.push_back(0);
    }
    found.items.back().moved++;
    buffer.item = static_cast<uint32_t>(found.items.size() - 1);
    buffer.slotOffset = itemBytes.back();
    itemBytes.back() += alignUp(buffer.bytes);
  }

  if (residency.ringBytes > 0) {
    if (failed(layOutRing(residency.ringBytes, found)))
      return mlir::failure();
    return found;
  }
  found.slots = algorithms::assignSlots(residency, itemBytes, haveNeighbours(found.items));
  return found;
}

RangeTimes rangeTimes(const Movables &movables) {
  RangeTimes times;
  std::vector<RangeMap<int64_t>> owners(movables.slots.slotBytes.size()); // the last step that reads the owner
  const auto latest = [&](const MovedBuffer &buffer) {
    int64_t step = -1;
    owners[movables.slotOf(buffer)].forEach(buffer.slotOffset, buffer.slotOffset + buffer.bytes,
                                            [&](uint64_t, uint64_t, int64_t last) { step = std::max(step, last); });
    return step;
  };
  for (const MovedBuffer &buffer : movables.moved) {
    times.freeAfter.push_back(latest(buffer));
    // Ranges of one owner may end at different steps; what counts is the last of all so far.
    owners[movables.slotOf(buffer)].assign(buffer.slotOffset, buffer.slotOffset + buffer.bytes,
                                           std::max<int64_t>(times.freeAfter.back(), buffer.lastUse));
  }
  for (const MovedBuffer &buffer : movables.moved)
    times.tailFreeAfter.push_back(latest(buffer));
  return times;
}

} // namespace headrace::passes
