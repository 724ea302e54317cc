// SPDX-License-Identifier: Apache-2.0
//
// run and simulate: a plan (or a model, compiled on the way), prompts in, tokens and a report out.
//
//   plan <- file | compile      prompts -> checkRequest      weights <- checkpoint | seed
//                \_____________________|________________________/
//                                   Runtime::load -> manifest -> generate -> report, logits, trace, timeline
#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include "runtime/core/Runtime.h"
#include "runtime/cuda/CudaDevice.h"
#include "runtime/model/FileIo.h"
#include "runtime/model/Text.h"
#include "runtime/model/WeightSource.h"
#include "runtime/plan/PlacementTable.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/serve/BatchEngine.h"
#include "runtime/sim/SimDevice.h"
#include "runtime/sim/Simulator.h"
#include "tools/Commands.h"
#include "tools/Compiling.h"
#include "tools/LogitsFile.h"
#include "tools/Progress.h"
#include "tools/PromptIds.h"
#include "tools/RunReport.h"
#include "tools/RunSetup.h"
#include "tools/Timeline.h"
#include "tools/WriteFile.h"

namespace headrace::tools {
namespace {

using model::cat;

absl::Status bad(const std::string &message) { return absl::InvalidArgumentError(cat("command line: ", message)); }

// A plan is any file that is neither a shape nor a job; whether it is one is for the plan's reader to say.
bool isPlanFile(const std::string &path) {
  return path.ends_with(".plan") || (model::isRegularFile(path) && !path.ends_with(".toml"));
}

absl::Status checkOutputs(const RunOptions &options) {
  for (const std::string *path : {&options.logits, &options.trace, &options.timeline})
    if (!path->empty())
      if (absl::Status status = checkWritable(*path); !status.ok())
        return status;
  if (!options.timeline.empty() && !options.timeline.ends_with(".svg") && !options.timeline.ends_with(".json") &&
      !options.timeline.ends_with(".txt"))
    return bad(cat("--timeline ", options.timeline, ": expected a name that ends in .svg, .json or .txt"));
  return absl::OkStatus();
}

absl::StatusOr<Prompts> readPrompts(const RunOptions &options, int64_t vocab) {
  const int ways = (options.promptIds.empty() ? 0 : 1) + (options.promptIdsFile.empty() ? 0 : 1) +
                   (options.randomInputLength.has_value() ? 1 : 0);
  if (ways != 1)
    return bad("expected one of --prompt-ids, --prompt-ids-file and --random-input-len");
  if (options.randomInputLength) {
    if (*options.randomInputLength < 1 || options.numPrompts < 1)
      return bad(cat("--random-input-len ", *options.randomInputLength, " --num-prompts ", options.numPrompts,
                     ": expected 1 or more of both"));
    if (*options.randomInputLength > (int64_t{1} << 31) / options.numPrompts)
      return bad(cat("--random-input-len ", *options.randomInputLength, " --num-prompts ", options.numPrompts,
                     ": expected at most 2^31 tokens in all"));
    return randomPrompts(options.numPrompts, *options.randomInputLength, vocab, options.seed);
  }
  if (!options.promptIdsFile.empty())
    return readPromptIds(options.promptIdsFile);
  // Ids hold digits, commas and semicolons only; anything else that names a file is one.
  if (model::isRegularFile(options.promptIds))
    return readPromptIds(options.promptIds);
  return parsePromptIds(options.promptIds, "--prompt-ids");
}

// The goal that a run has by itself: a place for each prompt, and room for the longest of them with its new tokens.
void fitGoal(const Prompts &prompts, int64_t maxNewTokens, model::Goal &goal) {
  size_t longest = 0;
  for (const std::vector<int32_t> &prompt : prompts)
    longest = std::max(longest, prompt.size());
  if (!goal.batch)
    goal.batch = static_cast<int64_t>(prompts.size());
  if (!goal.context)
    goal.context = static_cast<int64_t>(longest) + maxNewTokens;
}

struct Loaded {
  plan::Plan plan;
  Prompts prompts;
};

absl::StatusOr<Loaded> compileOnTheWay(const RunOptions &options, double linkBandwidth) {
  absl::StatusOr<AssembledJob> assembled = assembleJob(options.job);
  if (!assembled.ok())
    return assembled.status();
  for (const std::string &note : assembled->notes)
    std::fprintf(stderr, "headrace: %s\n", note.c_str());
  model::Job &job = assembled->job;
  absl::StatusOr<Prompts> prompts = readPrompts(options, job.model->spec.vocab);
  if (!prompts.ok())
    return prompts.status();
  if (linkBandwidth > 0) { // the plan is made for the link that the run will have
    model::Hardware &h = *job.hardware;
    const double share = h.duplexBandwidth / std::max(h.h2dBandwidth, h.d2hBandwidth);
    h.h2dBandwidth = h.d2hBandwidth = linkBandwidth;
    h.duplexBandwidth = share * linkBandwidth;
    h.linkEfficiency = 1;
  }
  fitGoal(*prompts, options.maxNewTokens, job.goal);
  if (*job.goal.context > job.model->spec.maxPositions)
    return absl::InvalidArgumentError(cat("the longest prompt with its ", options.maxNewTokens, " new tokens is ",
                                          *job.goal.context, " tokens: expected at most the ",
                                          job.model->spec.maxPositions, " positions of ", job.model->spec.name));
  absl::StatusOr<plan::Plan> plan = compileJob(job);
  if (!plan.ok())
    return plan.status();
  return Loaded{*std::move(plan), *std::move(prompts)};
}

absl::StatusOr<Loaded> loadPlan(const RunOptions &options, double linkBandwidth) {
  if (!isPlanFile(options.job.source))
    return compileOnTheWay(options, linkBandwidth);
  if (options.job.any()) {
    const std::string flag = !options.job.flags.empty()          ? options.job.flags.begin()->first
                             : !options.job.modelFlag.empty()    ? "--model"
                             : !options.job.hardwareFlag.empty() ? "--hardware"
                                                                 : "a placement flag";
    return bad(cat(flag, " beside the plan ", options.job.source,
                   ": a plan has its model, hardware, goal and policy already: expected a model, or no such flag"));
  }
  absl::StatusOr<plan::Plan> plan = plan::readPlan(options.job.source);
  if (!plan.ok())
    return plan.status();
  absl::StatusOr<Prompts> prompts = readPrompts(options, plan->model.vocab);
  if (!prompts.ok())
    return prompts.status();
  return Loaded{*std::move(plan), *std::move(prompts)};
}

// What an iteration of each variant takes over the link that the run has: the plan's own prediction unless
// --link-bandwidth says otherwise.
std::vector<uint64_t> predictions(const plan::Plan &plan, double linkBandwidth) {
  std::vector<uint64_t> out;
  out.reserve(plan.variants.size());
  const double duplexShare =
      plan.hardware.duplexBandwidth / std::max(plan.hardware.h2dBandwidth, plan.hardware.d2hBandwidth);
  for (const plan::Variant &variant : plan.variants) {
    if (linkBandwidth <= 0) {
      out.push_back(variant.predictedNs);
      continue;
    }
    const plan::Schedule &schedule = plan.schedules[variant.schedule];
    const std::vector<uint64_t> durations =
        sim::pacedDurations(schedule, variant.durationsNs, plan.hardware, linkBandwidth);
    out.push_back(sim::Simulator(schedule).run(durations, duplexShare).iterationNs);
  }
  return out;
}

absl::Status writeTimelines(const RunOptions &options, const plan::Plan &plan, const core::Device &device,
                            uint32_t variant) {
  std::string measured(device.kind()); // "cuda, CUPTI"
  if (const absl::StatusOr<std::string> by = cuda::measuredBy(device); by.ok())
    measured += ", " + *by;
  const Trace trace = makeTrace(plan, measured, variant, device.lastTimes());
  if (!options.trace.empty())
    if (absl::Status status = writeFile(options.trace, traceJson(trace)); !status.ok())
      return status;
  if (options.timeline.empty())
    return absl::OkStatus();
  const Chart chart = makeChart(plan, variant, &trace);
  return writeFile(options.timeline, options.timeline.ends_with(".svg")    ? timelineSvg(chart)
                                     : options.timeline.ends_with(".json") ? timelineJson(chart)
                                                                           : timelineText(chart, 120));
}

// What the first iteration runs in, so that nothing has to change before it.
uint32_t firstPlacement(const plan::Plan &plan, const Prompts &prompts) {
  plan::IterationShape shape{0, static_cast<int64_t>(prompts.size()), 1};
  for (const std::vector<int32_t> &prompt : prompts) {
    shape.tokens += static_cast<int64_t>(prompt.size());
    shape.context = std::max(shape.context, static_cast<int64_t>(prompt.size()));
  }
  return plan::chosenPlacement(plan, shape).value_or(0);
}

} // namespace

absl::Status runCommand(const RunOptions &options) {
  absl::StatusOr<std::unique_ptr<core::Device>> device = nullptr;
  if (!options.device.empty())
    device = makeDevice(options.device, options);
  if (!device.ok())
    return device.status();
  if (absl::Status status = checkOutputs(options); !status.ok())
    return status;
  core::DeviceOptions deviceOptions;
  if (!options.linkBandwidth.empty()) {
    absl::StatusOr<double> bandwidth = model::parseBandwidth(options.linkBandwidth, "--link-bandwidth");
    if (!bandwidth.ok())
      return bandwidth.status();
    deviceOptions.linkBandwidth = *bandwidth;
  }
  absl::StatusOr<std::vector<int32_t>> stopIds = parseIds(options.stopIds, "--stop-ids");
  if (!stopIds.ok())
    return stopIds.status();
  if (options.maxNewTokens < 1)
    return bad(cat("--max-new-tokens ", options.maxNewTokens, ": expected at least 1"));

  absl::StatusOr<Loaded> loaded = loadPlan(options, deviceOptions.linkBandwidth);
  if (!loaded.ok())
    return loaded.status();
  const plan::Plan &plan = loaded->plan;
  if (options.placement && *options.placement >= plan.placements.size())
    return bad(
        cat("--placement ", *options.placement, ": expected one of the plan's ", plan.placements.size(), ", from 0"));

  if (options.device.empty())
    device = makeDevice(defaultDevice(plan), options);
  if (!device.ok())
    return device.status();

  RunReport report;
  report.planPath = options.job.source;
  report.device = options.device.empty() ? std::string((*device)->kind()) : options.device;
  uint32_t lastVariant = 0;
  const std::vector<uint64_t> predicted = predictions(plan, deviceOptions.linkBandwidth);
  serve::GenerateRequest request;
  request.prompts = std::move(loaded->prompts);
  request.maxNewTokens = options.maxNewTokens;
  request.sampling = {static_cast<float>(options.temperature), static_cast<float>(options.topP), options.seed};
  request.stopTokens = *std::move(stopIds);
  request.keepLogits = !options.logits.empty();
  request.separatePrefill = options.separatePrefill;
  if (!options.placement && !plan.choices.empty())
    request.placementOf = [&](const plan::IterationShape &shape) {
      return plan::chosenPlacement(plan, shape).value_or(0);
    };
  request.onIteration = [&](uint32_t variant, int64_t ns) {
    lastVariant = variant;
    const plan::Variant &v = plan.variants[variant];
    const bool decode = plan.schedules[v.schedule].shape == plan::ShapeClass::Decode;
    (decode ? report.decode : report.prefill).add(predicted[variant], ns);
  };
  if (absl::Status status = serve::checkRequest(plan, request); !status.ok())
    return status;

  std::unique_ptr<model::WeightSource> weights;
  if ((*device)->holdsData()) {
    absl::StatusOr<std::unique_ptr<model::WeightSource>> opened = openWeights(options, plan);
    if (!opened.ok())
      return opened.status();
    weights = *std::move(opened);
  } else if (request.keepLogits) {
    return absl::FailedPreconditionError(
        cat("--logits: the ", report.device, " device holds no data: use --device host"));
  }
  if (absl::Status status = setLanes(options, **device, deviceOptions); !status.ok())
    return status;
  deviceOptions.trace = !options.trace.empty() || !options.timeline.empty();
  core::LoadOptions loadOptions;
  loadOptions.placement = options.placement.value_or(firstPlacement(plan, request.prompts));
  if (!(options.graphSeconds >= 0) || options.graphSeconds > 1e9)
    return bad(cat("--graph-seconds ", options.graphSeconds, ": expected a number of seconds, 0 for no limit"));
  loadOptions.buildNs = static_cast<int64_t>(options.graphSeconds * 1e9);
  if (!options.graphMemory.empty()) {
    absl::StatusOr<uint64_t> bytes = model::parseBytes(options.graphMemory, "--graph-memory");
    if (!bytes.ok())
      return bytes.status();
    loadOptions.graphBytes = *bytes;
  }
  std::unique_ptr<core::Runtime> runtime;
  {
    Progress progress("loading", Amount::Bytes);
    loadOptions.progress = [&](uint64_t done, uint64_t total) { progress.update(done, total); };
    absl::StatusOr<std::unique_ptr<core::Runtime>> opened =
        core::Runtime::load(plan, **device, deviceOptions, weights.get(), loadOptions);
    if (!opened.ok())
      return opened.status();
    runtime = *std::move(opened);
  }
  weights.reset(); // the homes are filled; the files are no longer needed
  std::fputs(runtime->manifest().toString().c_str(), options.json ? stderr : stdout);

  absl::StatusOr<serve::GenerateResult> result = serve::generate(*runtime, request);
  if (!result.ok())
    return result.status();
  report.result = *std::move(result);
  report.decode.finish();
  report.prefill.finish();
  report.transitions = runtime->transitionsRun();
  report.missingVariants = runtime->missingVariants();
  report.leftOutVariants = runtime->leftOutVariants();
  if (!options.logits.empty())
    if (absl::Status status = writeLogits(report.result.logits, plan.model.vocab, options.logits); !status.ok())
      return status;
  if (deviceOptions.trace)
    if (absl::Status status = writeTimelines(options, plan, **device, lastVariant); !status.ok())
      return status;
  const uint32_t shown = options.placement.value_or(plan.variants[lastVariant].placement);
  std::fputs((options.json ? runJson(plan, shown, runtime->manifest(), report) : runText(plan, shown, report)).c_str(),
             stdout);
  return absl::OkStatus();
}

} // namespace headrace::tools
