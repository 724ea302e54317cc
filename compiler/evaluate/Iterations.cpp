// SPDX-License-Identifier: Apache-2.0
#include "compiler/evaluate/Iterations.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/evaluate/Interfere.h"
#include "passes/algorithms/CycleOf.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {

std::string IterationOf::className() const {
  return iterationClass == plan::IterationClass::Decode ? "decode" : "mixed";
}

std::string IterationOf::scheduleName(const Candidate &candidate) const {
  return absl::StrCat(className(), " ", candidate.name, kvBlocks == 0 ? "" : ", no tails",
                      period == 1 ? "" : absl::StrCat(", phase ", phase, " of ", period));
}

Iterations::Iterations(const CompileRequest &request, const Target &target, const model::WeightLayout &layout,
                       Prices &prices)
    : request_(request), target_(target), layout_(layout), prices_(prices) {
  classes_.push_back(plan::IterationClass::Decode);
  if (!target_.mixed.empty())
    classes_.push_back(plan::IterationClass::Mixed);
  for (const plan::IterationClass c : classes_)
    steps_.push_back(stepsOf(stepsRequest(c)));
}

std::vector<IterationOf> Iterations::of(const Candidate &candidate) const {
  const algorithms::Residency &residency = candidate.residency;
  const uint64_t period =
      residency.cycles() ? algorithms::cyclePeriodOf(residency, target_.caches(request_.model->layers)) : 1;
  std::vector<IterationOf> iterations;
  for (const plan::IterationClass c : classes_)
    for (uint64_t phase = 0; phase < period; ++phase)
      iterations.push_back({c, phase, period, 0});
  if (const int64_t away = residency.firstKvBlockAway().value_or(0); away > 0)
    for (const plan::IterationClass c : classes_)
      iterations.push_back({c, 0, 1, away});
  return iterations;
}

StepsRequest Iterations::stepsRequest(plan::IterationClass iterationClass) const {
  return {&*request_.model,       &layout_,       &target_,
          request_.hardware.kind, iterationClass, Target::limits(buckets(iterationClass))};
}

const Steps &Iterations::steps(plan::IterationClass iterationClass) const {
  return steps_[iterationClass == plan::IterationClass::Decode ? 0 : 1];
}

std::vector<MemoryUse> Iterations::memoryUses() const {
  std::vector<MemoryUse> uses;
  for (const Steps &steps : steps_)
    uses.push_back(memoryUseOf(steps));
  return uses;
}

std::vector<PricedStep> Iterations::pricedSteps() const {
  std::vector<PricedStep> priced;
  for (const Step &step : steps_.front().steps)
    if (const std::optional<cost::OpSite> site = step.site())
      priced.push_back({*site, step.layer >= 0});
  return priced;
}

plan::Placement Iterations::described(const Candidate &candidate) const {
  plan::Placement described;
  described.name = candidate.name;
  described.interval = candidate.interval;
  described.kvBlocks = candidate.kvBlocks;
  described.startRule = static_cast<model::StartRule>(candidate.residency.start.rule);
  described.startItems = candidate.residency.start.items;
  return described;
}

cost::Work Iterations::directWork(const cost::OpSite &site, plan::IterationClass iterationClass,
                                  uint64_t homeBytes) const {
  cost::Work work = cost::workOf(request_.model, site, Target::limits(buckets(iterationClass)), target_.activation,
                                 target_.kv, /*direct=*/true);
  if (site.op == kernels::Op::RopeAppend) // no more rows are written there than it has
    work.linkBytes = std::min(work.linkBytes, homeBytes);
  return work;
}

plan::Variant Iterations::variantOf(const plan::Plan &plan, uint32_t index,
                                    const std::vector<std::optional<cost::OpSite>> &sites, const cost::Bucket &bucket,
                                    const sim::Simulator &simulator) {
  const plan::Schedule &schedule = plan.schedules[index];
  plan::Variant variant;
  variant.newTokens = bucket.tokens;
  variant.sequences = bucket.sequences;
  variant.context = bucket.context;
  variant.placement = schedule.placement;
  variant.schedule = index;
  variant.durationsNs = prices_.durations(plan, schedule, sites, bucket);
  simulator.run(variant.durationsNs, prices_.sharing(), timeline_);
  if (interfere(schedule, prices_.interference(), timeline_, variant.durationsNs))
    simulator.run(variant.durationsNs, prices_.sharing(), timeline_);
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
