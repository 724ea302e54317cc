// SPDX-License-Identifier: Apache-2.0
#include "compiler/emit/CandidateCompiler.h"

#include <iterator>
#include <optional>

#include "absl/strings/str_cat.h"
#include "compiler/evaluate/PlanWrapAround.h"
#include "compiler/lower/Mirrors.h"
#include "runtime/base/StatusMacros.h"

namespace headrace::compiler {
namespace {

IterationOf iterationOf(ir::IterationOp iteration) {
  return {toPlan(iteration.getIterationClass()), static_cast<uint64_t>(iteration.getCyclePhase()),
          static_cast<uint64_t>(iteration.getPeriod()), iteration.getKvBlocks()};
}

} // namespace

CandidateCompiler::CandidateCompiler(Iterations &iterations)
    : iterations_(iterations), context_(mlir::MLIRContext::Threading::DISABLED) {
  context_.loadDialect<ir::HeadraceDialect>();
}

mlir::OwningOpRef<mlir::ModuleOp> CandidateCompiler::lower(const Candidate &candidate) {
  mlir::OwningOpRef<mlir::ModuleOp> module = mlir::ModuleOp::create(mlir::UnknownLoc::get(&context_));
  for (const IterationOf &of : iterations_.of(candidate)) {
    const std::string name = absl::StrCat(of.className(), of.period == 1 ? "" : absl::StrCat("_", of.phase),
                                          of.kvBlocks == 0 ? "" : "_no_tails");
    ir::IterationOp iteration = lowerModel(*module, name, iterations_.stepsRequest(of.iterationClass));
    iteration.setCyclePhase(static_cast<int64_t>(of.phase));
    iteration.setPeriod(static_cast<int64_t>(of.period));
    iteration.setKvBlocks(of.kvBlocks);
  }
  return module;
}

absl::StatusOr<Placed> CandidateCompiler::place(const Candidate &candidate, const HostLayout &host) {
  Placed placed{&candidate, lower(candidate), optionsOf(candidate, host)};
  RETURN_IF_ERROR(runToOffsets(*placed.module, placed.options));
  return placed;
}

PipelineOptions CandidateCompiler::optionsOf(const Candidate &candidate, const HostLayout &host) {
  const CompileRequest &request = iterations_.request();
  PipelineOptions options;
  options.residency = candidate.residency;
  options.kv = host.kv;
  options.kvBlocks = candidate.kvBlocks;
  options.onHost = host.at;
  options.staging = host.staging;
  options.directWork = [this](ir::StepInterface step, ir::IterationOp iteration) {
    uint64_t home = 0;
    if (auto append = llvm::dyn_cast<ir::RopeAppendOp>(step.getOperation()))
      for (const mlir::Value part : append.getHome())
        home += ir::bufferType(part).getBytes();
    return iterations_.directWork(*opSite(step), toPlan(iteration.getIterationClass()), home);
  };
  options.planCut = [this, &candidate, mirror = host.kv.mirror](ir::IterationOp iteration) {
    const plan::IterationClass iterationClass = toPlan(iteration.getIterationClass());
    const Homes homes{&candidate, &iterations_.target(), iterationClass, iteration.getKvBlocks() == 0, mirror};
    return planWrapAround(iterations_.steps(iterationClass), homes, iterations_.buckets(iterationClass),
                          iterations_.prices());
  };
  const auto shown = [&candidate](const auto &show) {
    return [&candidate, &show](ir::IterationOp iteration, llvm::StringRef after) {
      std::string text;
      llvm::raw_string_ostream stream(text);
      iteration.print(stream);
      show(iterationOf(iteration).scheduleName(candidate), std::string_view(after.data(), after.size()), text);
    };
  };
  if (request.onPhase)
    options.onPhase = shown(request.onPhase);
  if (request.onPass)
    options.onPass = shown(request.onPass);
  return options;
}

absl::Status CandidateCompiler::addTo(PlanWriter &writer, Placed &placed, const std::function<void()> &onStep) {
  RETURN_IF_ERROR(closeOffsets(*placed.module, placed.options));
  plan::Plan &plan = writer.plan();
  const Candidate &candidate = *placed.candidate;
  const auto stepped = [&] {
    if (onStep)
      onStep();
  };
  // By the one that has all slots: some bring no tails.
  const auto slots = [](ir::IterationOp iteration) {
    const auto all = iteration.block().getOps<ir::SlotOp>();
    return std::distance(all.begin(), all.end());
  };
  ir::IterationOp most = *placed.module->getOps<ir::IterationOp>().begin();
  for (ir::IterationOp iteration : placed.module->getOps<ir::IterationOp>())
    if (slots(iteration) > slots(most))
      most = iteration;
  const uint32_t placement = addPlacement(most, iterations_.described(candidate), writer);
  for (ir::IterationOp iteration : placed.module->getOps<ir::IterationOp>()) {
    const IterationOf of = iterationOf(iteration);
    ASSIGN_OR_RETURN(emitted, addSchedule(iteration, of.scheduleName(candidate), placement, writer));
    stepped();
    const sim::Simulator simulator(plan, plan.schedules[emitted.schedule]);
    for (const cost::Bucket &bucket : iterations_.buckets(of.iterationClass)) {
      plan.variants.push_back(iterations_.variantOf(plan, emitted.schedule, emitted.sites, bucket, simulator));
      stepped();
    }
  }
  return absl::OkStatus();
}

} // namespace headrace::compiler
