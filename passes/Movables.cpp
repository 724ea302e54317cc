// SPDX-License-Identifier: Apache-2.0
#include "passes/Movables.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <optional>

#include "llvm/ADT/DenseMap.h"

namespace headrace::passes {
namespace {

// Of residual streams: what makes one, which layer brings it, and that it goes home where another layer does, or where
// publish sends it from there.
void findStreams(Movables &found, std::vector<int32_t> &layerOf) {
  llvm::DenseMap<mlir::Value, size_t> latest; // by home
  for (size_t i = 0; i < found.moved.size(); ++i) {
    algorithms::Moved &buffer = found.moved[i];
    if (algorithms::traitsOf(buffer.kind).written != algorithms::Written::Whole)
      continue;
    auto first = llvm::cast<ir::StepInterface>(found.ops[buffer.firstUse]);
    buffer.made = llvm::isa<ir::EmbedOp>(first.getOperation());
    layerOf[i] = llvm::cast<ir::StepInterface>(found.ops[buffer.lastUse]).stepInfo().layer;
    if (!buffer.made)
      layerOf[i] = first.stepInfo().layer;
    const auto [before, isFirst] = latest.try_emplace(found.uses[i].getSource(), i);
    if (!isFirst)
      found.moved[before->second].writtenBack = true;
    before->second = i;
  }
  for (const auto &[home, last] : latest) // what is sent is read at home
    if (llvm::any_of(home.getUsers(), [](mlir::Operation *user) { return llvm::isa<ir::PublishOp>(user); }))
      found.moved[last].writtenBack = true;
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
  algorithms::LayerSteps stepsOf;
  std::vector<int32_t> layerOf; // by moved buffer: what it moves with; of no layer: with the head, which reads it
  for (mlir::Operation &op : iteration.block()) {
    if (auto use = llvm::dyn_cast<ir::OnDeviceOp>(op)) {
      auto movable = use.getSource().getDefiningOp<ir::MovableInterface>();
      const ir::Movable which = movable.movable();
      algorithms::Moved buffer;
      buffer.name = which.name;
      buffer.bytes = ir::bufferType(use.getResult()).getBytes();
      buffer.miniBatch = which.miniBatch;
      buffer.kind = kindOf(which);
      buffer.writtenBack = which.kind == ir::MovableKind::Kv && writeBack != algorithms::WriteBack::Mirror;
      found.moved.push_back(std::move(buffer));
      found.uses.push_back(use);
      layerOf.push_back(which.layer);
      continue;
    }
    auto step = llvm::dyn_cast<ir::StepInterface>(op);
    if (!step)
      continue;
    const uint32_t index = found.steps++;
    found.awaitable.push_back(op.getNumResults() > 0 ? index : index > 0 ? found.awaitable.back() : -1);
    found.ops.push_back(&op);
    indexOf[&op] = index;
    const ir::StepInfo &info = step.stepInfo();
    if (info.layer >= 0 && stepsOf.empty())
      found.layersBegin = index;
    if (info.layer >= 0 || info.part == ir::Part::Head) {
      const auto [it, isNew] = stepsOf.try_emplace(info.layer, std::pair(index, index));
      if (!isNew)
        it->second.second = index;
    }
  }

  // on_device stands before the first use, so what is moved is in order of first use already.
  for (size_t i = 0; i < found.moved.size(); ++i) {
    algorithms::Moved &buffer = found.moved[i];
    buffer.firstUse = std::numeric_limits<uint32_t>::max();
    const auto used = [&](mlir::Value version) {
      for (mlir::Operation *user : version.getUsers()) {
        const auto it = indexOf.find(user);
        assert(it != indexOf.end() && "only steps use what on_device brings: other ops' verifiers refuse it");
        buffer.firstUse = std::min(buffer.firstUse, it->second);
        buffer.lastUse = std::max(buffer.lastUse, it->second);
      }
    };
    const mlir::Value brought = found.uses[i].getResult(), last = lastVersion(brought);
    used(brought);
    used(last);
    if (const auto it = indexOf.find(last.getDefiningOp()); it != indexOf.end())
      buffer.lastUse = std::max(buffer.lastUse, it->second);
    if (buffer.firstUse == std::numeric_limits<uint32_t>::max())
      return found.uses[i].emitError() << "brings what nothing uses";
  }

  findStreams(found, layerOf);
  if (const std::optional<size_t> wrong = algorithms::assignItems(layerOf, stepsOf, found))
    return found.uses[*wrong].emitError() << "brings a part of a layer that computes nothing";
  if (const std::string wrong = algorithms::assignSlots(residency, found); !wrong.empty())
    return iteration.emitError() << wrong;
  return found;
}

} // namespace headrace::passes
