// SPDX-License-Identifier: Apache-2.0
#include "compiler/lower/Pipeline.h"

#include <memory>

#include "absl/strings/str_cat.h"
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

absl::Status schedule(ir::IterationOp iteration, const PipelineOptions &options, PassRunner &runner) {
  const auto closePhase = [&](ir::Phase phase) {
    if (options.onPhase)
      options.onPhase(iteration, stringifyPhase(phase));
  };
  const auto verify = [](ir::Phase phase) { return passes::createVerifyPhase({stringifyPhase(phase).str()}); };

  //===--------------------------------------------------------------------===//
  // model: what is computed, every weight at home on the device
  //===--------------------------------------------------------------------===//
  RETURN_IF_ERROR(runner.run(iteration, "model", verify(ir::Phase::Model)));
  closePhase(ir::Phase::Model);

  //===--------------------------------------------------------------------===//
  // homes: which weights live on the host
  //===--------------------------------------------------------------------===//
  passes::ChooseHomesOptions homes;
  homes.layers.assign(options.layers.begin(), options.layers.end());
  homes.units.assign(options.units.begin(), options.units.end());
  homes.embedding = options.embedding;
  homes.head = options.head;
  // The choice is the policy's (Placements.cpp); here it becomes types, so that a use of a weight that nobody brings to
  // the device no longer type-checks.
  if (absl::Status status = runner.run(iteration, "homes", passes::createChooseHomes(homes), verify(ir::Phase::Homes));
      !status.ok())
    return status;
  // What is read directly crosses the link instead of device memory.
  if (options.directWork)
    for (ir::EmbedOp embed : iteration.block().getOps<ir::EmbedOp>())
      if (embed.stepInfo().direct) {
        const cost::Work work = options.directWork(embed, iteration);
        embed.stepInfo().deviceBytes = work.deviceBytes;
        embed.stepInfo().linkBytes = work.linkBytes;
      }
  closePhase(ir::Phase::Homes);

  //===--------------------------------------------------------------------===//
  // movement: how they get to the device and when they give their range up
  //===--------------------------------------------------------------------===//
  passes::InsertMovementOptions movement;
  movement.slots = options.slots.slots;
  movement.ringBytes = options.slots.ringBytes;
  if (options.planCut) {
    // Where the circle is cut needs the durations of this iteration's steps, which the IR does not hold.
    absl::StatusOr<algorithms::Cut> cut = options.planCut(iteration);
    if (!cut.ok())
      return cut.status();
    movement.wrapUnits = static_cast<int64_t>(cut->units);
    movement.wrapBytes = static_cast<int64_t>(cut->bytes);
  }
  // Only waits in program order are inserted: right one step after another, whatever lanes there will be.
  if (absl::Status status =
          runner.run(iteration, "movement", passes::createInsertMovement(movement), verify(ir::Phase::Movement));
      !status.ok())
    return status;
  closePhase(ir::Phase::Movement);

  //===--------------------------------------------------------------------===//
  // lanes: what runs beside what
  //===--------------------------------------------------------------------===//
  if (absl::Status status =
          runner.run(iteration, "lanes",
                     // Copies leave the program's order here; the order within a lane stays the program's.
                     passes::createAssignLanes(),
                     // All dependences across lanes first, as accesses to the same bytes ask for them ...
                     passes::createInsertWaits(),
                     // ... then only those are kept that no other implies.
                     passes::createElideWaits(), verify(ir::Phase::Lanes));
      !status.ok())
    return status;
  closePhase(ir::Phase::Lanes);
  return absl::OkStatus();
}

} // namespace

absl::Status runToOffsets(mlir::ModuleOp module, const PipelineOptions &options) {
  PassRunner runner(module.getContext(), options);
  for (ir::IterationOp iteration : module.getOps<ir::IterationOp>())
    RETURN_IF_ERROR(schedule(iteration, options, runner));

  //===--------------------------------------------------------------------===//
  // offsets: where everything lies
  //===--------------------------------------------------------------------===//
  // The host slab serves all placements of a plan, so the plan says where a unit lies in it.
  if (options.hostAddress)
    for (ir::IterationOp iteration : module.getOps<ir::IterationOp>())
      for (ir::WeightOp weight : iteration.block().getOps<ir::WeightOp>())
        if (!ir::bufferType(weight.getBuffer()).isOnDevice())
          weight.address().value = static_cast<int64_t>(options.hostAddress(weight.getUnit()));
  // All iterations of a placement at once: what persists from one to the next has one address.
  passes::PlaceBuffersOptions placement;
  placement.kvAlign = options.kvAlign;
  return runner.run(module, "offsets", passes::createPlaceBuffers(placement));
}

absl::Status closeOffsets(mlir::ModuleOp module, const PipelineOptions &options) {
  PassRunner runner(module.getContext(), options);
  for (ir::IterationOp iteration : module.getOps<ir::IterationOp>()) {
    if (absl::Status status =
            runner.run(iteration, "offsets", passes::createVerifyPhase({stringifyPhase(ir::Phase::Offsets).str()}));
        !status.ok())
      return status;
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
