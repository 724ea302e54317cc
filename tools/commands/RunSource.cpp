// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/RunSource.h"

#include <algorithm>
#include <cstdio>

#include "kernels/Kernels.h"
#include "runtime/base/FileIo.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/core/TransitionPaths.h"
#include "runtime/model/FolderContents.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/StagesFile.h"
#include "tools/commands/Compiling.h"
#include "tools/commands/EngineSetup.h"
#include "tools/commands/InputErrors.h"
#include "tools/commands/ModelPath.h"
#include "tools/commands/Terminal.h"

namespace headrace::tools {
using model::cat;

bool isPlanFile(const std::string &path) {
  return path.ends_with(".plan") || (model::isRegularFile(path) && !model::isTomlPath(path) &&
                                     (model::modelFileText(path).empty() || holdsKind(path, OutputKind::Plan)));
}

void setLink(double linkBandwidth, model::Hardware &hardware) {
  const double share = hardware.duplexShare();
  hardware.h2dBandwidth = hardware.d2hBandwidth = linkBandwidth;
  hardware.duplexBandwidth = share * linkBandwidth;
  hardware.linkEfficiency = 1;
}

absl::Status refuseJobFlags(const JobInput &input) {
  const auto first = std::find_if(input.flags.begin(), input.flags.end(),
                                  [&](const auto &flag) { return !input.deviceThreads || flag.first != "--threads"; });
  const std::string flag = first != input.flags.end()    ? first->first
                           : !input.modelFlag.empty()    ? "--model"
                           : !input.hardwareFlag.empty() ? "--hardware"
                           : !input.synonyms.empty()     ? input.synonyms.begin()->first
                           : input.gpuMemoryUtilization  ? "--gpu-memory-utilization"
                           : input.cpuOffloadGb          ? "--cpu-offload-gb"
                           : input.kvOffloadingSize      ? "--kv-offloading-size"
                           : input.gpuLayers             ? "--n-gpu-layers"
                                                         : "--allow-missed";
  return badUsage(cat(flag, " beside the plan ", input.source,
                      ": a plan has its model, hardware, goal and policy already: expected a model, or no such flag"));
}

absl::StatusOr<RunSource> RunSource::open(const JobInput &input, double linkBandwidth, bool quiet, Outputs &outputs) {
  RunSource source;
  source.folder_ = input.folder;
  RETURN_IF_ERROR(isPlanFile(input.source) ? source.readPlan(input, outputs)
                                           : source.readJob(input, linkBandwidth, quiet, outputs));
  return source;
}

absl::Status RunSource::readPlan(const JobInput &input, Outputs &outputs) {
  if (input.any())
    return refuseJobFlags(input);
  ASSIGN_OR_RETURN(plan, plan::readWholePlan(input.source));
  plan.modelPath = pathFromPlan(plan.modelPath, input.source);
  outputs.addInput(plan.modelPath);
  RETURN_IF_ERROR(outputs.check());
  plan_ = std::move(plan);
  return absl::OkStatus();
}

absl::Status RunSource::readJob(const JobInput &input, double linkBandwidth, bool quiet, Outputs &outputs) {
  ASSIGN_OR_RETURN(assembled, assembleJob(input));
  if (!quiet)
    say(assembled.notes);
  outputs.addInputs(assembled.job.files);
  RETURN_IF_ERROR(outputs.check());
  if (linkBandwidth > 0)
    setLink(linkBandwidth, *assembled.job.hardware);
  assembled_ = std::move(assembled);
  return absl::OkStatus();
}

int64_t RunSource::mostContext() const {
  return plan_ ? plan_->maxContext
               : std::min(assembled_->job.goal.context.value_or(model().longestContext()), model().longestContext());
}

void RunSource::fit(int64_t batch, int64_t context, int64_t longestPrompt, int64_t output) {
  if (plan_)
    return;
  model::Goal &goal = assembled_->job.goal;
  if (!goal.batch)
    goal.batch = (batch + goal.miniBatches - 1) / goal.miniBatches * goal.miniBatches;
  if (!goal.context)
    goal.context = std::max(context, goal.inputLen.value_or(0) + goal.outputLen.value_or(1));
  if (output > 0 && !goal.inputLen && !goal.outputLen && longestPrompt + output <= *goal.context) {
    goal.inputLen = longestPrompt;
    goal.outputLen = output;
  }
  if (goal.ttft && !goal.inputLen && longestPrompt > 0 && longestPrompt + goal.outputLen.value_or(1) <= *goal.context)
    goal.inputLen = longestPrompt;
}

absl::Status checkPlacement(uint32_t placement, const plan::Plan &plan) {
  return placement < plan.placements.size()
             ? absl::OkStatus()
             : badNumber("--placement", placement, cat("one of the plan's ", plan.placements.size(), ", from 0"));
}

absl::Status checkPlacement(uint32_t placement, const model::Policy &policy) {
  const int64_t most = policy.placements.value_or(model::kDefaultPlacements);
  return placement < most ? absl::OkStatus()
                          : badNumber("--placement", placement,
                                      cat("less than ", most, ", the most placements that the plan can have"));
}

absl::Status checkRunnable(const plan::Plan &plan, std::optional<uint32_t> placement) {
  if (placement)
    RETURN_IF_ERROR(checkPlacement(*placement, plan));
  return core::TransitionPaths::check(plan);
}

absl::Status RunSource::checkPlacement(uint32_t placement) const {
  return plan_ ? tools::checkPlacement(placement, *plan_) : tools::checkPlacement(placement, assembled_->job.policy);
}

absl::Status RunSource::checkScheduler(const SchedulerFlags &flags) const {
  return plan_ ? tools::checkScheduler(flags, *plan_)
               : tools::checkScheduler(flags, *assembled_->job.goal.batch, assembled_->job.goal.miniBatches);
}

std::string RunSource::askedFlags() const { return plan_ ? std::string() : tools::askedFlags(assembled_->job); }

serve::RequestBounds RunSource::bounds() const {
  if (!plan_)
    return {model().vocab, *assembled_->job.goal.batch, *assembled_->job.goal.context};
  return {model().vocab, plan_->mostSampled(), plan_->maxContext};
}

absl::StatusOr<plan::Plan> RunSource::makePlan() && {
  if (plan_)
    return *std::move(plan_);
  absl::StatusOr<plan::Plan> plan = compileToHold(*assembled_);
  return plan.ok() ? std::move(plan) : aboutInput(assembled_->input, plan.status());
}

} // namespace headrace::tools
