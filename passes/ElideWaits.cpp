// SPDX-License-Identifier: Apache-2.0
//
// Each step has a clock: for each lane, the last step of it that is known to have ended when this one starts. A wait
// that the clocks of the lane's step before, or of another awaited step, cover already says nothing new.
//
//   h2d       A       B         C waits for A and for B; B's lane has run A before, so the wait for A goes
//   compute               C
#include <array>
#include <cassert>

#include "passes/Passes.h"
#include "llvm/ADT/DenseMap.h"

namespace headrace::passes {
#define GEN_PASS_DEF_ELIDEWAITS
#include "passes/Passes.h.inc"

namespace {

constexpr size_t kLanes = ir::getMaxEnumValForLane() + 1;
using Clock = std::array<int32_t, kLanes>; // steps, counted in program order over all lanes; -1: none

class Elision {
public:
  mlir::LogicalResult run(ir::IterationOp iteration) {
    for (Clock &clock : now_)
      clock.fill(-1);
    for (mlir::Operation &op : llvm::make_early_inc_range(iteration.block())) {
      if (auto wait = llvm::dyn_cast<ir::WaitOp>(op)) {
        if (wait.getKind() == ir::WaitKind::Program)
          return op.emitError() << "is in program order; insert the waits between lanes first";
        pending_[static_cast<size_t>(wait.getLane())].push_back(wait);
      } else if (auto step = llvm::dyn_cast<ir::StepInterface>(op)) {
        if (!step.stepInfo().lane)
          return op.emitError() << "has no lane";
        start(&op, static_cast<size_t>(*step.stepInfo().lane));
      }
    }
    // Waits that no step of their lane follows hold nothing up.
    for (llvm::SmallVector<ir::WaitOp, 4> &waits : pending_)
      for (ir::WaitOp wait : waits)
        wait.erase();
    return mlir::success();
  }

private:
  struct Awaited {
    ir::WaitOp wait;
    int32_t step;
    size_t lane;
    bool keep = true;
  };

  // Having waited for `awaited` says: it has ended, and all that had ended when it started.
  bool covers(const Awaited &by, const Awaited &awaited) const {
    return (by.lane == awaited.lane && by.step >= awaited.step) ||
           clocks_[static_cast<size_t>(by.step)][awaited.lane] >= awaited.step;
  }

  void start(mlir::Operation *op, size_t lane) {
    Clock &clock = now_[lane];
    llvm::SmallVector<Awaited, 8> awaited;
    for (ir::WaitOp wait : pending_[lane]) {
      mlir::Operation *source = ir::stepOf(wait.getEvent());
      const auto it = steps_.find(source);
      assert(it != steps_.end() && "SSA: an event's step stands before the wait");
      awaited.push_back({wait, it->second.first, it->second.second});
    }
    pending_[lane].clear();

    for (Awaited &a : awaited)
      a.keep = clock[a.lane] < a.step;
    // Of two that cover each other (the same step twice) the stronger kind stays, then the first.
    for (size_t i = 0; i < awaited.size(); ++i)
      for (size_t j = 0; j < awaited.size() && awaited[i].keep; ++j) {
        if (i == j || !awaited[j].keep || !covers(awaited[j], awaited[i]))
          continue;
        const auto rank = [&](size_t k) { return std::pair(awaited[k].wait.getKind(), k); };
        if (awaited[j].step == awaited[i].step && rank(i) < rank(j))
          continue;
        awaited[i].keep = false;
        // What stays carries the dependence of what goes.
        if (awaited[j].wait.getKind() == ir::WaitKind::Pacing)
          awaited[j].wait.setKind(awaited[i].wait.getKind());
      }

    for (Awaited &a : awaited) {
      if (a.keep)
        learn(clock, a.step, a.lane);
      else
        a.wait.erase();
    }
    const auto index = static_cast<int32_t>(clocks_.size());
    clocks_.push_back(clock);
    steps_[op] = {index, lane};
    clock[lane] = index;
  }

  void learn(Clock &clock, int32_t step, size_t lane) const {
    const Clock &of = clocks_[static_cast<size_t>(step)];
    for (size_t i = 0; i < kLanes; ++i)
      clock[i] = std::max(clock[i], of[i]);
    clock[lane] = std::max(clock[lane], step);
  }

  llvm::DenseMap<mlir::Operation *, std::pair<int32_t, size_t>> steps_; // index, lane
  std::vector<Clock> clocks_;                                           // when a step starts, by index
  std::array<Clock, kLanes> now_;                                       // when the next step of a lane starts
  std::array<llvm::SmallVector<ir::WaitOp, 4>, kLanes> pending_;        // by lane: waits for its next step
};

struct ElideWaits : impl::ElideWaitsBase<ElideWaits> {
  using ElideWaitsBase::ElideWaitsBase;

  void runOnOperation() override {
    ir::IterationOp iteration = getOperation();
    if (iteration.getPhase() != ir::Phase::Movement) {
      iteration.emitError() << "waits are elided in the movement phase, not in phase "
                            << stringifyPhase(iteration.getPhase());
      return signalPassFailure();
    }
    if (failed(Elision().run(iteration)))
      return signalPassFailure();
    iteration.setPhase(ir::Phase::Lanes);
  }
};

} // namespace
} // namespace headrace::passes
