// SPDX-License-Identifier: Apache-2.0
#include "compiler/emit/PlaceHomes.h"

#include <algorithm>
#include <map>

#include "ir/Headrace.h"
#include "runtime/model/WeightLayout.h"
#include "runtime/plan/value/BufferIndex.h"

namespace headrace::compiler {
namespace {

// The units at home on the device, in one of a placement's iterations.
template <typename F> void forEachHome(ir::IterationOp iteration, F f) {
  for (mlir::Operation &op : iteration.block())
    if (auto movable = llvm::dyn_cast<ir::MovableInterface>(op))
      if (const int32_t unit = movable.movable().unit; unit >= 0 && ir::bufferType(movable.atHome()).isOnDevice())
        f(llvm::cast<ir::PersistentInterface>(op), static_cast<size_t>(unit));
}

} // namespace

void placeHomes(const Draft &draft, const std::vector<mlir::ModuleOp> &placements) {
  const plan::BufferIndex index(draft);
  for (size_t p = 0; p < placements.size(); ++p) {
    mlir::ModuleOp module = placements[p];
    std::map<uint32_t, uint64_t> addresses; // on the device, by buffer
    for (const plan::Extent &extent : draft.placements[p].extents)
      if (extent.space == plan::Space::Device)
        addresses.emplace(extent.buffer, extent.address);
    ir::IterationOp first = *module.getOps<ir::IterationOp>().begin();
    auto end = static_cast<uint64_t>(first.getArenaBytes()); // of what is below homes
    forEachHome(first, [&](ir::PersistentInterface weight, size_t) { end -= model::alignUp(weight.sizeInBytes()); });
    forEachHome(first, [&](ir::PersistentInterface weight, size_t unit) {
      end = std::max(end, addresses.at(index.weight(unit)) + model::alignUp(weight.sizeInBytes()));
    });
    for (ir::IterationOp iteration : module.getOps<ir::IterationOp>()) {
      forEachHome(iteration, [&](ir::PersistentInterface weight, size_t unit) {
        weight.address().value = static_cast<int64_t>(addresses.at(index.weight(unit)));
      });
      iteration.setArenaBytes(static_cast<int64_t>(end));
    }
  }
}

} // namespace headrace::compiler
