// SPDX-License-Identifier: Apache-2.0
#include "passes/PhaseRules.h"

namespace headrace::passes {
namespace {

// The lanes a step may run on.
bool mayRunOn(mlir::Operation *step, ir::Lane lane) {
  if (llvm::isa<ir::PrefetchOp>(step))
    return ir::prefetches(lane);
  if (llvm::isa<ir::EvictOp, ir::StageOp>(step))
    return ir::evicts(lane);
  return ir::computes(lane) && (lane == ir::Lane::Cpu) == llvm::isa<ir::AppendOp, ir::HostAttentionOp>(step);
}

} // namespace

mlir::FailureOr<StepOrder> StepOrder::derive(ir::IterationOp iteration) {
  StepOrder order;
  std::array<Clock, kLanes> next;                             // what the next step of a lane will know
  std::array<llvm::SmallVector<ir::WaitOp, 4>, kLanes> waits; // for the next step of a lane
  for (Clock &clock : next)
    clock.fill(-1);
  for (mlir::Operation &op : iteration.block()) {
    if (auto wait = llvm::dyn_cast<ir::WaitOp>(op)) {
      if (wait.getKind() == ir::WaitKind::Program)
        return op.emitError() << "is in program order, in phase " << stringifyPhase(iteration.getPhase());
      if (order.lanes_[static_cast<size_t>(order.indexOf(ir::stepOf(wait.getEvent())))] ==
          static_cast<size_t>(wait.getLane()))
        return op.emitError() << "is for a step of the same lane, whose order says it already";
      waits[static_cast<size_t>(wait.getLane())].push_back(wait);
      continue;
    }
    auto step = llvm::dyn_cast<ir::StepInterface>(op);
    if (!step)
      continue;
    const std::optional<ir::Lane> lane = step.stepInfo().lane;
    if (!lane)
      return op.emitError() << "has no lane, in phase " << stringifyPhase(iteration.getPhase());
    if (!mayRunOn(&op, *lane))
      return op.emitError() << "cannot run on lane " << stringifyLane(*lane);

    const auto l = static_cast<size_t>(*lane);
    Clock clock = next[l];
    const auto add = [&](Clock &to, ir::WaitOp wait) {
      const auto awaited = static_cast<size_t>(order.indexOf(ir::stepOf(wait.getEvent())));
      for (size_t i = 0; i < kLanes; ++i)
        to[i] = std::max(to[i], order.clocks_[awaited][i]);
      to[order.lanes_[awaited]] = std::max(to[order.lanes_[awaited]], static_cast<int32_t>(awaited));
    };
    // A wait that says nothing beyond the others is refused.
    for (ir::WaitOp wait : waits[l]) {
      Clock without = next[l];
      for (ir::WaitOp other : waits[l])
        if (other != wait)
          add(without, other);
      const int32_t awaited = order.indexOf(ir::stepOf(wait.getEvent()));
      if (without[order.lanes_[static_cast<size_t>(awaited)]] >= awaited)
        return wait.emitError() << "is implied by the order of lanes and other waits";
      add(clock, wait);
    }
    waits[l].clear();
    const auto index = static_cast<int32_t>(order.steps_.size());
    order.steps_.push_back(step);
    order.lanes_.push_back(l);
    order.clocks_.push_back(clock);
    order.indexOf_[&op] = index;
    clock[l] = index;
    next[l] = clock;
  }
  for (const auto &lane : waits)
    if (!lane.empty())
      return ir::WaitOp(lane.front()).emitError() << "is followed by no step of its lane";
  return order;
}

} // namespace headrace::passes
