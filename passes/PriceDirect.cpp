// SPDX-License-Identifier: Apache-2.0
#include "passes/Passes.h"

namespace headrace::passes {
#define GEN_PASS_DEF_PRICEDIRECT
#include "passes/Passes.h.inc"

namespace {

struct PriceDirect : impl::PriceDirectBase<PriceDirect> {
  using PriceDirectBase::PriceDirectBase;

  void runOnOperation() override {
    ir::IterationOp iteration = getOperation();
    if (iteration.getPhase() != ir::Phase::Homes) {
      iteration.emitError() << "direct steps are priced in the homes phase, not in phase "
                            << stringifyPhase(iteration.getPhase());
      return signalPassFailure();
    }
    for (mlir::Operation &op : iteration.block()) {
      auto step = llvm::dyn_cast<ir::StepInterface>(op);
      if (!step || !step.stepInfo().direct || llvm::isa<ir::FetchRowsOp>(op)) // which is nothing else
        continue;
      const bool appends = llvm::isa<ir::RopeAppendOp>(op), keeps = llvm::isa<ir::ActAppendOp>(op);
      step.stepInfo().deviceBytes = appends ? appendDeviceBytes : keeps ? keepDeviceBytes : deviceBytes;
      step.stepInfo().linkBytes = appends ? appendLinkBytes : keeps ? keepLinkBytes : linkBytes;
    }
  }
};

} // namespace
} // namespace headrace::passes
