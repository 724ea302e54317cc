// SPDX-License-Identifier: Apache-2.0
#include "compiler/emit/PlaceHomes.h"

#include <algorithm>

#include "ir/Headrace.h"
#include "passes/algorithms/PackHomes.h"
#include "runtime/model/WeightLayout.h"

namespace headrace::compiler {
namespace {

// The weights at home on the device, in one of a placement's iterations.
template <typename F> void forEachHome(ir::IterationOp iteration, F f) {
  for (ir::WeightOp weight : iteration.block().getOps<ir::WeightOp>())
    if (ir::bufferType(weight.getBuffer()).isOnDevice())
      f(weight, static_cast<size_t>(weight.getUnit()), model::alignUp(weight.sizeInBytes()));
}

} // namespace

uint64_t placeHomes(const std::vector<mlir::ModuleOp> &placements) {
  std::vector<uint64_t> below;
  std::vector<algorithms::HomeUnit> units;
  uint64_t arena = 0;
  for (size_t p = 0; p < placements.size(); ++p) {
    mlir::ModuleOp module = placements[p];
    ir::IterationOp first = *module.getOps<ir::IterationOp>().begin();
    below.push_back(static_cast<uint64_t>(first.getArenaBytes()));
    arena = std::max(arena, below.back());
    forEachHome(first, [&](ir::WeightOp, size_t unit, uint64_t bytes) {
      below.back() -= bytes; // homes are the end of the arena
      units.resize(std::max(units.size(), unit + 1));
      units[unit].bytes = bytes;
      units[unit].placement.resize(placements.size());
      units[unit].placement[p] = true;
    });
  }
  if (placements.size() < 2)
    return arena;
  for (algorithms::HomeUnit &unit : units)
    unit.placement.resize(placements.size());
  const std::vector<uint64_t> addresses = algorithms::packHomes(below, units);
  arena = 0;
  for (size_t p = 0; p < placements.size(); ++p) {
    mlir::ModuleOp module = placements[p];
    uint64_t end = below[p];
    for (size_t unit = 0; unit < units.size(); ++unit)
      if (units[unit].placement[p])
        end = std::max(end, addresses[unit] + units[unit].bytes);
    for (ir::IterationOp iteration : module.getOps<ir::IterationOp>()) {
      forEachHome(iteration, [&](ir::WeightOp weight, size_t unit, uint64_t) {
        weight.address().value = static_cast<int64_t>(addresses[unit]);
      });
      iteration.setArenaBytes(static_cast<int64_t>(end));
    }
    arena = std::max(arena, end);
  }
  return arena;
}

} // namespace headrace::compiler
