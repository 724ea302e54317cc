// SPDX-License-Identifier: Apache-2.0
#include "compiler/emit/PlaceHomes.h"

#include "compiler/evaluate/HomesTogether.h"
#include "ir/Headrace.h"
#include "runtime/model/WeightLayout.h"

namespace headrace::compiler {
namespace {

// The weights at home on the device, in one of a placement's iterations.
template <typename F> void forEachHome(ir::IterationOp iteration, F f) {
  for (ir::WeightOp weight : iteration.block().getOps<ir::WeightOp>())
    if (ir::bufferType(weight.getBuffer()).isOnDevice())
      f(weight, static_cast<size_t>(weight.getUnit()));
}

} // namespace

uint64_t placeHomes(const std::vector<mlir::ModuleOp> &placements) {
  std::vector<DeviceHomes> homes;
  for (mlir::ModuleOp module : placements) {
    ir::IterationOp first = *module.getOps<ir::IterationOp>().begin();
    homes.push_back({static_cast<uint64_t>(first.getArenaBytes()), {}});
    forEachHome(first, [&](ir::WeightOp weight, size_t unit) {
      homes.back().units.emplace_back(unit, model::alignUp(weight.sizeInBytes()));
    });
  }
  if (placements.size() < 2)
    return homes.front().arenaBytes;
  const HomesTogether together = placeTogether(homes);
  for (size_t p = 0; p < placements.size(); ++p) {
    mlir::ModuleOp module = placements[p];
    for (ir::IterationOp iteration : module.getOps<ir::IterationOp>()) {
      forEachHome(iteration, [&](ir::WeightOp weight, size_t unit) {
        weight.address().value = static_cast<int64_t>(together.address[unit]);
      });
      iteration.setArenaBytes(static_cast<int64_t>(together.arenaBytes[p]));
    }
  }
  return together.largest;
}

} // namespace headrace::compiler
