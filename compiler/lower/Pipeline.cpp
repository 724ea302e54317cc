// SPDX-License-Identifier: Apache-2.0
#include "compiler/lower/Pipeline.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "compiler/evaluate/PlanWrapAround.h"
#include "compiler/lower/Mirrors.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Pass/PassInstrumentation.h"
#include "mlir/Pass/PassManager.h"
#include "passes/Passes.h"
#include "runtime/base/StatusMacros.h"

namespace headrace::compiler {
namespace {

using OnPass = std::function<void(ir::IterationOp, llvm::StringRef pass)>;

// Shows what each pass has left, of every iteration that it ran on.
class ShowEachPass : public mlir::PassInstrumentation {
public:
  explicit ShowEachPass(const OnPass &onPass) : onPass_(onPass) {}
  void runAfterPass(mlir::Pass *pass, mlir::Operation *op) override {
    llvm::StringRef name = pass->getArgument();
    name.consume_front("headrace-");
    if (auto iteration = llvm::dyn_cast<ir::IterationOp>(op))
      onPass_(iteration, name);
    else if (auto module = llvm::dyn_cast<mlir::ModuleOp>(op))
      for (ir::IterationOp each : module.getOps<ir::IterationOp>())
        onPass_(each, name);
  }

private:
  const OnPass &onPass_;
};

// Runs passes and turns the diagnostics of one that fails into a status.
class PassRunner {
public:
  PassRunner(mlir::MLIRContext *context, const PipelineOptions &options)
      : context_(context), onPass_(options.onPass), handler_(context, [this](mlir::Diagnostic &diagnostic) {
          absl::StrAppend(&messages_, messages_.empty() ? "" : "; ", diagnostic.str());
          return mlir::success();
        }) {}

  template <typename... Passes> absl::Status run(mlir::Operation *op, llvm::StringRef phase, Passes... passes) {
    mlir::PassManager manager(context_, op->getName().getStringRef());
    manager.enableVerifier(false); // each phase ends with its own
    if (onPass_)
      manager.addInstrumentation(std::make_unique<ShowEachPass>(onPass_));
    (manager.addPass(std::move(passes)), ...);
    if (mlir::succeeded(manager.run(op)))
      return absl::OkStatus();
    return absl::InternalError(absl::StrCat("compiling to phase ", phase.str(), ": ", messages_));
  }

private:
  mlir::MLIRContext *context_;
  const OnPass &onPass_;
  std::string messages_;
  mlir::ScopedDiagnosticHandler handler_;
};

std::unique_ptr<mlir::Pass> verify(ir::Phase phase) { return passes::createVerifyPhase({stringifyPhase(phase).str()}); }

passes::PriceDirectOptions directAmounts(ir::IterationOp iteration, const PipelineOptions &options) {
  passes::PriceDirectOptions amounts;
  for (mlir::Operation &op : iteration.block())
    if (auto step = llvm::dyn_cast<ir::StepInterface>(op);
        step && step.stepInfo().direct && !llvm::isa<ir::FetchRowsOp>(op)) {
      const cost::Work work = options.directWork(step, iteration);
      // The same in every layer.
      const bool appends = llvm::isa<ir::RopeAppendOp>(op), keeps = llvm::isa<ir::ActAppendOp>(op);
      (appends ? amounts.appendDeviceBytes : keeps ? amounts.keepDeviceBytes : amounts.deviceBytes) = work.deviceBytes;
      (appends ? amounts.appendLinkBytes : keeps ? amounts.keepLinkBytes : amounts.linkBytes) = work.linkBytes;
    }
  return amounts;
}

// One iteration up to the lanes phase. What the residency leaves open is decided in it, for the iterations that follow.
absl::Status schedule(ir::IterationOp iteration, const PipelineOptions &options, algorithms::Residency &residency,
                      PassRunner &runner) {
  const auto close = [&](ir::Phase phase) {
    if (options.onPhase)
      options.onPhase(iteration, stringifyPhase(phase));
  };

  // model: what is computed, every weight at home on the device
  RETURN_IF_ERROR(runner.run(iteration, "model", verify(ir::Phase::Model)));
  close(ir::Phase::Model);

  // homes: which weights live on the host. The choice is the policy's; here it becomes types, so that a use of a weight
  // that nobody brings to the device no longer type-checks.
  passes::ChooseHomesOptions homes;
  homes.residency = residency;
  homes.kvBlocks = options.kv.blocks;
  homes.kvBlocksHere = options.kvBlocks;
  homes.kvBlockBytes = options.kv.blockBytes;
  homes.kvMirror = options.kv.mirror.value_or(-1);
  homes.kvInterleaved = options.kv.interleaved;
  RETURN_IF_ERROR(runner.run(iteration, "homes", passes::createChooseHomes(homes)));
  if (options.directWork)
    RETURN_IF_ERROR(runner.run(iteration, "homes", passes::createPriceDirect(directAmounts(iteration, options))));
  RETURN_IF_ERROR(runner.run(iteration, "homes", verify(ir::Phase::Homes)));
  close(ir::Phase::Homes);

  // movement: how they get to the device and when they give their range up. Only waits in program order are inserted:
  // right one step after another, whatever lanes there will be.
  // Where the circle is cut needs the durations of the iteration's steps, which the IR does not hold.
  RETURN_IF_ERROR(decideCut(
      toPlan(iteration.getIterationClass()), !iteration.block().getOps<ir::OnDeviceOp>().empty(),
      [&] { return options.planCut(iteration); }, residency));
  RETURN_IF_ERROR(
      runner.run(iteration, "movement", passes::createInsertMovement({residency}), verify(ir::Phase::Movement)));
  close(ir::Phase::Movement);

  // lanes: what runs beside what
  RETURN_IF_ERROR(runner.run(iteration, "lanes",
                             // Copies leave the program's order here; the order within a lane stays the program's.
                             passes::createAssignLanes(),
                             // All dependences across lanes first, as accesses to the same bytes ask for them ...
                             passes::createInsertWaits(),
                             // ... then only those are kept that no other implies.
                             passes::createElideWaits(), verify(ir::Phase::Lanes)));
  close(ir::Phase::Lanes);
  return absl::OkStatus();
}

} // namespace

absl::Status runToOffsets(mlir::ModuleOp module, const PipelineOptions &options) {
  PassRunner runner(module.getContext(), options);
  // Where the circle is cut is decided apart for iterations that bring tails and for those that bring none.
  algorithms::Residency residency = options.residency, withoutTails = options.residency;
  for (ir::IterationOp iteration : module.getOps<ir::IterationOp>())
    RETURN_IF_ERROR(schedule(iteration, options, iteration.getKvBlocks() == 0 ? residency : withoutTails, runner));
  // Schedules that follow each other in a cycle fit each other.
  RETURN_IF_ERROR(runner.run(module, "lanes", passes::createVerifyCycles()));

  // offsets: where everything lies. The host slab serves all placements of a plan, so the plan says where a unit lies
  // in it; none where only sizes are asked for.
  passes::PlaceOnHostOptions onHost;
  onHost.at = options.onHost;
  if (options.staging)
    onHost.staging = static_cast<int64_t>(*options.staging);
  for (ir::IterationOp iteration : module.getOps<ir::IterationOp>())
    RETURN_IF_ERROR(runner.run(iteration, "offsets", passes::createPlaceOnHost(onHost)));
  // All iterations of a placement at once: what persists from one to the next has one address.
  return runner.run(module, "offsets", passes::createPlaceBuffers());
}

absl::Status closeOffsets(mlir::ModuleOp module, const PipelineOptions &options) {
  PassRunner runner(module.getContext(), options);
  for (ir::IterationOp iteration : module.getOps<ir::IterationOp>()) {
    RETURN_IF_ERROR(runner.run(iteration, "offsets", verify(ir::Phase::Offsets)));
    if (options.onPhase)
      options.onPhase(iteration, stringifyPhase(ir::Phase::Offsets));
  }
  return absl::OkStatus();
}

absl::Status runPipeline(mlir::ModuleOp module, const PipelineOptions &options) {
  RETURN_IF_ERROR(runToOffsets(module, options));
  return closeOffsets(module, options);
}

} // namespace headrace::compiler
