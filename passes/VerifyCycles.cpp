// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "passes/Passes.h"

namespace headrace::passes {
#define GEN_PASS_DEF_VERIFYCYCLES
#include "passes/Passes.h.inc"

namespace {

// What lies in a slot at an edge: the buffer's name, bytes, slot, offset, whether it is dirty. Of any iteration.
using Content = std::tuple<std::string, uint64_t, int32_t, int64_t, bool>;
using Contents = std::set<Content>;

Contents entryOf(ir::IterationOp iteration) {
  Contents contents;
  for (ir::CarryOp carry : iteration.block().getOps<ir::CarryOp>())
    contents.insert({carry.getSource().getDefiningOp<ir::MovableInterface>().movable().name, carry.getRange().bytes,
                     carry.getSlot().getDefiningOp<ir::SlotOp>().getIndex(), carry.getSlotOffset(), carry.getDirty()});
  return contents;
}

Contents exitOf(ir::IterationOp iteration) {
  Contents contents;
  for (ir::CarryOutOp out : iteration.block().getOps<ir::CarryOutOp>()) {
    mlir::Operation *first = ir::rangeOf(out.getBuffer()).getDefiningOp();
    auto carry = llvm::dyn_cast<ir::CarryOp>(first);
    auto prefetch = llvm::dyn_cast<ir::PrefetchOp>(first);
    const mlir::Value slot = carry ? mlir::Value(carry.getSlot()) : mlir::Value(prefetch.getDestination());
    contents.insert({ir::bufferOf(out.getBuffer()).getDefiningOp<ir::MovableInterface>().movable().name,
                     ir::bufferType(out.getBuffer()).getHeld(), slot.getDefiningOp<ir::SlotOp>().getIndex(),
                     carry ? carry.getSlotOffset() : prefetch.getSlotOffset(), out.getDirty()});
  }
  return contents;
}

// The first of `a` that is not in `b`.
std::string firstMissing(const Contents &a, const Contents &b) {
  for (const Content &content : a)
    if (!b.contains(content))
      return std::to_string(std::get<1>(content)) + " bytes of " + std::get<0>(content) + " in slot " +
             std::to_string(std::get<2>(content)) + (std::get<4>(content) ? ", dirty" : "");
  return "";
}

struct VerifyCycles : impl::VerifyCyclesBase<VerifyCycles> {
  using VerifyCyclesBase::VerifyCyclesBase;

  void runOnOperation() override {
    std::map<ir::IterationClass, std::vector<ir::IterationOp>> cycles;
    for (ir::IterationOp iteration : getOperation().getOps<ir::IterationOp>())
      if (iteration.getPeriod() > 1)
        cycles[iteration.getIterationClass()].push_back(iteration);
    std::vector<ir::IterationOp> others; // the cycle of the class before
    for (auto &[iterationClass, cycle] : cycles) {
      if (failed(verify(cycle, others)))
        return signalPassFailure();
      others = cycle;
    }
    markAllAnalysesPreserved();
  }

  static mlir::LogicalResult verify(std::vector<ir::IterationOp> &cycle, const std::vector<ir::IterationOp> &others) {
    const size_t period = static_cast<size_t>(cycle.front().getPeriod());
    std::sort(cycle.begin(), cycle.end(),
              [](ir::IterationOp a, ir::IterationOp b) { return a.getCyclePhase() < b.getCyclePhase(); });
    for (size_t k = 0; k < cycle.size(); ++k)
      if (cycle.size() != period || static_cast<size_t>(cycle[k].getPeriod()) != period ||
          static_cast<size_t>(cycle[k].getCyclePhase()) != k)
        return cycle[k].emitError() << "is number " << cycle[k].getCyclePhase() << " of a cycle of "
                                    << cycle[k].getPeriod() << ", beside which there is not each other number once";
    for (size_t k = 0; k < period; ++k) {
      ir::IterationOp before = cycle[(k + period - 1) % period];
      if (failed(same(cycle[k], entryOf(cycle[k]), before, exitOf(before), " leaves behind it")))
        return mlir::failure();
      if (!others.empty() && others.size() != period)
        return cycle[k].emitError() << "is of a cycle of " << period << ", that of the other class has "
                                    << others.size();
      if (!others.empty()) {
        ir::IterationOp other = others[k];
        if (failed(same(cycle[k], entryOf(cycle[k]), other, entryOf(other), " finds in its place")))
          return mlir::failure();
      }
    }
    return mlir::success();
  }

  static mlir::LogicalResult same(ir::IterationOp iteration, const Contents &entry, ir::IterationOp other,
                                  const Contents &there, const char *what) {
    if (entry == there)
      return mlir::success();
    const std::string lacks = firstMissing(entry, there);
    auto diagnostic = iteration.emitError();
    if (!lacks.empty())
      diagnostic << "finds on entry " << lacks << ", which is not what '" << other.getSymName() << "'" << what;
    else
      diagnostic << "does not find on entry " << firstMissing(there, entry) << ", which '" << other.getSymName() << "'"
                 << what;
    return diagnostic;
  }
};

} // namespace
} // namespace headrace::passes
