// SPDX-License-Identifier: Apache-2.0
#include "passes/Passes.h"

namespace headrace::passes {
#define GEN_PASS_DEF_PRICEDIRECTREADS
#include "passes/Passes.h.inc"

namespace {

struct PriceDirectReads : impl::PriceDirectReadsBase<PriceDirectReads> {
  using PriceDirectReadsBase::PriceDirectReadsBase;

  void runOnOperation() override {
    ir::IterationOp iteration = getOperation();
    if (iteration.getPhase() != ir::Phase::Homes) {
      iteration.emitError() << "direct reads are priced in the homes phase, not in phase "
                            << stringifyPhase(iteration.getPhase());
      return signalPassFailure();
    }
    for (mlir::Operation &op : iteration.block()) {
      auto step = llvm::dyn_cast<ir::StepInterface>(op);
      if (!step || !step.stepInfo().direct)
        continue;
      step.stepInfo().deviceBytes = deviceBytes;
      step.stepInfo().linkBytes = linkBytes;
    }
  }
};

} // namespace
} // namespace headrace::passes
