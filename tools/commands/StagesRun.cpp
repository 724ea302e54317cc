// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/StagesRun.h"

#include <limits>
#include <memory>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/base/FileIo.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/core/Stages.h"
#include "runtime/plan/StagesFile.h"
#include "runtime/serve/engine/StagedBatch.h"
#include "tools/commands/Devices.h"
#include "tools/commands/EngineSetup.h"
#include "tools/commands/InputErrors.h"
#include "tools/commands/Interrupts.h"
#include "tools/commands/ModelPath.h"
#include "tools/commands/Outputs.h"
#include "tools/commands/Progress.h"
#include "tools/commands/ReplyTexts.h"
#include "tools/commands/RunPrompts.h"
#include "tools/commands/RunSetup.h"
#include "tools/commands/RunSource.h"
#include "tools/commands/SamplingOf.h"
#include "tools/commands/Terminal.h"
#include "tools/commands/TextModel.h"
#include "tools/report/Format.h"

namespace headrace::tools {
namespace {

using Json = nlohmann::ordered_json;
using model::cat;

// What one plan has, and its stages have not.
absl::Status checkRunFlags(const RunOptions &options) {
  if (options.job.any())
    return refuseJobFlags(options.job);
  for (const auto &[flag, given] : {std::pair("--logits", !options.logits.empty()),
                                    {"--trace", !options.trace.empty()},
                                    {"--timeline", !options.timeline.empty()},
                                    {"--placement", options.placement.has_value()},
                                    {"--graph-memory", options.graphMemory.has_value()},
                                    {"--graph-seconds", options.graphSeconds > 0},
                                    {"--separate-prefill", options.separatePrefill},
                                    {"--no-chunked-prefill", !options.scheduler.chunkedPrefill},
                                    {"--scheduler static", options.scheduler.batching != serve::Batching::Continuous},
                                    {"--max-num-batched-tokens", options.scheduler.maxNumBatchedTokens.has_value()},
                                    {"--swap-space", !options.scheduler.swapSpace.empty()}})
    if (given)
      return badUsage(cat(flag, " beside stages: expected one plan, of a whole model"));
  RETURN_IF_ERROR(checkWeightFlags(options.weights));
  return checkPromptFlags(options.prompts, options.text);
}

class StagesRun {
public:
  explicit StagesRun(const RunOptions &options) : options_(options) {}

  absl::Status run() {
    RETURN_IF_ERROR(checkRunFlags(options_));
    ASSIGN_OR_RETURN(plans, plan::readStages(options_.job.source));
    for (plan::StagePlan &stage : plans) {
      plans_.push_back(std::move(stage.plan));
      plans_.back().modelPath = pathFromPlan(plans_.back().modelPath, stage.path);
    }
    RETURN_IF_ERROR(checkScheduler(options_.scheduler, plans_.front()));
    whole_ = model::wholeOf(plans_.front().model);
    RETURN_IF_ERROR(setRequest());
    const std::string device = options_.device.deviceOr(deviceFor(plans_.front().hardware.kind));
    if (device == "cuda")
      return absl::InvalidArgumentError(
          cat(options_.job.source, ": plans for ", plans_.front().hardware.name, ", ", plans_.size(),
              " cuda devices: expected --device sim, or plans for host hardware: stages do not run on GPUs yet"));
    constexpr double kAny = std::numeric_limits<double>::infinity(); // the links alone limit
    ASSIGN_OR_RETURN(group, makeDeviceGroup(device, options_.device, plans_.size(), {kAny, kAny, kAny}));
    group_ = std::move(group);
    RETURN_IF_ERROR(load());
    return generate(device);
  }

private:
  absl::Status setRequest() {
    ASSIGN_OR_RETURN(stopIds, parseIds(options_.sampling.stopIds, "command line: --stop-ids"));
    RETURN_IF_ERROR(checkStopIds(stopIds, whole_.vocab));
    request_.stopTokens = std::move(stopIds);
    ASSIGN_OR_RETURN(prompts, readRunPrompts(options_, whole_, plans_.front().modelPath, plans_.front().maxContext));
    request_.prompts = std::move(prompts.prompts);
    request_.maxNewTokens = prompts.maxNewTokens;
    text_ = std::move(prompts.text);
    SamplingFlags sampling = options_.sampling;
    if (text_) {
      sampling = withDefaults(sampling, text_->generation());
      const std::vector<int32_t> ends = text_->endIds();
      text_->tell(options_.sampling, sampling, ends);
      request_.stopTokens.insert(request_.stopTokens.end(), ends.begin(), ends.end());
    }
    RETURN_IF_ERROR(checkSamplingFlags(sampling));
    request_.sampling = samplingOf(sampling, options_.seed);
    return serve::checkPrompts(plans_.front(), request_);
  }

  absl::Status load() {
    std::unique_ptr<model::WeightSource> weights; // of the whole model
    if (group_->device(0).holdsData()) {
      WantedWeights wanted = weightsOf(plans_.front(), options_.job.folder);
      wanted.model = &whole_;
      ASSIGN_OR_RETURN(opened, openWeights(options_.weights, wanted));
      weights = std::move(opened);
    }
    Progress progress("loading", Amount::Bytes);
    std::vector<core::Runtime *> runtimes;
    for (size_t i = 0; i < plans_.size(); ++i) {
      core::LoadOptions loading;
      loading.progress = [&](uint64_t done, uint64_t total) { progress.update(done, total); };
      core::DeviceOptions options;
      options.linkBandwidth = options_.linkBandwidth;
      absl::StatusOr<std::unique_ptr<core::Runtime>> runtime =
          core::Runtime::load(plans_[i], group_->device(i), options, weights.get(), loading);
      if (!runtime.ok())
        return absl::Status(runtime.status().code(), cat("stage ", i, ": ", runtime.status().message()));
      runtimes_.push_back(*std::move(runtime));
      runtimes.push_back(runtimes_.back().get());
    }
    seats_ =
        serve::stagedSeats(plans_.front(), plans_.size(), {.sequences = options_.scheduler.maxNumSeqs.value_or(0)});
    ASSIGN_OR_RETURN(stages, core::Stages::make(runtimes, *group_, seats_.microBatches));
    stages_ = std::move(stages);
    return absl::OkStatus();
  }

  absl::Status generate(const std::string &device) {
    std::optional<ReplyTexts> replies;
    if (text_ && group_->device(0).holdsData()) {
      replies.emplace(text_->tokenizer(), options_.text, request_.prompts.size(), options_.json ? nullptr : stdout);
      request_.onToken = [&](size_t prompt, int32_t id) { return replies->push(prompt, id); };
      request_.onEnd = [&](size_t prompt) { return replies->finish(prompt); };
    }
    catchInterrupts("\nheadrace: interrupted: ends with what is on its way; Ctrl-C again ends it now\n");
    request_.isInterrupted = [] { return wasInterrupted(); };
    ASSIGN_OR_RETURN(result, serve::generateStaged(*stages_, seats_, request_));
    const bool interrupted = wasInterrupted();
    letInterruptsBe();
    if (options_.json)
      show(reportJson(device, result), true);
    else if (!replies)
      show(reportText(device, result, /*tokens=*/true), false);
    else if (!options_.text.quiet)
      print(reportText(device, result, /*tokens=*/false), stderr);
    if (interrupted)
      endByInterrupt();
    return absl::OkStatus();
  }

  static double tokensPerSecond(const serve::GenerateResult &result) {
    size_t made = 0;
    for (const std::vector<int32_t> &tokens : result.tokens)
      made += tokens.size();
    return result.durationNs > 0 ? static_cast<double>(made) * 1e9 / static_cast<double>(result.durationNs) : 0;
  }

  std::string layersText(size_t stage) const {
    const model::ModelSpec &spec = plans_[stage].model;
    return cat("layers ", spec.stage.first, " to ", spec.stage.first + spec.layers - 1);
  }

  std::string reportText(const std::string &device, const serve::GenerateResult &r, bool tokens) const {
    std::string out;
    for (size_t p = 0; p < r.tokens.size() && tokens; ++p)
      absl::StrAppendFormat(&out, "tokens %-9d %s\n", p, absl::StrJoin(r.tokens[p], ","));
    const auto line = [&](const char *name, const std::string &value) {
      absl::StrAppendFormat(&out, "%-16s %s\n", name, value);
    };
    if (tokens && !group_->device(0).holdsData())
      line("", cat("made up: the ", device, " device computes nothing"));
    line("stages", absl::StrFormat("%d devices (%s) of %s", plans_.size(), device, whole_.name));
    for (size_t i = 0; i < plans_.size(); ++i)
      line(cat("stage ", i).c_str(), cat(layersText(i), "; ", formatBytes(plans_[i].arenaBytes), " of device memory, ",
                                         formatBytes(plans_[i].hostBytes), " of host memory"));
    line("micro-batches",
         absl::StrFormat("%d of up to %d sequences", seats_.microBatches, seats_.of(0) * plans_.front().miniBatches));
    line("iterations", absl::StrFormat("%d, %d of them with prompts", r.iterations, r.prefillIterations));
    line("TTFT", absl::StrFormat("%.3f ms mean", r.ttftMs));
    line("TPOT", absl::StrFormat("%.3f ms mean", r.tpotMs));
    line("throughput", absl::StrFormat("%s tokens/s", formatRate(tokensPerSecond(r))));
    line("over the link",
         absl::StrFormat("%s h2d, %s d2h", formatBytes(r.counters.h2dBytes), formatBytes(r.counters.d2hBytes)));
    return out;
  }

  std::string reportJson(const std::string &device, const serve::GenerateResult &r) const {
    Json stages = Json::array();
    for (const plan::Plan &plan : plans_)
      stages.push_back({{"first_layer", plan.model->stage.first},
                        {"layers", plan.model->layers},
                        {"device_bytes", plan.arenaBytes},
                        {"host_bytes", plan.hostBytes}});
    return Json{{"model", whole_.name},
                {"device", device},
                {"stages", std::move(stages)},
                {"micro_batches", seats_.microBatches},
                {"tokens", r.tokens},
                {"iterations", r.iterations},
                {"prefill_iterations", r.prefillIterations},
                {"ttft_ms", r.ttftMs},
                {"tpot_ms", r.tpotMs},
                {"duration_ms", static_cast<double>(r.durationNs) / 1e6},
                {"tokens_per_second", tokensPerSecond(r)},
                {"h2d_bytes", r.counters.h2dBytes},
                {"d2h_bytes", r.counters.d2hBytes}}
               .dump(1) +
           "\n";
  }

  const RunOptions &options_;
  std::vector<plan::Plan> plans_;
  model::ModelSpec whole_;
  serve::GenerateRequest request_;
  std::optional<TextModel> text_;
  std::unique_ptr<core::DeviceGroup> group_;
  std::vector<std::unique_ptr<core::Runtime>> runtimes_;
  serve::StagedSeats seats_;
  std::unique_ptr<core::Stages> stages_;
};

} // namespace

bool isStagesFile(const std::string &path) { return holdsKind(path, OutputKind::Stages); }

absl::StatusOr<std::optional<std::string>> onlyPlanOf(const std::string &path) {
  ASSIGN_OR_RETURN(text, model::readTextFile(path));
  ASSIGN_OR_RETURN(paths, plan::parseStages(text, path));
  if (paths.size() > 1)
    return std::nullopt;
  RETURN_IF_ERROR(plan::readStages(path).status()); // that nothing is missing
  return paths.front();
}

absl::Status runStages(const RunOptions &options) { return StagesRun(options).run(); }

} // namespace headrace::tools
