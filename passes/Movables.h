// SPDX-License-Identifier: Apache-2.0
//
// What InsertMovement has to bring to the device in one iteration, in which order, and where to: plain values that the
// planning of the wrap-around cut reads as well.
//
//   items    what a slot holds at a time: the weights of an offloaded layer, what the head reads, a cache's tail, or a
//            residual stream while a layer works on it
//   moved    in order of first use, which is the order of copying; a movable lies in its item's slot behind those of
//            its item that are used before it; in a ring (one slot for all) where algorithms::assignRing puts it
#pragma once

#include <cstdint>
#include <vector>

#include "ir/Headrace.h"
#include "mlir/Support/LLVM.h"
#include "passes/algorithms/Movables.h"
#include "passes/algorithms/Residency.h"

namespace headrace::passes {

// The plain values of an iteration, and what each stands for in it.
struct Movables : algorithms::Movables {
  std::vector<mlir::Operation *> ops; // the compute steps
  std::vector<ir::OnDeviceOp> uses;   // by movable: what a prefetch replaces
};

// Kinds of movables have one number in the IR and in plain values (named alike: MovableKinds.h).
static_assert(ir::getMaxEnumValForMovableKind() + 1 == algorithms::kMovableKinds);
inline algorithms::MovableKind kindOf(const ir::Movable &of) { return static_cast<algorithms::MovableKind>(of.kind); }
inline const algorithms::MovableTraits &traitsOf(const ir::Movable &of) { return algorithms::traitsOf(kindOf(of)); }

// The last version of what `brought` is the first of: a step that updates it in place makes the next one.
mlir::Value lastVersion(mlir::Value brought);

// How an iteration's class has tails written back.
algorithms::WriteBack writeBackOf(const algorithms::Residency &residency, ir::IterationClass iterationClass);

// For an iteration in the homes phase, brought as the residency says. Fails (with a diagnostic) on a residency that
// contradicts itself, on buffers that cannot be moved yet, and on a ring that is too small for one.
mlir::FailureOr<Movables> findMovables(ir::IterationOp iteration, const algorithms::Residency &residency);

} // namespace headrace::passes
