// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/ServePlan.h"

#include <algorithm>
#include <cstdio>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/PlanFile.h"
#include "tools/commands/Compiling.h"
#include "tools/commands/EngineSetup.h"
#include "tools/commands/InputErrors.h"
#include "tools/commands/ModelPath.h"
#include "tools/commands/Progress.h"
#include "tools/commands/RunSource.h"
#include "tools/commands/Terminal.h"
#include "tools/report/BenchReport.h"

namespace headrace::tools {
namespace {

using model::cat;

constexpr int64_t kDefaultSeqs = 256; // vLLM's for years
// Rows of an iteration with prompts, and the smallest bucket of them: the compiler's own.
constexpr int64_t kDefaultBatchedTokens = 2048, kSmallestMixed = 16;

// least, twice, four times, ... and most.
std::vector<int64_t> powersOfTwo(int64_t least, int64_t most) {
  std::vector<int64_t> out;
  for (int64_t size = least; size < most; size *= 2)
    out.push_back(size);
  out.push_back(most);
  return out;
}

// Rows of an iteration with prompts, where neither --max-num-batched-tokens nor the job says them.
int64_t defaultBatchedTokens(const BenchServeOptions &options, const ServeTraffic &traffic, const model::Goal &goal) {
  return options.scheduler.chunkedPrefill
             ? kDefaultBatchedTokens
             : std::max(kDefaultBatchedTokens, std::min(traffic.longestPrompt(), *goal.context));
}

// How many mini-batches the compiler finds for all that every seat may take; rows of an iteration are its own where
// none are asked for. One where that does not fit, since less KV may.
absl::Status findMiniBatches(const BenchServeOptions &options, const ServeTraffic &traffic, AssembledJob &assembled) {
  model::Job &job = assembled.job;
  model::Job open = job;
  if (open.buckets.newTokens.empty()) {
    const int64_t rows = defaultBatchedTokens(options, traffic, job.goal);
    if (const std::optional<int64_t> asked = options.scheduler.maxNumBatchedTokens;
        asked || rows > kDefaultBatchedTokens)
      open.buckets.newTokens = {asked.value_or(rows)};
  }
  const absl::StatusOr<plan::Plan> plan = compileJob(open);
  const bool lessMay = !job.goal.kvTokens && !job.goal.kvDeviceMemory && absl::IsResourceExhausted(plan.status());
  if (!plan.ok() && !lessMay)
    return aboutInput(assembled.input, plan.status());
  job.goal.autoMiniBatches = false;
  job.goal.miniBatches = plan.ok() ? plan->miniBatches : 1;
  return absl::OkStatus();
}

// Sizes that neither the job nor a flag says: as many seats as requests may take at a time, the longest request, and
// iterations of as many rows as are asked for.
absl::Status fitSizes(const BenchServeOptions &options, const ServeTraffic &traffic, AssembledJob &assembled) {
  model::Job &job = assembled.job;
  if (!job.goal.batch) {
    const int64_t seats = options.scheduler.maxNumSeqs.value_or(
        std::min({kDefaultSeqs, traffic.count(), options.maxConcurrency.value_or(kDefaultSeqs),
                  options.scheduler.maxNumBatchedTokens.value_or(kDefaultSeqs)}));
    job.goal.batch = (seats + job.goal.miniBatches - 1) / job.goal.miniBatches * job.goal.miniBatches;
  }
  if (!job.goal.context)
    job.goal.context = std::min(traffic.longest(), job.model->spec->longestContext());
  if (job.goal.ttft) { // of what comes
    job.goal.inputLen = std::max<int64_t>(1, std::min(traffic.longestPrompt(), *job.goal.context - 1));
    job.goal.outputLen.reset();
  } else if (!job.goal.inputLen && !job.goal.outputLen && *job.goal.context > 1) { // what the plan is for
    const serve::RequestLengths lengths = traffic.meanLengths(*job.goal.context);
    job.goal.inputLen = lengths.prompt;
    job.goal.outputLen = lengths.output;
  }
  const bool expanded = job.goal.expansion && job.goal.kvDeviceMemory;
  const auto kvTokens = [&]() -> absl::StatusOr<int64_t> { // of a mini-batch, which buckets are of
    absl::StatusOr<int64_t> all = job.goal.kvTokens.value_or(*job.goal.batch * *job.goal.context);
    if (expanded) // these two say how many there are
      all = kvTokensOf(job);
    return all.ok() ? absl::StatusOr<int64_t>(*all / job.goal.miniBatches) : aboutInput(assembled.input, all.status());
  };
  if (const std::optional<int64_t> asked = options.scheduler.maxNumBatchedTokens;
      asked && job.buckets.newTokens.empty()) {
    ASSIGN_OR_RETURN(most, kvTokens());
    if (*asked > most)
      return badNumber("--max-num-batched-tokens", *asked,
                       cat("at most ", most, ", the tokens of ",
                           job.goal.kvTokens ? std::string("--kv-tokens")
                           : expanded        ? std::string("--kv-device-memory with --expansion")
                                             : cat("batch ", *job.goal.batch, " x context ", *job.goal.context,
                                                   " (--kv-tokens says others)")));
  }
  if (job.goal.autoMiniBatches)
    RETURN_IF_ERROR(findMiniBatches(options, traffic, assembled));
  if (!job.buckets.newTokens.empty())
    return absl::OkStatus();
  const int64_t miniBatches = job.goal.miniBatches;
  const bool asked = options.scheduler.maxNumBatchedTokens || !options.scheduler.chunkedPrefill;
  if (!asked && *job.goal.batch / miniBatches < kDefaultBatchedTokens)
    return absl::OkStatus(); // the compiler's own are as large, or larger where that is worth it
  ASSIGN_OR_RETURN(all, kvTokens());
  // A bucket of prompts has more rows than sequences.
  const int64_t most = std::min(
      std::max(options.scheduler.maxNumBatchedTokens.value_or(defaultBatchedTokens(options, traffic, job.goal)),
               *job.goal.batch / miniBatches + 1),
      all);
  job.buckets.newTokens = powersOfTwo(std::min(kSmallestMixed, most), most);
  return absl::OkStatus();
}

uint64_t hostBytes(const plan::Plan &plan) {
  uint64_t bytes = 0;
  for (uint32_t placement = 0; placement < plan.placements.size(); ++placement)
    bytes += offloadedBytes(plan, placement);
  return bytes;
}

absl::StatusOr<plan::Plan> compileWithKv(model::Job job);

// What the KV cache would be without it is what it has of the device.
absl::StatusOr<plan::Plan> compileExpanded(model::Job job) {
  model::Job whole = job;
  whole.goal.expansion.reset();
  ASSIGN_OR_RETURN(resident, compileWithKv(whole));
  const uint64_t kv = plan::kvDeviceBytes(resident, 0);
  absl::StatusOr<plan::Plan> plan;
  for (const uint64_t lessIn256ths : {0, 1, 4, 16}) { // slots and alignment may cost a little
    job.goal.kvDeviceMemory = kv / 256 * (256 - lessIn256ths);
    plan = compileJob(job);
    if (plan.ok() || !absl::IsResourceExhausted(plan.status()))
      break;
  }
  return plan;
}

// A KV cache of all that every seat may take, or where that does not fit beside the weights of what does: so vLLM has
// it, too. Nothing is offloaded for it that one request's does not take.
absl::StatusOr<plan::Plan> compileWithKv(model::Job job) {
  if (job.goal.kvTokens || job.goal.kvDeviceMemory || job.policy.kvPlaces)
    return compileJob(job);
  if (job.goal.expansion)
    return compileExpanded(job);
  Progress progress("sizing the KV cache"); // a search: how many plans it takes is not known
  const int64_t block = std::max<int64_t>(job.goal.blockTokens, 1);
  const int64_t sequence = (*job.goal.context + block - 1) / block * block;
  const int64_t all = *job.goal.batch * sequence;
  const std::vector<int64_t> &stated = job.buckets.newTokens;
  const int64_t rows = stated.empty()
                           ? std::min(kDefaultBatchedTokens, *job.goal.batch / job.goal.miniBatches * *job.goal.context)
                           : stated.back();
  const int64_t least = std::min(all, job.goal.miniBatches * std::max(sequence, rows));
  job.goal.kvTokens = least;
  ASSIGN_OR_RETURN(smallest, compileJob(job));
  const uint64_t offloaded = hostBytes(smallest);
  int64_t tokens = std::min(all, maxTokens(smallest, job.goal.deviceMemory.value_or(job.hardware->defaultBudget())));
  // Alignment may cost a few blocks.
  for (int64_t less = block * job.goal.miniBatches; tokens > least; tokens -= less, less *= 2) {
    job.goal.kvTokens = tokens;
    absl::StatusOr<plan::Plan> plan = compileJob(job);
    if (plan.ok() && hostBytes(*plan) <= offloaded)
      return plan;
    if (!plan.ok() && !absl::IsResourceExhausted(plan.status()))
      return plan;
  }
  return smallest;
}

} // namespace

absl::StatusOr<ServePlan> ServePlan::open(const BenchServeOptions &options, Outputs &outputs) {
  ServePlan source;
  source.folder_ = options.job.folder;
  if (const std::string &file = options.job.source; isPlanFile(file)) {
    if (options.job.any())
      return refuseJobFlags(options.job);
    ASSIGN_OR_RETURN(plan, plan::readPlan(file));
    plan.modelPath = pathFromPlan(plan.modelPath, file);
    outputs.addInput(file);
    outputs.addInput(plan.modelPath);
    source.plan_ = std::move(plan);
  } else {
    ASSIGN_OR_RETURN(assembled, assembleJob(options.job));
    say(assembled.notes);
    outputs.addInputs(assembled.job.files);
    if (options.linkBandwidth > 0)
      setLink(options.linkBandwidth, *assembled.job.hardware);
    source.assembled_ = std::move(assembled);
  }
  RETURN_IF_ERROR(outputs.check());
  return source;
}

int64_t ServePlan::mostContext() const {
  return plan_ ? plan_->maxContext
               : std::min(assembled_->job.goal.context.value_or(model().longestContext()), model().longestContext());
}

bool ServePlan::choosesKv() const {
  return !plan_ && !assembled_->job.goal.kvTokens && !assembled_->job.goal.kvDeviceMemory &&
         !assembled_->job.policy.kvPlaces;
}

absl::Status ServePlan::fit(const BenchServeOptions &options, const ServeTraffic &traffic) {
  if (!plan_)
    RETURN_IF_ERROR(fitSizes(options, traffic, *assembled_));
  if (options.placement)
    RETURN_IF_ERROR(plan_ ? checkPlacement(*options.placement, *plan_)
                          : checkPlacement(*options.placement, assembled_->job.policy));
  return plan_ ? checkScheduler(options.scheduler, *plan_)
               : checkScheduler(options.scheduler, *assembled_->job.goal.batch, assembled_->job.goal.miniBatches);
}

absl::StatusOr<plan::Plan> ServePlan::makePlan() && {
  if (plan_)
    return *std::move(plan_);
  absl::StatusOr<plan::Plan> plan = compileWithKv(assembled_->job);
  return plan.ok() ? std::move(plan) : aboutInput(assembled_->input, plan.status());
}

} // namespace headrace::tools
