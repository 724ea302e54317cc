// SPDX-License-Identifier: Apache-2.0
//
// run and simulate: a plan (or a model, compiled on the way), prompts in, tokens and a report out.
//
//   flags -> plan <- file | job       device, weights <- checkpoint | seed        refused before work starts
//              \_ compiled, checkPrompts _/
//                   Runtime::load -> manifest -> generate -> report, logits, trace, timeline
#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/core/Runtime.h"
#include "runtime/cuda/CudaDevice.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightSource.h"
#include "runtime/plan/value/PlacementTable.h"
#include "runtime/serve/engine/BatchEngine.h"
#include "runtime/serve/engine/Engine.h"
#include "tools/commands/Commands.h"
#include "tools/commands/Devices.h"
#include "tools/commands/EngineSetup.h"
#include "tools/commands/InputErrors.h"
#include "tools/commands/Interrupts.h"
#include "tools/commands/LoadedStages.h"
#include "tools/commands/LogitsFile.h"
#include "tools/commands/Outputs.h"
#include "tools/commands/Progress.h"
#include "tools/commands/ReplyTexts.h"
#include "tools/commands/RunPrompts.h"
#include "tools/commands/RunSetup.h"
#include "tools/commands/RunSource.h"
#include "tools/commands/SamplingOf.h"
#include "tools/commands/StagesRun.h"
#include "tools/commands/Terminal.h"
#include "tools/commands/TextModel.h"
#include "tools/report/IterationLooks.h"
#include "tools/report/RunReport.h"
#include "tools/timeline/Timeline.h"

namespace headrace::tools {
namespace {

using model::cat;

// The representative iteration of a phase; no steps where none was looked at.
Trace traceOf(const plan::Plan &plan, const core::Device &device, const IterationLooks &looks, IterationPhase phase) {
  std::string measured(device.kind()); // "cuda, CUPTI"
  if (const absl::StatusOr<std::string> by = cuda::measuredBy(device); by.ok())
    measured += ", " + *by;
  const IterationTimes::Representative found = looks.times().representative(looks.looks(), phase);
  if (found.look == nullptr)
    return {};
  Trace trace = makeTrace(plan, measured, found.look->variant, found.look->times);
  trace.iteration = found.look->iteration;
  trace.about = found.about;
  trace.inUse = found.look->ran.inUse;
  trace.rows = found.look->ran.rows;
  return trace;
}

RunFindings findOutAbout(const plan::Plan &plan, const core::Device &device, const IterationLooks &looks,
                         const RunReport &report, double linkBandwidth) {
  std::vector<PhaseInput> phases;
  for (const bool decode : {true, false}) {
    const IterationPhase phase = decode ? IterationPhase::Decode : IterationPhase::Prefill;
    const Compared compared = decode ? report.times.decode() : report.times.prefill();
    if (compared.iterations == 0)
      continue;
    phases.push_back({decode ? "decode" : "prefill", compared.predictedMs, compared.measuredMs,
                      looks.times().mostOften(phase), traceOf(plan, device, looks, phase)});
  }
  return findOut(plan, phases, linkBandwidth, !device.holdsData());
}

absl::Status writeTimelines(const RunOptions &options, const Outputs &outputs, const plan::Plan &plan,
                            const Trace &trace, double linkBandwidth) {
  const Chart chart = makeChart(plan, trace.variant, &trace, linkBandwidth);
  if (!options.trace.empty())
    RETURN_IF_ERROR(outputs.write(options.trace, timelineJson(chart)));
  if (options.timeline.empty())
    return absl::OkStatus();
  return outputs.write(options.timeline, timelineFile(chart, *timelineFormatOf(options.timeline)));
}

// What the first iteration runs in, so that nothing has to change before it: with the prompts that find a seat.
uint32_t firstPlacement(const plan::Plan &plan, const Prompts &prompts, const SchedulerFlags &flags) {
  const int64_t seats = flags.maxNumSeqs.value_or(serve::engineBounds(plan).maxNumSeqs);
  const int64_t sequences = std::min(static_cast<int64_t>(prompts.size()), seats);
  int64_t rows = 0, context = 1;
  for (int64_t p = 0; p < sequences; ++p) {
    const auto tokens = static_cast<int64_t>(prompts[static_cast<size_t>(p)].size());
    rows += tokens;
    context = std::max(context, tokens);
  }
  return plan::chosenPlacement(plan, {rows, sequences, context}).value_or(0);
}

class Run {
public:
  explicit Run(const RunOptions &options) : options_(options) {}

  absl::Status run() {
    RETURN_IF_ERROR(open());
    RETURN_IF_ERROR(makePlan());
    RETURN_IF_ERROR(load());
    RETURN_IF_ERROR(generate());
    RETURN_IF_ERROR(report());
    if (interrupted_)
      endByInterrupt();
    return absl::OkStatus();
  }

private:
  bool drawn() const { return !options_.trace.empty() || !options_.timeline.empty(); }

  // Everything that can be refused before the work starts: flags alone, then beside the model and its device.
  absl::Status open() {
    if (!options_.device.device.empty())
      RETURN_IF_ERROR(openDevice(options_.device.device));
    ASSIGN_OR_RETURN(outputs, runOutputs(options_));
    if (options_.separatePrefill && !options_.scheduler.chunkedPrefill)
      return badUsage("--separate-prefill beside --no-chunked-prefill, which does not cut prompts either: expected one "
                      "of them");
    if (!isText(options_.prompts))
      RETURN_IF_ERROR(checkSamplingFlags(options_.sampling));
    RETURN_IF_ERROR(checkWeightFlags(options_.weights));
    ASSIGN_OR_RETURN(stopIds, parseIds(options_.sampling.stopIds, "command line: --stop-ids"));
    ASSIGN_OR_RETURN(source, RunSource::open(options_.job, options_.linkBandwidth, options_.text.quiet, outputs));
    RETURN_IF_ERROR(checkPromptFlags(options_.prompts, options_.text));
    if (!device_)
      RETURN_IF_ERROR(openDevice(options_.device.deviceOr(source.device())));
    RETURN_IF_ERROR(checkDevice());
    if (options_.placement)
      RETURN_IF_ERROR(source.checkPlacement(*options_.placement));
    RETURN_IF_ERROR(checkStopIds(stopIds, source.model().vocab));
    request_.stopTokens = std::move(stopIds);
    ASSIGN_OR_RETURN(prompts, readRunPrompts(options_, source));
    RETURN_IF_ERROR(setRequest(std::move(prompts)));
    source.fit(options_.scheduler.maxNumSeqs.value_or(static_cast<int64_t>(request_.prompts.size())),
               longestPrompt() + request_.maxNewTokens, longestPrompt(),
               options_.prompts.randomLength ? request_.maxNewTokens : 0);
    RETURN_IF_ERROR(checkScheduler(options_.scheduler, source.bounds().sequences, source.miniBatches()));
    RETURN_IF_ERROR(serve::checkPrompts(source.bounds(), request_));
    if (device_->holdsData()) {
      ASSIGN_OR_RETURN(weights, openWeights(options_.weights, source.weights()));
      weights_ = std::move(weights);
    }
    outputs_.emplace(std::move(outputs));
    source_.emplace(std::move(source));
    return absl::OkStatus();
  }

  absl::Status openDevice(const std::string &name) {
    ASSIGN_OR_RETURN(device, makeDevice(name, options_.device));
    device_ = std::move(device);
    return absl::OkStatus();
  }

  // Flags that this device cannot follow.
  absl::Status checkDevice() {
    if (device_->kind() == "sim" && !options_.device.threads.empty() && isPlanFile(options_.job.source))
      return badUsage("--threads on the sim device: expected a model, since a plan is priced already");
    const std::string name = options_.device.device.empty() ? std::string(device_->kind()) : options_.device.device;
    if (!device_->holdsData() && !options_.logits.empty())
      return absl::FailedPreconditionError(cat("--logits: the ", name, " device holds no data: use --device host"));
    if (options_.graphMemory && device_->kind() != "cuda")
      return badUsage(cat("--graph-memory: expected a cuda device, whose graphs take device memory; this is ",
                          device_->kind(), ", whose take none"));
    deviceOptions_.linkBandwidth = options_.linkBandwidth;
    deviceOptions_.pricing = core::Pricing::Rows; // of virtual time: what a real device would run
    // Where it costs nothing, too.
    deviceOptions_.trace = drawn() || device_->kind() == "host" || device_->kind() == "sim";
    return absl::OkStatus();
  }

  absl::Status setRequest(RunPrompts prompts) {
    text_ = std::move(prompts.text);
    request_.prompts = std::move(prompts.prompts);
    request_.maxNewTokens = prompts.maxNewTokens;
    lengthIs_ = std::move(prompts.lengthIs);
    SamplingFlags sampling = options_.sampling;
    if (text_) {
      sampling = withDefaults(sampling, text_->generation());
      RETURN_IF_ERROR(checkSamplingFlags(sampling));
      const std::vector<int32_t> ends = device_->holdsData() ? text_->endIds() : std::vector<int32_t>();
      text_->tell(options_.sampling, sampling, ends);
      request_.stopTokens.insert(request_.stopTokens.end(), ends.begin(), ends.end());
    }
    request_.sampling = samplingOf(sampling, options_.seed);
    request_.keepLogits = !options_.logits.empty();
    request_.separatePrefill = options_.separatePrefill;
    request_.chunkedPrefill = options_.scheduler.chunkedPrefill;
    request_.batching = options_.scheduler.batching;
    request_.preemption = options_.scheduler.preemption;
    request_.swapBytes = swapSpace(options_.scheduler).value_or(0); // checked
    request_.maxNumSeqs = options_.scheduler.maxNumSeqs.value_or(0);
    request_.maxNumBatchedTokens = options_.scheduler.maxNumBatchedTokens.value_or(0);
    return absl::OkStatus();
  }

  int64_t longestPrompt() const {
    size_t longest = 0;
    for (const std::vector<int32_t> &prompt : request_.prompts)
      longest = std::max(longest, prompt.size());
    return static_cast<int64_t>(longest);
  }

  // Compiles, where the plan was not read, and checks what only a plan says.
  absl::Status makePlan() {
    ASSIGN_OR_RETURN(plan, std::move(*source_).makePlan());
    plan_ = std::move(plan);
    source_.reset();
    RETURN_IF_ERROR(checkRunnable(plan_, options_.placement));
    RETURN_IF_ERROR(checkScheduler(options_.scheduler, plan_));
    firstIn_ = options_.placement.value_or(firstPlacement(plan_, request_.prompts, options_.scheduler));
    return serve::checkPrompts(plan_, request_, staysInOne() ? firstIn_ : plan::kNone);
  }

  bool staysInOne() const { return options_.placement || plan_.choices.empty(); }

  absl::Status load() {
    core::LoadOptions loading;
    loading.placement = firstIn_;
    loading.buildNs = static_cast<int64_t>(options_.graphSeconds * 1e9);
    loading.graphBytes = options_.graphMemory.value_or(0);
    ASSIGN_OR_RETURN(runtime, loadRuntime(plan_, *device_, deviceOptions_, weights_, loading));
    runtime_ = std::move(runtime);
    return absl::OkStatus();
  }

  absl::Status generate() {
    if (!options_.text.quiet)
      print(runtime_->manifest().toString(), options_.json || text_ ? stderr : stdout);
    report_.emplace(RunReport{.planPath = options_.job.source,
                              .device = describeDevice(options_.device.device, *device_),
                              .threads = device_->threads(),
                              .madeUp = !device_->holdsData(),
                              .times = RunTimes(plan_, deviceOptions_.linkBandwidth, firstIn_)});
    looks_.emplace(*runtime_, deviceOptions_.trace, /*many=*/drawn(),
                   /*rows=*/device_->holdsData() || deviceOptions_.pricing == core::Pricing::Rows);
    request_.onLaunch = [this](uint32_t variant, const kernels::IterationMeta &first) {
      looks_->launched(variant, first);
    };
    request_.placementOf = [this](const serve::ComposedIteration &size) {
      looks_->beforeLaunch(size);
      return staysInOne() ? runtime_->placement() : plan::chosenPlacement(plan_, size).value_or(0);
    };
    std::optional<Progress> generating; // text that comes shows how far it is
    if (!text_ || options_.json || !device_->holdsData())
      generating.emplace("generating");
    if (text_ && device_->holdsData()) {
      replies_.emplace(text_->tokenizer(), options_.text, request_.prompts.size(), options_.json ? nullptr : stdout);
      request_.onToken = [this](size_t prompt, int32_t id) { return replies_->push(prompt, id); };
      request_.onEnd = [this](size_t prompt) { return replies_->finish(prompt); };
    }
    catchInterrupts(
        "\nheadrace: interrupted: ends with the iteration that runs, and tells what there is; Ctrl-C again ends "
        "it now\n");
    request_.isInterrupted = [this] { return interrupted_ = wasInterrupted(); };
    std::vector<serve::IterationSeen> seenAll;
    request_.onIteration = [&](const serve::IterationSeen &seen) {
      seenAll.push_back(looks_->unwatched(seen));
      if (generating)
        generating->note(cat("iteration ", looks_->times().count()));
      lastVariant_ = seen.variant;
    };
    ASSIGN_OR_RETURN(result, serve::generate(*runtime_, request_));
    letInterruptsBe(); // files that are half written go with one
    interrupted_ = wasInterrupted();
    request_.onIteration = nullptr;
    request_.onLaunch = nullptr;
    for (size_t i = 0; i < seenAll.size(); ++i)
      report_->times.add(seenAll[i], looks_->ran()[i]);
    report_->result = std::move(result);
    report_->result.counters.stallNs += looks_->hiddenStallNs();
    for (const std::vector<int32_t> &prompt : request_.prompts)
      report_->promptTokens.push_back(static_cast<int64_t>(prompt.size()));
    report_->lengthIs = lengthIs_;
    if (replies_)
      report_->texts = replies_->texts();
    return looks_->finish();
  }

  absl::Status report() {
    report_->transitions = runtime_->transitionsRun();
    report_->missingVariants = runtime_->missingVariants();
    report_->leftOutVariants = runtime_->leftOutVariants();
    if (!options_.logits.empty() && !interrupted_)
      RETURN_IF_ERROR(outputs_->write(options_.logits, logitsFile(report_->result.logits, plan_.model->vocab)));
    if (const absl::StatusOr<std::string> why = cuda::cuptiRefused(*device_); why.ok() && !why->empty())
      warnOnce(cat("steps are measured by time stamps in the graphs, because CUPTI refused: ", *why));
    if (drawn() && !interrupted_) {
      const Trace trace = traceOf(plan_, *device_, *looks_, IterationPhase::Any);
      RETURN_IF_ERROR(writeTimelines(options_, *outputs_, plan_, trace, deviceOptions_.linkBandwidth));
    }
    report_->findings = findOutAbout(plan_, *device_, *looks_, *report_, deviceOptions_.linkBandwidth);
    const uint32_t shown = options_.placement.value_or(plan_.variants[lastVariant_].placement);
    if (options_.json)
      show(runJson(plan_, shown, runtime_->manifest(), *report_), true);
    else if (replies_ && !options_.text.quiet) // standard output is the text's
      print(runText(plan_, shown, *report_), stderr);
    else if (!replies_)
      show(runText(plan_, shown, *report_), false);
    return absl::OkStatus();
  }

  const RunOptions &options_;
  std::optional<Outputs> outputs_;
  std::optional<RunSource> source_; // until the plan is made
  std::optional<TextModel> text_;
  std::string lengthIs_;
  std::optional<ReplyTexts> replies_; // of text_, where the device holds data
  serve::GenerateRequest request_;
  std::unique_ptr<core::Device> device_;
  core::DeviceOptions deviceOptions_;
  std::unique_ptr<model::WeightSource> weights_; // until they are loaded
  plan::Plan plan_;
  uint32_t firstIn_ = 0, lastVariant_ = 0; // a placement, a variant
  bool interrupted_ = false;               // while it generated: what there is by then is told, and no file written
  std::unique_ptr<core::Runtime> runtime_;
  std::optional<RunReport> report_;
  std::optional<IterationLooks> looks_; // once the runtime is there
};

} // namespace

absl::Status runCommand(const RunOptions &options) {
  if (!isStagesFile(options.job.source))
    return Run(options).run();
  ASSIGN_OR_RETURN(one, onlyPlanOf(options.job.source));
  if (!one)
    return runStages(options);
  RunOptions ofPlan = options;
  ofPlan.job.source = *one;
  return Run(ofPlan).run();
}

} // namespace headrace::tools
