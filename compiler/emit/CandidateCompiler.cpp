// SPDX-License-Identifier: Apache-2.0
#include "compiler/emit/CandidateCompiler.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/evaluate/Interfere.h"
#include "compiler/evaluate/PlanWrapAround.h"
#include "compiler/lower/LowerModel.h"
#include "compiler/lower/Mirrors.h"
#include "passes/algorithms/RotationOf.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {
namespace {

std::string scheduleName(ir::IterationOp iteration, const Candidate &candidate) {
  return absl::StrCat(stringifyIterationClass(iteration.getIterationClass()).str(), " ", candidate.name,
                      iteration.getKvBlocks() == 0 ? "" : ", no tails",
                      iteration.getPeriod() == 1
                          ? ""
                          : absl::StrCat(", phase ", iteration.getCyclePhase(), " of ", iteration.getPeriod()));
}

} // namespace

CandidateCompiler::CandidateCompiler(const CompileRequest &request, const Target &target,
                                     const model::WeightLayout &layout, Prices &prices)
    : request_(request), target_(target), layout_(layout), prices_(prices),
      context_(mlir::MLIRContext::Threading::DISABLED) {
  context_.loadDialect<ir::HeadraceDialect>();
  classes_.push_back({plan::IterationClass::Decode, &target_.decode});
  if (!target_.mixed.empty())
    classes_.push_back({plan::IterationClass::Mixed, &target_.mixed});
}

mlir::OwningOpRef<mlir::ModuleOp> CandidateCompiler::lower(int64_t firstKvBlockAway, uint64_t period) {
  mlir::OwningOpRef<mlir::ModuleOp> module = mlir::ModuleOp::create(mlir::UnknownLoc::get(&context_));
  for (const IterationClass &c : classes_)
    for (uint64_t phase = 0; phase < period; ++phase) {
      ir::IterationOp iteration = lowerModel(*module, period == 1 ? c.name() : absl::StrCat(c.name(), "_", phase),
                                             stepsRequest(c.iterationClass));
      iteration.setCyclePhase(static_cast<int64_t>(phase));
      iteration.setPeriod(static_cast<int64_t>(period));
    }
  if (firstKvBlockAway == 0)
    return module;
  // With nothing in use above, an iteration brings no tails.
  for (const IterationClass &c : classes_)
    lowerModel(*module, absl::StrCat(c.name(), "_no_tails"), stepsRequest(c.iterationClass))
        .setKvBlocks(firstKvBlockAway);
  return module;
}

StepsRequest CandidateCompiler::stepsRequest(plan::IterationClass iterationClass) const {
  const auto of = std::find_if(classes_.begin(), classes_.end(),
                               [&](const IterationClass &c) { return c.iterationClass == iterationClass; });
  return {&*request_.model, &layout_, &target_, request_.hardware.kind, iterationClass, Target::limits(*of->buckets)};
}

std::vector<MemoryUse> CandidateCompiler::memoryUses() const {
  std::vector<MemoryUse> uses;
  for (const IterationClass &c : classes_)
    uses.push_back(memoryUseOf(stepsOf(stepsRequest(c.iterationClass))));
  return uses;
}

std::vector<PricedStep> CandidateCompiler::pricedSteps() const {
  std::vector<PricedStep> priced;
  for (const Step &step : stepsOf(stepsRequest(classes_.front().iterationClass)).steps)
    if (const std::optional<cost::OpSite> site = step.site())
      priced.push_back({*site, step.layer >= 0});
  return priced;
}

absl::StatusOr<Placed> CandidateCompiler::place(const Candidate &candidate, const Where &where) {
  const algorithms::Residency &residency = candidate.residency;
  const uint64_t period =
      residency.rotates() ? algorithms::rotationPeriodOf(residency, target_.caches(request_.model->layers)).value_or(1)
                          : 1;
  Placed placed{&candidate, lower(residency.firstKvBlockAway().value_or(0), period), optionsOf(candidate, where)};
  RETURN_IF_ERROR(runToOffsets(*placed.module, placed.options));
  return placed;
}

PipelineOptions CandidateCompiler::optionsOf(const Candidate &candidate, const Where &where) {
  PipelineOptions options;
  options.residency = candidate.residency;
  options.kv = where.host->kv;
  options.kvBlocks = candidate.kvBlocks;
  options.onHost = where.host->at;
  options.directWork = [this](ir::StepInterface step, ir::IterationOp iteration) {
    cost::Work work = cost::workOf(request_.model, *opSite(step), Target::limits(bucketsOf(iteration)),
                                   target_.activation, target_.kv, /*direct=*/true);
    if (auto append = llvm::dyn_cast<ir::RopeAppendOp>(step.getOperation())) {
      uint64_t home = 0; // no more rows are written there than it has
      for (const mlir::Value part : append.getHome())
        home += ir::bufferType(part).getBytes();
      work.linkBytes = std::min(work.linkBytes, home);
    }
    return work;
  };
  options.planCut = [this, &candidate, mirror = where.host->kv.mirror](ir::IterationOp iteration) {
    const plan::IterationClass iterationClass = toPlan(iteration.getIterationClass());
    const Homes homes{&candidate, &target_, iterationClass, iteration.getKvBlocks() == 0, mirror};
    return planWrapAround(stepsOf(stepsRequest(iterationClass)), homes, bucketsOf(iteration), prices_);
  };
  const auto shown = [&candidate](const auto &show) {
    return [&candidate, &show](ir::IterationOp iteration, llvm::StringRef after) {
      std::string text;
      llvm::raw_string_ostream stream(text);
      iteration.print(stream);
      show(scheduleName(iteration, candidate), std::string_view(after.data(), after.size()), text);
    };
  };
  if (request_.onPhase && where.forThePlan)
    options.onPhase = shown(request_.onPhase);
  if (request_.onPass && where.forThePlan)
    options.onPass = shown(request_.onPass);
  return options;
}

absl::Status CandidateCompiler::addTo(plan::Plan &plan, PlanEmitter &emitter, Placed &placed,
                                      const std::function<void()> &onStep) {
  RETURN_IF_ERROR(closeOffsets(*placed.module, placed.options));
  const Candidate &candidate = *placed.candidate;
  plan::Placement described;
  described.name = candidate.name;
  described.interval = candidate.interval;
  described.kvBlocks = candidate.kvBlocks;
  const Away away = awayOf(candidate.residency, request_.model);
  described.offloadedLayers = static_cast<int32_t>(away.layers);
  described.offloadsEmbedding = away.embedding;
  described.offloadsHead = away.head;
  described.startRule = toModel(candidate.residency.start.rule);
  described.startItems = candidate.residency.start.items;
  const auto stepped = [&] {
    if (onStep)
      onStep();
  };
  std::optional<uint32_t> placement;
  for (ir::IterationOp iteration : placed.module->getOps<ir::IterationOp>()) {
    if (!placement)
      placement = emitter.addPlacement(iteration, described);
    const absl::StatusOr<EmittedSchedule> emitted =
        emitter.addSchedule(iteration, scheduleName(iteration, candidate), *placement);
    if (!emitted.ok())
      return emitted.status();
    stepped();
    const sim::Simulator simulator(plan.schedules[emitted->schedule]);
    for (const cost::Bucket &bucket : bucketsOf(iteration)) {
      plan.variants.push_back(variantOf(*emitted, bucket, plan, simulator));
      stepped();
    }
  }
  return absl::OkStatus();
}

const std::vector<cost::Bucket> &CandidateCompiler::bucketsOf(ir::IterationOp iteration) const {
  return iteration.getIterationClass() == ir::IterationClass::Decode ? target_.decode : target_.mixed;
}

plan::Variant CandidateCompiler::variantOf(const EmittedSchedule &emitted, const cost::Bucket &bucket,
                                           const plan::Plan &plan, const sim::Simulator &simulator) {
  const plan::Schedule &schedule = plan.schedules[emitted.schedule];
  plan::Variant variant;
  variant.newTokens = bucket.tokens;
  variant.sequences = bucket.sequences;
  variant.context = bucket.context;
  variant.placement = schedule.placement;
  variant.schedule = emitted.schedule;
  variant.durationsNs = prices_.durations(plan, schedule, emitted.sites, bucket);
  simulator.run(variant.durationsNs, prices_.duplexShare(), timeline_);
  if (interfere(schedule, prices_.interference(), timeline_, variant.durationsNs))
    simulator.run(variant.durationsNs, prices_.duplexShare(), timeline_);
  variant.predictedNs = timeline_.iterationNs;
  uint64_t lanes[plan::kLanes] = {};
  for (size_t step = 0; step < schedule.steps.size(); ++step)
    lanes[static_cast<size_t>(schedule.steps[step].lane)] += variant.durationsNs[step];
  variant.computeAloneNs = lanes[static_cast<size_t>(plan::Lane::Compute)];
  variant.linkAloneNs =
      std::max(lanes[static_cast<size_t>(plan::Lane::H2D)], lanes[static_cast<size_t>(plan::Lane::D2H)]);
  return variant;
}

} // namespace headrace::compiler
