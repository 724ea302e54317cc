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

#include "runtime/base/FileIo.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/core/Runtime.h"
#include "runtime/core/TransitionPaths.h"
#include "runtime/cuda/CudaDevice.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightSource.h"
#include "runtime/plan/PlacementTable.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/serve/engine/BatchEngine.h"
#include "runtime/sim/SimDevice.h"
#include "tools/commands/Commands.h"
#include "tools/commands/Compiling.h"
#include "tools/commands/InputErrors.h"
#include "tools/commands/LogitsFile.h"
#include "tools/commands/ModelPath.h"
#include "tools/commands/Outputs.h"
#include "tools/commands/Progress.h"
#include "tools/commands/PromptIds.h"
#include "tools/commands/RunSetup.h"
#include "tools/commands/Terminal.h"
#include "tools/report/IterationLooks.h"
#include "tools/report/RunReport.h"
#include "tools/timeline/Timeline.h"

namespace headrace::tools {
namespace {

using model::cat;

// A plan is any file that is neither a shape nor a job; whether it is one is for the plan's reader to say.
bool isPlanFile(const std::string &path) {
  return path.ends_with(".plan") || (model::isRegularFile(path) && !path.ends_with(".toml"));
}

absl::StatusOr<Outputs> outputsOf(const RunOptions &options) {
  Outputs outputs(options.overwrite);
  outputs.add("--logits", options.logits, OutputKind::Logits);
  outputs.add("--trace", options.trace, OutputKind::Timeline);
  outputs.add("--timeline", options.timeline, OutputKind::Timeline);
  outputs.addInputs({options.job.source, options.promptIds.value_or(""), options.promptIdsFile, options.weights});
  if (!options.timeline.empty() && !options.timeline.ends_with(".svg") && !options.timeline.ends_with(".json") &&
      !options.timeline.ends_with(".txt"))
    return badFlag("--timeline", options.timeline, "a name that ends in .svg, .json or .txt");
  return outputs;
}

absl::StatusOr<Prompts> readPrompts(const RunOptions &options, int64_t vocab) {
  const int ways = (options.promptIds ? 1 : 0) + (options.promptIdsFile.empty() ? 0 : 1) +
                   (options.randomInputLength.has_value() ? 1 : 0);
  if (ways != 1)
    return badUsage("expected one of --prompt-ids, --prompt-ids-file and --random-input-len");
  const int64_t count = options.numPrompts.value_or(1);
  if (options.randomInputLength) {
    if (*options.randomInputLength > (int64_t{1} << 31) / count)
      return badNumber("--random-input-len", *options.randomInputLength,
                       cat("at most 2^31 tokens in all ", count, " prompts"));
    return randomPrompts(count, *options.randomInputLength, vocab, options.seed);
  }
  if (options.numPrompts)
    return badNumber("--num-prompts", count, "--random-input-len beside it: other prompts are as many as are given");
  if (!options.promptIdsFile.empty())
    return readPromptIds(options.promptIdsFile);
  // Ids hold digits, commas and semicolons only; anything else that names a file is one.
  if (model::isRegularFile(*options.promptIds))
    return readPromptIds(*options.promptIds);
  if (options.promptIds->find_first_of("./") != std::string::npos)
    return badFlag("--prompt-ids", *options.promptIds,
                   "token ids such as \"1,2,3;4,5\", or a file of them that is there");
  return parsePromptIds(*options.promptIds, "command line: --prompt-ids");
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

absl::StatusOr<Loaded> compileOnTheWay(const RunOptions &options, double linkBandwidth, Outputs &outputs) {
  absl::StatusOr<AssembledJob> assembled = assembleJob(options.job);
  if (!assembled.ok())
    return assembled.status();
  for (const std::string &note : assembled->notes)
    std::fprintf(stderr, "headrace: %s\n", note.c_str());
  model::Job &job = assembled->job;
  outputs.addInputs(job.files);
  if (absl::Status status = outputs.check(); !status.ok()) // before the work starts
    return status;
  absl::StatusOr<Prompts> prompts = readPrompts(options, job.model->spec->vocab);
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
  if (*job.goal.context > job.model->spec->maxPositions)
    return absl::InvalidArgumentError(cat("the longest prompt with its ", options.maxNewTokens, " new tokens is ",
                                          *job.goal.context, " tokens: expected at most the ",
                                          job.model->spec->maxPositions, " positions of ", job.model->spec->name));
  absl::StatusOr<plan::Plan> plan = compileJob(job);
  if (!plan.ok())
    return aboutInput(assembled->input, plan.status());
  return Loaded{*std::move(plan), *std::move(prompts)};
}

absl::StatusOr<Loaded> loadPlan(const RunOptions &options, double linkBandwidth, Outputs &outputs) {
  if (!isPlanFile(options.job.source))
    return compileOnTheWay(options, linkBandwidth, outputs);
  if (options.job.any()) {
    const std::string flag = !options.job.flags.empty()          ? options.job.flags.begin()->first
                             : !options.job.modelFlag.empty()    ? "--model"
                             : !options.job.hardwareFlag.empty() ? "--hardware"
                                                                 : "a placement flag";
    return badUsage(
        cat(flag, " beside the plan ", options.job.source,
            ": a plan has its model, hardware, goal and policy already: expected a model, or no such flag"));
  }
  absl::StatusOr<plan::Plan> plan = plan::readPlan(options.job.source);
  if (!plan.ok())
    return plan.status();
  plan->modelPath = pathFromPlan(plan->modelPath, options.job.source);
  outputs.addInput(plan->modelPath);
  RETURN_IF_ERROR(outputs.check());
  absl::StatusOr<Prompts> prompts = readPrompts(options, plan->model->vocab);
  if (!prompts.ok())
    return prompts.status();
  return Loaded{*std::move(plan), *std::move(prompts)};
}

// The representative iteration among those of the variants that `counts` says yes to; no steps where none was looked
// at.
Trace traceOf(const plan::Plan &plan, const core::Device &device, const IterationLooks &looks,
              const std::function<bool(uint32_t)> &counts) {
  std::string measured(device.kind()); // "cuda, CUPTI"
  if (const absl::StatusOr<std::string> by = cuda::measuredBy(device); by.ok())
    measured += ", " + *by;
  const IterationTimes::Representative found = looks.times().representative(looks.looks(), counts);
  if (found.look == nullptr)
    return {};
  Trace trace = makeTrace(plan, measured, found.look->variant, found.look->times);
  trace.iteration = found.look->iteration;
  trace.about = found.about;
  return trace;
}

RunFindings findOutAbout(const plan::Plan &plan, const core::Device &device, const IterationLooks &looks,
                         const RunReport &report, double linkBandwidth) {
  std::vector<PhaseInput> phases;
  for (const bool decode : {true, false}) {
    const auto counts = [&](uint32_t variant) {
      return (plan.schedules[plan.variants[variant].schedule].shape == plan::ShapeClass::Decode) == decode;
    };
    const Compared compared = decode ? report.times.decode() : report.times.prefill();
    if (compared.iterations == 0)
      continue;
    phases.push_back({decode ? "decode" : "prefill", compared.predictedMs, compared.measuredMs,
                      looks.times().mostOften(counts), traceOf(plan, device, looks, counts)});
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
  return outputs.write(options.timeline, options.timeline.ends_with(".svg") ? timelineSvg(chart)
                                         : options.timeline.ends_with(".json")
                                             ? timelineJson(chart)
                                             : cat(kTimelineTextMark, timelineText(chart, 120)));
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
  absl::StatusOr<Outputs> outputs = outputsOf(options);
  if (!outputs.ok())
    return outputs.status();
  core::DeviceOptions deviceOptions;
  if (!options.linkBandwidth.empty()) {
    absl::StatusOr<double> bandwidth = model::parseBandwidth(options.linkBandwidth, "command line: --link-bandwidth");
    if (!bandwidth.ok())
      return bandwidth.status();
    deviceOptions.linkBandwidth = *bandwidth;
  }
  absl::StatusOr<std::vector<int32_t>> stopIds = parseIds(options.stopIds, "command line: --stop-ids");
  if (!stopIds.ok())
    return stopIds.status();

  absl::StatusOr<Loaded> loaded = loadPlan(options, deviceOptions.linkBandwidth, *outputs);
  if (!loaded.ok())
    return loaded.status();
  const plan::Plan &plan = loaded->plan;
  if (options.placement && *options.placement >= plan.placements.size())
    return badNumber("--placement", *options.placement, cat("one of the plan's ", plan.placements.size(), ", from 0"));
  for (const int32_t id : *stopIds)
    if (id >= plan.model->vocab)
      return badNumber("--stop-ids", id,
                       cat("token ids from 0 to ", plan.model->vocab - 1, ", the model's vocabulary"));

  if (options.device.empty())
    device = makeDevice(defaultDevice(plan), options);
  if (!device.ok())
    return device.status();

  RETURN_IF_ERROR(core::TransitionPaths::check(plan));
  const uint32_t firstIn = options.placement.value_or(firstPlacement(plan, loaded->prompts));
  RunReport report{.planPath = options.job.source,
                   .device = options.device.empty() ? std::string((*device)->kind()) : options.device,
                   .times = RunTimes(plan, deviceOptions.linkBandwidth, firstIn)};
  uint32_t lastVariant = 0;
  serve::GenerateRequest request;
  request.prompts = std::move(loaded->prompts);
  request.maxNewTokens = options.maxNewTokens;
  request.sampling = {static_cast<float>(options.temperature), static_cast<float>(options.topP), options.seed};
  request.stopTokens = *std::move(stopIds);
  request.keepLogits = !options.logits.empty();
  request.separatePrefill = options.separatePrefill;
  std::optional<IterationLooks> looks; // once the runtime is there
  request.placementOf = [&](const plan::IterationShape &shape) {
    looks->beforeLaunch(shape);
    return options.placement || plan.choices.empty() ? looks->runtime().placement()
                                                     : plan::chosenPlacement(plan, shape).value_or(0);
  };
  std::optional<Progress> generating;
  request.onIteration = [&](const serve::IterationSeen &seen) {
    serve::IterationSeen unwatched = seen;
    unwatched.ns = looks->measured(seen.variant, seen.ns);
    if (seen.gapNs >= 0)
      unwatched.gapNs -= seen.ns - unwatched.ns;
    generating->note(cat("iteration ", looks->times().count()));
    lastVariant = seen.variant;
    report.times.add(unwatched);
  };
  RETURN_IF_ERROR(serve::checkRequest(plan, request));

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
  RETURN_IF_ERROR(setLanes(options, **device, deviceOptions));
  const bool drawn = !options.trace.empty() || !options.timeline.empty();
  deviceOptions.trace = drawn || (*device)->kind() == "host" || (*device)->kind() == "sim"; // where it costs nothing
  core::LoadOptions loadOptions;
  loadOptions.placement = firstIn;
  loadOptions.buildNs = static_cast<int64_t>(options.graphSeconds * 1e9);
  if (!options.graphMemory.empty()) {
    absl::StatusOr<uint64_t> bytes = model::parseBytes(options.graphMemory, "command line: --graph-memory");
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

  looks.emplace(*runtime, deviceOptions.trace, /*many=*/drawn);
  generating.emplace("generating");
  absl::StatusOr<serve::GenerateResult> result = serve::generate(*runtime, request);
  generating.reset();
  if (!result.ok())
    return result.status();
  RETURN_IF_ERROR(looks->finish());
  report.result = *std::move(result);
  report.transitions = runtime->transitionsRun();
  report.missingVariants = runtime->missingVariants();
  report.leftOutVariants = runtime->leftOutVariants();
  if (!options.logits.empty())
    if (absl::Status status = outputs->write(options.logits, logitsFile(report.result.logits, plan.model->vocab));
        !status.ok())
      return status;
  if (drawn) {
    const Trace trace = traceOf(plan, **device, *looks, [](uint32_t) { return true; });
    RETURN_IF_ERROR(writeTimelines(options, *outputs, plan, trace, deviceOptions.linkBandwidth));
  }
  report.findings = findOutAbout(plan, **device, *looks, report, deviceOptions.linkBandwidth);
  const uint32_t shown = options.placement.value_or(plan.variants[lastVariant].placement);
  show(options.json ? runJson(plan, shown, runtime->manifest(), report) : runText(plan, shown, report), options.json);
  return absl::OkStatus();
}

} // namespace headrace::tools
