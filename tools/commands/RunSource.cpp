// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/RunSource.h"

#include <algorithm>
#include <cstdio>

#include "kernels/Kernels.h"
#include "runtime/base/FileIo.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/PlanFile.h"
#include "tools/commands/Compiling.h"
#include "tools/commands/InputErrors.h"
#include "tools/commands/ModelPath.h"

namespace headrace::tools {
namespace {

using model::cat;

// Which prompts, as far as flags alone say it.
absl::Status checkPromptFlags(const PromptFlags &flags) {
  const int ways = (flags.ids ? 1 : 0) + (flags.idsFile.empty() ? 0 : 1) + (flags.randomLength.has_value() ? 1 : 0);
  if (ways != 1)
    return badUsage("expected one of --prompt-ids, --prompt-ids-file and --random-input-len");
  const int64_t count = flags.count.value_or(1);
  if (flags.randomLength && *flags.randomLength > (int64_t{1} << 31) / count)
    return badNumber("--random-input-len", *flags.randomLength, cat("at most 2^31 tokens in all ", count, " prompts"));
  if (flags.count && !flags.randomLength)
    return badNumber("--num-prompts", count, "--random-input-len beside it: other prompts are as many as are given");
  return absl::OkStatus();
}

absl::StatusOr<Prompts> readPrompts(const PromptFlags &flags, int64_t vocab, uint64_t seed) {
  RETURN_IF_ERROR(checkPromptFlags(flags));
  if (flags.randomLength)
    return randomPrompts(flags.count.value_or(1), *flags.randomLength, vocab, seed);
  if (!flags.idsFile.empty())
    return readPromptIds(flags.idsFile);
  // Ids hold digits, commas and semicolons only; anything else that names a file is one.
  if (model::isRegularFile(*flags.ids))
    return readPromptIds(*flags.ids);
  if (flags.ids->find_first_of("./") != std::string::npos)
    return badFlag("--prompt-ids", *flags.ids, "token ids such as \"1,2,3;4,5\", or a file of them that is there");
  return parsePromptIds(*flags.ids, "command line: --prompt-ids");
}

// What a run has by itself: as many seats as are asked for, or one a prompt, and room for the longest of them with its
// new tokens.
void fitGoal(const Prompts &prompts, const RunOptions &options, model::Goal &goal) {
  size_t longest = 0;
  for (const std::vector<int32_t> &prompt : prompts)
    longest = std::max(longest, prompt.size());
  if (!goal.batch)
    goal.batch = options.scheduler.maxNumSeqs.value_or(static_cast<int64_t>(prompts.size()));
  if (!goal.context)
    goal.context = static_cast<int64_t>(longest) + options.maxNewTokens;
}

} // namespace

bool isPlanFile(const std::string &path) {
  return path.ends_with(".plan") || (model::isRegularFile(path) && !model::isTomlPath(path));
}

void setLink(double linkBandwidth, model::Hardware &hardware) {
  const double share = hardware.duplexBandwidth / std::max(hardware.h2dBandwidth, hardware.d2hBandwidth);
  hardware.h2dBandwidth = hardware.d2hBandwidth = linkBandwidth;
  hardware.duplexBandwidth = share * linkBandwidth;
  hardware.linkEfficiency = 1;
}

absl::Status refuseJobFlags(const JobInput &input) {
  const std::string flag = !input.flags.empty()          ? input.flags.begin()->first
                           : !input.modelFlag.empty()    ? "--model"
                           : !input.hardwareFlag.empty() ? "--hardware"
                           : !input.synonyms.empty()     ? input.synonyms.begin()->first
                           : input.gpuMemoryUtilization  ? "--gpu-memory-utilization"
                           : input.cpuOffloadGb          ? "--cpu-offload-gb"
                           : input.kvOffloadingSize      ? "--kv-offloading-size"
                                                         : "--n-gpu-layers";
  return badUsage(cat(flag, " beside the plan ", input.source,
                      ": a plan has its model, hardware, goal and policy already: expected a model, or no such flag"));
}

absl::StatusOr<RunSource> RunSource::open(const RunOptions &options, Outputs &outputs) {
  RunSource source;
  RETURN_IF_ERROR(isPlanFile(options.job.source) ? source.readPlan(options, outputs)
                                                 : source.readJob(options, outputs));
  return source;
}

absl::Status RunSource::readPlan(const RunOptions &options, Outputs &outputs) {
  const std::string &file = options.job.source;
  if (options.job.any())
    return refuseJobFlags(options.job);
  ASSIGN_OR_RETURN(plan, plan::readPlan(file));
  plan.modelPath = pathFromPlan(plan.modelPath, file);
  outputs.addInput(plan.modelPath);
  RETURN_IF_ERROR(outputs.check());
  ASSIGN_OR_RETURN(prompts, readPrompts(options.prompts, plan.model->vocab, options.seed));
  plan_ = std::move(plan);
  prompts_ = std::move(prompts);
  return absl::OkStatus();
}

absl::Status RunSource::readJob(const RunOptions &options, Outputs &outputs) {
  ASSIGN_OR_RETURN(assembled, assembleJob(options.job));
  for (const std::string &note : assembled.notes)
    std::fprintf(stderr, "headrace: %s\n", note.c_str());
  model::Job &job = assembled.job;
  outputs.addInputs(job.files);
  RETURN_IF_ERROR(outputs.check());
  ASSIGN_OR_RETURN(prompts, readPrompts(options.prompts, job.model->spec->vocab, options.seed));
  if (options.linkBandwidth > 0)
    setLink(options.linkBandwidth, *job.hardware);
  fitGoal(prompts, options, job.goal);
  if (*job.goal.context > job.model->spec->maxPositions) {
    const auto longest = std::max_element(prompts.begin(), prompts.end(),
                                          [](const auto &a, const auto &b) { return a.size() < b.size(); });
    return absl::InvalidArgumentError(cat(
        "prompt ", longest - prompts.begin(), " of ", longest->size(), " tokens with its ", options.maxNewTokens,
        " new tokens: expected at most the ", job.model->spec->maxPositions, " positions of ", job.model->spec->name));
  }
  assembled_ = std::move(assembled);
  prompts_ = std::move(prompts);
  return absl::OkStatus();
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

absl::Status RunSource::checkPlacement(uint32_t placement) const {
  return plan_ ? tools::checkPlacement(placement, *plan_) : tools::checkPlacement(placement, assembled_->job.policy);
}

serve::RequestBounds RunSource::bounds() const {
  if (!plan_)
    return {model().vocab, *assembled_->job.goal.batch, *assembled_->job.goal.context};
  return {model().vocab, plan_->metaLayout.maxSequences, plan_->maxContext};
}

absl::StatusOr<plan::Plan> RunSource::makePlan() && {
  if (plan_)
    return *std::move(plan_);
  absl::StatusOr<plan::Plan> plan = compileJob(assembled_->job);
  return plan.ok() ? std::move(plan) : aboutInput(assembled_->input, plan.status());
}

} // namespace headrace::tools
