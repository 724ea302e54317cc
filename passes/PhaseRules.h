// SPDX-License-Identifier: Apache-2.0
//
// The rules of each phase, as VerifyPhase applies them: cumulatively, and re-derived from the program alone. A failure
// has been reported at the op that breaks the rule.
#pragma once

#include <array>
#include <vector>

#include "ir/Headrace.h"
#include "llvm/ADT/DenseMap.h"

namespace headrace::passes {

// every phase: what an op uses was made before it, in this iteration, and is the latest version of it. MLIR's verifier
// says so too, but a compiler's pipeline runs without it, and what follows here plays the program in its order.
mlir::LogicalResult verifyMade(ir::IterationOp iteration);

// model: every weight is at home on the device; residual streams alone may leave it. homes: nothing moves yet. Later:
// no on_device is left.
mlir::LogicalResult verifyHomes(ir::IterationOp iteration, ir::Phase phase);

// movement: each op that moves keeps its own rules (ir/MovementOps.cpp); what is brought is waited for before it is
// used (`inProgramOrder`; later the lanes' rules say that), is not used after it was given up, is given up exactly
// once, and does not overwrite what is still in use; what a step has written of it is written back before it is given
// up or brought anew, or carried out as dirty; the iteration leaves what it expects to find.
mlir::LogicalResult verifyMovement(ir::IterationOp iteration, bool inProgramOrder);

// When each step is known to start and end, from the order of lanes and waits.
class StepOrder {
public:
  static constexpr size_t kLanes = ir::getMaxEnumValForLane() + 1;
  using Clock = std::array<int32_t, kLanes>; // by lane: its last step that has ended; -1: none

  // lanes: every step has the lane of its kind; waits are between lanes, each followed by a step of its lane, none
  // implied by the others and the order of lanes.
  static mlir::FailureOr<StepOrder> derive(ir::IterationOp iteration);

  size_t size() const { return steps_.size(); }
  ir::StepInterface step(size_t index) const { return steps_[index]; }
  size_t lane(size_t index) const { return lanes_[index]; }
  const Clock &clock(size_t index) const { return clocks_[index]; }
  llvm::ArrayRef<Clock> clocks() const { return clocks_; }
  int32_t indexOf(mlir::Operation *step) const { return indexOf_.lookup(step); }

private:
  std::vector<ir::StepInterface> steps_; // in program order
  std::vector<size_t> lanes_;
  std::vector<Clock> clocks_; // when the step starts
  llvm::DenseMap<mlir::Operation *, int32_t> indexOf_;
};

// lanes: every dependence (raw, war, waw) is ordered. offsets: everything has an address, multiple of 256, inside the
// arena; ranges in use never share a byte.
mlir::LogicalResult verifyAccesses(ir::IterationOp iteration, const StepOrder &order, bool placed);

} // namespace headrace::passes
