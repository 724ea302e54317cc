// SPDX-License-Identifier: Apache-2.0
//
// bench serve: requests that come at their times on one engine, and what became of them; once or at several rates.
//
//   flags, trace -> ServeTraffic;  plan | model -> RunSource, stages -> LoadedStages      refused before work starts
//   lengths -> plan -> Runtime::load -> a warm-up -> runTraffic() at each rate -> ServeReport: text, JSON, picture
#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/core/Runtime.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/value/PlacementTable.h"
#include "runtime/serve/traffic/Metrics.h"
#include "tools/commands/Commands.h"
#include "tools/commands/Devices.h"
#include "tools/commands/EngineSetup.h"
#include "tools/commands/InputErrors.h"
#include "tools/commands/LoadedStages.h"
#include "tools/commands/Outputs.h"
#include "tools/commands/Progress.h"
#include "tools/commands/PromptIds.h"
#include "tools/commands/RunSource.h"
#include "tools/commands/SamplingOf.h"
#include "tools/commands/ServeRequest.h"
#include "tools/commands/ServeTraffic.h"
#include "tools/commands/Terminal.h"
#include "tools/report/BenchReport.h"
#include "tools/report/InspectReport.h"
#include "tools/report/ServeReport.h"

namespace headrace::tools {
namespace {

using model::cat;

// "ttft,itl": in the order of reports.
absl::StatusOr<std::vector<ServeMetric>> parseMetrics(const std::string &text) {
  std::vector<ServeMetric> out(serveMetrics().begin(), serveMetrics().end());
  if (text.empty())
    return out;
  const std::vector<std::string> words = absl::StrSplit(text, ',');
  for (const std::string &word : words)
    if (std::none_of(out.begin(), out.end(), [&](const ServeMetric &metric) { return metric.name == word; }))
      return badFlag("--percentile-metrics", text, "some of ttft, tpot, itl, e2el and queueing, such as ttft,itl");
  std::erase_if(out, [&](const ServeMetric &metric) {
    return std::find(words.begin(), words.end(), metric.name) == words.end();
  });
  return out;
}

// A refusal of what a flag said, by the library that reads it.
template <class Value> absl::StatusOr<Value> ofFlag(std::string_view flag, absl::StatusOr<Value> value) {
  if (value.ok())
    return value;
  return absl::Status(value.status().code(), cat(kCommandLine, ": ", flag, ": ", value.status().message()));
}

class BenchServe {
public:
  explicit BenchServe(const BenchServeOptions &options) : options_(options) {}

  absl::Status run() {
    RETURN_IF_ERROR(open());
    RETURN_IF_ERROR(makePlan());
    RETURN_IF_ERROR(load());
    RETURN_IF_ERROR(warmUp());
    for (const double rate : traffic_->rates())
      RETURN_IF_ERROR(serveAt(rate));
    return report();
  }

private:
  // Everything that can be refused before the work starts.
  absl::Status open() {
    if (!options_.device.device.empty())
      RETURN_IF_ERROR(openDevice(options_.device.device));
    RETURN_IF_ERROR(readFlags());
    ASSIGN_OR_RETURN(traffic, ServeTraffic::open(options_.traffic));
    Outputs outputs(options_.overwrite);
    outputs.add("--svg", options_.svg, OutputKind::Bench);
    outputs.add("--output", options_.output, OutputKind::Bench);
    outputs.addInputs({options_.traffic.path, options_.weights.folder});
    if (isStagesFile(options_.job.source))
      return openStages(std::move(outputs), std::move(traffic));
    ASSIGN_OR_RETURN(source, RunSource::open(options_.job, options_.linkBandwidth, /*quiet=*/false, outputs));
    if (!device_)
      RETURN_IF_ERROR(openDevice(options_.device.deviceOr(source.device())));
    RETURN_IF_ERROR(traffic.draw(source.goal(), source.mostContext(), source.model().vocab));
    if (AssembledJob *const job = source.job())
      RETURN_IF_ERROR(askForTraffic(options_, traffic, *job));
    if (options_.placement)
      RETURN_IF_ERROR(source.checkPlacement(*options_.placement));
    RETURN_IF_ERROR(source.checkScheduler(options_.scheduler));
    RETURN_IF_ERROR(checkStopIds(stopIds_, source.model().vocab));
    if (device_->holdsData()) {
      ASSIGN_OR_RETURN(weights, openWeights(options_.weights, source.weights()));
      weights_ = std::move(weights);
    }
    outputs_.emplace(std::move(outputs));
    source_.emplace(std::move(source));
    traffic_.emplace(std::move(traffic));
    return absl::OkStatus();
  }

  // A model's stages, over a device each.
  absl::Status openStages(Outputs outputs, ServeTraffic traffic) {
    for (const auto &[flag, given] :
         {std::pair("--scheduler static", options_.scheduler.batching != serve::Batching::Continuous),
          {"--swap-space", !options_.scheduler.swapSpace.empty()}})
      if (given)
        return badUsage(cat(flag, " beside stages: expected one plan, of a whole model"));
    ASSIGN_OR_RETURN(stages, LoadedStages::read(options_.job, options_.placement, outputs));
    const plan::Plan &plan = stages->plan();
    RETURN_IF_ERROR(traffic.draw(plan.goal, plan.maxContext, plan.model->vocab));
    RETURN_IF_ERROR(checkScheduler(options_.scheduler, plan));
    RETURN_IF_ERROR(checkStopIds(stopIds_, plan.model->vocab));
    RETURN_IF_ERROR(stages->open(options_.device, options_.weights));
    stages_ = std::move(stages);
    outputs_.emplace(std::move(outputs));
    traffic_.emplace(std::move(traffic));
    return absl::OkStatus();
  }

  absl::Status openDevice(const std::string &name) {
    ASSIGN_OR_RETURN(device, makeDevice(name, options_.device));
    device_ = std::move(device);
    return absl::OkStatus();
  }

  absl::Status readFlags() {
    RETURN_IF_ERROR(checkWeightFlags(options_.weights));
    RETURN_IF_ERROR(checkSamplingFlags(options_.sampling));
    if (options_.ignoreEos && !options_.sampling.stopIds.empty())
      return badFlag("--stop-ids", options_.sampling.stopIds, "--ignore-eos is given, too", "one of them");
    ASSIGN_OR_RETURN(stopIds, parseIds(options_.sampling.stopIds, "command line: --stop-ids"));
    stopIds_ = std::move(stopIds);
    std::vector<std::string> words; // "ttft:200 tpot:50" may be one argument, or two
    for (const std::string &argument : options_.goodput)
      for (const absl::string_view word : absl::StrSplit(argument, ' ', absl::SkipEmpty()))
        words.emplace_back(word);
    if (words.empty() && !options_.goodput.empty())
      return badFlag("--goodput", options_.goodput.front(), "ttft:MS, tpot:MS or e2el:MS");
    ASSIGN_OR_RETURN(goodput, ofFlag("--goodput", serve::parseGoodput(words)));
    ASSIGN_OR_RETURN(percentiles, ofFlag("--metric-percentiles", serve::parsePercentiles(options_.percentiles)));
    ASSIGN_OR_RETURN(metrics, parseMetrics(options_.metrics));
    report_.goodput = goodput;
    report_.percentiles = std::move(percentiles);
    report_.metrics = std::move(metrics);
    return absl::OkStatus();
  }

  absl::Status makePlan() {
    if (stages_)
      return absl::OkStatus();
    choseKv_ = source_->job() != nullptr && source_->goal().autoKvTokens;
    report_.compiled = source_->askedFlags();
    ASSIGN_OR_RETURN(plan, std::move(*source_).makePlan());
    plan_ = std::move(plan);
    source_.reset();
    RETURN_IF_ERROR(checkRunnable(plan_, options_.placement));
    return checkScheduler(options_.scheduler, plan_);
  }

  // Requests of all lengths share an iteration: in virtual time it takes what runs of it takes.
  core::DeviceOptions deviceOptions() const {
    return {.linkBandwidth = options_.linkBandwidth, .pricing = core::Pricing::Rows};
  }

  uint32_t placementOf(const plan::IterationSize &size) const {
    return options_.placement.value_or(plan::chosenPlacement(plan_, size).value_or(0));
  }

  const plan::Plan &plan() const { return stages_ ? stages_->plan() : plan_; }
  serve::Executor on() const { return stages_ ? serve::Executor(stages_->stages()) : serve::Executor(*runtime_); }

  absl::Status load() {
    if (stages_) // a device of a group takes what its plan says of the bucket
      return stages_->load({.linkBandwidth = options_.linkBandwidth}, options_.scheduler.maxNumSeqs.value_or(0));
    core::LoadOptions loading;
    loading.placement = placementOf({1, 1, 1});
    ASSIGN_OR_RETURN(runtime, loadRuntime(plan_, *device_, deviceOptions(), weights_, loading));
    runtime_ = std::move(runtime);
    return absl::OkStatus();
  }

  serve::TrafficOptions trafficOptions() const {
    serve::TrafficOptions traffic;
    traffic.engine.maxNumSeqs = options_.scheduler.maxNumSeqs.value_or(0);
    traffic.engine.maxNumBatchedTokens = options_.scheduler.maxNumBatchedTokens.value_or(0);
    traffic.engine.prefill = options_.scheduler.chunkedPrefill ? serve::Prefill::Chunked : serve::Prefill::Whole;
    traffic.engine.batching = options_.scheduler.batching;
    traffic.engine.preemption = options_.scheduler.preemption;
    traffic.engine.swapBytes = swapSpace(options_.scheduler).value_or(0); // checked
    if (!stages_ && !options_.placement && !plan_.choices.empty())
      traffic.engine.placementOf = [this](const serve::ComposedIteration &next) { return placementOf(next); };
    traffic.sampling = samplingOf(options_.sampling, options_.traffic.seed);
    traffic.stopTokens = stopIds_;
    traffic.promptSeed = options_.traffic.seed;
    traffic.maxConcurrency = options_.maxConcurrency.value_or(0);
    traffic.sampleEveryNs = 10'000; // and longer as there are too many
    traffic.keepTokenTimes = true;
    return traffic;
  }

  bool compiled() const { return !stages_ && !isPlanFile(options_.job.source); }

  // One request by itself that does not count: caches, page faults, clock rates; slots as an iteration leaves them.
  absl::Status warmUp() {
    ASSIGN_OR_RETURN(requests, traffic_->at(traffic_->rates().front()));
    requests.resize(1);
    requests[0].arrivalNs = 0;
    requests[0].outputTokens = std::min<int64_t>(requests[0].outputTokens, 2);
    return serve::runTraffic(on(), requests, trafficOptions()).status();
  }

  absl::Status serveAt(double rate) {
    ASSIGN_OR_RETURN(requests, traffic_->at(rate));
    Progress progress(rate > 0 ? cat("serving at ", rateText(rate)) : std::string("serving"));
    serve::TrafficOptions options = trafficOptions();
    uint64_t tokens = 0;
    options.onToken = [&](size_t, const serve::EngineToken &) {
      if (++tokens % 64 == 0)
        progress.update(tokens, static_cast<uint64_t>(traffic_->outputTokens()));
    };
    ASSIGN_OR_RETURN(result, serve::runTraffic(on(), requests, options));
    const serve::MetricsOptions metrics{.percentiles = report_.percentiles, .goodput = report_.goodput};
    ServeRun run{.requestRate = rate, .metrics = serve::summarize(result, metrics)};
    result.itlNs = {};
    run.result = std::move(result);
    report_.runs.push_back(std::move(run));
    return absl::OkStatus();
  }

  // What is of one device, and of stages in their order.
  void describe() {
    if (!stages_) {
      const uint32_t shown = options_.placement.value_or(runtime_->placement());
      report_.device = describeDevice(options_.device.device, *device_);
      report_.planHash = plan::planHash(plan_);
      report_.offloaded = describePlacement(plan_, plan_.placements[shown]);
      if (options_.placement || plan_.choices.empty())
        report_.placement = plan_.placements[shown].name;
      report_.kvBesideOffloaded = choseKv_ && offloadedBytes(plan_, shown) > 0;
      return;
    }
    std::vector<std::string> hashes, offloaded;
    for (const plan::Plan &plan : stages_->plans()) {
      offloaded.push_back(cat("stage ", hashes.size(), ": ", describePlacement(plan, plan.placements.front())));
      hashes.push_back(plan::planHash(plan));
    }
    report_.device = cat(stages_->plans().size(), " x ", describeDevice(stages_->device(), stages_->group().device(0)));
    report_.planHash = absl::StrJoin(hashes, ",");
    report_.offloaded = absl::StrJoin(offloaded, "; ");
    report_.microBatches = stages_->stages().microBatches();
  }

  absl::Status report() {
    const plan::Plan &plan = this->plan();
    describe();
    report_.model = plan.model->name;
    report_.hardware = plan.hardware.name;
    if (!compiled())
      report_.plan = options_.job.source;
    report_.context = plan.maxContext;
    report_.kvBlocks = report_.runs.front().result.kvBlocks;
    report_.blockTokens = plan.blockTokens;
    report_.scheduler = options_.scheduler.batching == serve::Batching::Static ? "static" : "vllm";
    report_.prefill = options_.scheduler.batching == serve::Batching::Static ? "prompts padded to the longest"
                      : options_.scheduler.chunkedPrefill                    ? "chunked prefill"
                                                                             : "prompts whole";
    const serve::EngineBounds bounds = serve::engineBounds(plan);
    report_.maxNumSeqs = options_.scheduler.maxNumSeqs.value_or(bounds.maxNumSeqs);
    report_.swapBytes = swapSpace(options_.scheduler).value_or(0);
    report_.miniBatches = plan.miniBatches;
    report_.maxNumBatchedTokens = options_.scheduler.maxNumBatchedTokens.value_or(bounds.maxNumBatchedTokens);
    report_.dataset = datasetName(options_.traffic.dataset);
    report_.lengths = traffic_->lengthsText();
    report_.numPrompts = traffic_->count();
    report_.leftOut = traffic_->leftOut();
    report_.traceClock = traffic_->traceClock();
    report_.traceDropped = traffic_->traceDropped();
    report_.traceBeginS = traffic_->traceBeginS();
    report_.maxConcurrency = options_.maxConcurrency.value_or(0);
    report_.burstiness = options_.traffic.burstiness.value_or(1);
    report_.seed = options_.traffic.seed;
    report_.detailed = options_.detailed;
    report_.ttft = plan.goal.ttft;
    return write();
  }

  // Of requests that were not served, what makes the command fail.
  absl::Status failure() const {
    bool served = false;
    for (const ServeRun &run : report_.runs) {
      served |= run.metrics.completed > 0;
      for (size_t r = 0; r < run.result.requests.size(); ++r) // wrong numbers are no answer, whoever else was served
        if (const absl::Status &why = run.result.requests[r].why; absl::IsAborted(why))
          return absl::Status(why.code(), cat("request ", r + 1, ": ", why.message()));
    }
    if (served)
      return absl::OkStatus();
    const std::vector<ServeRefusal> refusals = refusalsOf(report_.runs.front().result.requests);
    return absl::FailedPreconditionError(
        cat("bench serve: no request was served",
            refusals.empty() ? ""
                             : cat(": ", refusals[0].count, refusals[0].started ? " failed" : " refused",
                                   ", the first: ", refusals[0].first)));
  }

  absl::Status write() {
    report_.error = failure();
    const std::string json = report_.json();
    if (!options_.svg.empty())
      RETURN_IF_ERROR(outputs_->write(options_.svg, report_.svg()));
    if (!options_.output.empty())
      RETURN_IF_ERROR(outputs_->write(options_.output, json));
    show(options_.json ? json : report_.text(options_.all), options_.json);
    return report_.error.ok() ? absl::OkStatus() : withReport(report_.error);
  }

  const BenchServeOptions &options_;
  std::vector<int32_t> stopIds_;
  std::optional<ServeTraffic> traffic_;
  std::optional<Outputs> outputs_;
  std::optional<RunSource> source_;      // until the plan is made
  std::unique_ptr<LoadedStages> stages_; // in place of one plan and device
  std::unique_ptr<core::Device> device_;
  std::unique_ptr<model::WeightSource> weights_; // until they are loaded
  plan::Plan plan_;
  bool choseKv_ = false; // how large its KV cache is, no flag says
  std::unique_ptr<core::Runtime> runtime_;
  ServeReport report_;
};

} // namespace

absl::Status benchServeCommand(const BenchServeOptions &options) {
  if (!isStagesFile(options.job.source))
    return BenchServe(options).run();
  ASSIGN_OR_RETURN(one, onlyPlanOf(options.job.source));
  BenchServeOptions ofPlan = options;
  ofPlan.job.source = one.value_or(options.job.source);
  return BenchServe(ofPlan).run();
}

} // namespace headrace::tools
