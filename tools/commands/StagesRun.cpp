// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/StagesRun.h"

#include <memory>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/serve/engine/Engine.h"
#include "tools/commands/EngineSetup.h"
#include "tools/commands/InputErrors.h"
#include "tools/commands/Interrupts.h"
#include "tools/commands/LoadedStages.h"
#include "tools/commands/LogitsFile.h"
#include "tools/commands/Outputs.h"
#include "tools/commands/ReplyTexts.h"
#include "tools/commands/RunPrompts.h"
#include "tools/commands/RunSetup.h"
#include "tools/commands/SamplingOf.h"
#include "tools/commands/StagesTimeline.h"
#include "tools/commands/Terminal.h"
#include "tools/commands/TextModel.h"
#include "tools/report/Format.h"
#include "tools/report/RunReport.h"

namespace headrace::tools {
namespace {

using Json = nlohmann::ordered_json;
using model::cat;

// What one plan has, and its stages have not.
absl::Status checkRunFlags(const RunOptions &options) {
  for (const auto &[flag, given] : {std::pair("--graph-memory", options.graphMemory.has_value()),
                                    {"--graph-seconds", options.graphSeconds > 0},
                                    {"--scheduler static", options.scheduler.batching != serve::Batching::Continuous},
                                    {"--swap-space", !options.scheduler.swapSpace.empty()}})
    if (given)
      return badUsage(cat(flag, " beside stages: expected one plan, of a whole model"));
  RETURN_IF_ERROR(checkWeightFlags(options.weights));
  return checkPromptFlags(options.prompts, options.text);
}

class StagesRun {
public:
  explicit StagesRun(const RunOptions &options) : options_(options), pictures_(options) {}

  absl::Status run() {
    RETURN_IF_ERROR(checkRunFlags(options_));
    ASSIGN_OR_RETURN(outputs, runOutputs(options_));
    ASSIGN_OR_RETURN(stages, LoadedStages::read(options_.job, options_.placement, outputs));
    stages_ = std::move(stages);
    RETURN_IF_ERROR(checkScheduler(options_.scheduler, plan()));
    RETURN_IF_ERROR(setRequest());
    RETURN_IF_ERROR(stages_->open(options_.device, options_.weights,
                                  [this](const WatchedGroup::Make &make) { return pictures_.group(make); }));
    if (!options_.logits.empty() && !stages_->holdsData())
      return absl::FailedPreconditionError(
          cat("--logits: the ", stages_->device(), " device holds no data: use --device host"));
    RETURN_IF_ERROR(stages_->load({.linkBandwidth = options_.linkBandwidth}, request_.maxNumSeqs));
    return generate(outputs);
  }

private:
  const plan::Plan &plan() const { return stages_->plan(); }

  absl::Status setRequest() {
    ASSIGN_OR_RETURN(stopIds, parseIds(options_.sampling.stopIds, "command line: --stop-ids"));
    RETURN_IF_ERROR(checkStopIds(stopIds, stages_->whole().vocab));
    request_.stopTokens = std::move(stopIds);
    ASSIGN_OR_RETURN(prompts, readRunPrompts(options_, stages_->whole(), plan().modelPath, plan().maxContext));
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
    request_.keepLogits = !options_.logits.empty();
    request_.separatePrefill = options_.separatePrefill;
    request_.chunkedPrefill = options_.scheduler.chunkedPrefill;
    request_.preemption = options_.scheduler.preemption;
    request_.maxNumSeqs = options_.scheduler.maxNumSeqs.value_or(0);
    request_.maxNumBatchedTokens = options_.scheduler.maxNumBatchedTokens.value_or(0);
    return serve::checkPrompts(plan(), request_);
  }

  absl::Status generate(Outputs &outputs) {
    const std::string &device = stages_->device();
    if (text_ && stages_->holdsData()) {
      replies_.emplace(text_->tokenizer(), options_.text, request_.prompts.size(), options_.json ? nullptr : stdout);
      request_.onToken = [this](size_t prompt, int32_t id) { return replies_->push(prompt, id); };
      request_.onEnd = [this](size_t prompt) { return replies_->finish(prompt); };
    }
    catchInterrupts("\nheadrace: interrupted: ends with what is on its way; Ctrl-C again ends it now\n");
    request_.isInterrupted = [] { return wasInterrupted(); };
    ASSIGN_OR_RETURN(result, serve::generate(stages_->stages(), request_));
    const bool interrupted = wasInterrupted();
    letInterruptsBe();
    if (!options_.logits.empty() && !interrupted)
      RETURN_IF_ERROR(outputs.write(options_.logits, logitsFile(result.logits, stages_->whole().vocab)));
    if (!interrupted)
      RETURN_IF_ERROR(pictures_.write(stages_->plans(), stages_->stages().microBatches(), outputs));
    if (options_.json)
      show(reportJson(device, result), true);
    else if (!replies_)
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

  std::string reportText(const std::string &device, const serve::GenerateResult &r, bool tokens) const {
    const std::vector<plan::Plan> &plans = stages_->plans();
    std::string out;
    for (size_t p = 0; p < r.tokens.size() && tokens; ++p)
      absl::StrAppendFormat(&out, "tokens %-9d %s\n", p, absl::StrJoin(r.tokens[p], ","));
    const auto line = [&](const char *name, const std::string &value) {
      absl::StrAppendFormat(&out, "%-16s %s\n", name, value);
    };
    if (tokens && !stages_->holdsData())
      line("", cat("made up: the ", device, " device computes nothing"));
    line("stages", absl::StrFormat("%d devices (%s) of %s", plans.size(), device, stages_->whole().name));
    for (size_t i = 0; i < plans.size(); ++i)
      line(cat("stage ", i).c_str(), cat(stages_->layersText(i), "; ", formatBytes(plans[i].arenaBytes),
                                         " of device memory, ", formatBytes(plans[i].hostBytes), " of host memory"));
    const int64_t all = request_.maxNumSeqs > 0 ? request_.maxNumSeqs : serve::engineBounds(plan()).maxNumSeqs;
    const auto turns = static_cast<int64_t>(stages_->stages().microBatches());
    line("micro-batches", absl::StrFormat("%d of up to %d sequences", turns, (all + turns - 1) / turns));
    line("iterations", absl::StrFormat("%d, %d of them with prompts", r.iterations, r.prefillIterations));
    if (r.preemptions > 0)
      line("preemptions", cat(r.preemptions, ", computed anew: all KV blocks were in use"));
    line("TTFT", absl::StrFormat("%.3f ms mean", r.ttftMs));
    line("TPOT", absl::StrFormat("%.3f ms mean", r.tpotMs));
    line("throughput", absl::StrFormat("%s tokens/s", formatRate(tokensPerSecond(r))));
    line("over the link",
         absl::StrFormat("%s h2d, %s d2h", formatBytes(r.counters.h2dBytes), formatBytes(r.counters.d2hBytes)));
    return out;
  }

  std::string reportJson(const std::string &device, const serve::GenerateResult &r) const {
    Json stages = Json::array();
    for (const plan::Plan &plan : stages_->plans())
      stages.push_back({{"first_layer", plan.model->stage.first},
                        {"layers", plan.model->layers},
                        {"device_bytes", plan.arenaBytes},
                        {"host_bytes", plan.hostBytes}});
    std::vector<int64_t> promptTokens;
    for (const std::vector<int32_t> &prompt : request_.prompts)
      promptTokens.push_back(static_cast<int64_t>(prompt.size()));
    Json json = {{"model", stages_->whole().name},   {"device", device},
                 {"stages", std::move(stages)},      {"micro_batches", stages_->stages().microBatches()},
                 {"iterations", r.iterations},       {"prefill_iterations", r.prefillIterations},
                 {"preemptions", r.preemptions},     {"tokens_per_second", tokensPerSecond(r)},
                 {"h2d_bytes", r.counters.h2dBytes}, {"d2h_bytes", r.counters.d2hBytes}};
    json.update(repliesJson(r, !stages_->holdsData(), promptTokens));
    if (replies_)
      json["texts"] = replies_->texts();
    return json.dump(1) + "\n";
  }

  const RunOptions &options_;
  StagesPictures pictures_;
  serve::GenerateRequest request_;
  std::optional<TextModel> text_;
  std::optional<ReplyTexts> replies_; // of text_, where the devices hold data
  std::unique_ptr<LoadedStages> stages_;
};

} // namespace

absl::Status runStages(const RunOptions &options) { return StagesRun(options).run(); }

} // namespace headrace::tools
