// SPDX-License-Identifier: Apache-2.0
//
// Policies side by side on one machine in one run: each compiled for the same goal, then all of them driven in turn,
// round by round, so that what disturbs the machine disturbs all.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include "absl/strings/str_split.h"
#include "runtime/core/Runtime.h"
#include "runtime/model/Text.h"
#include "runtime/serve/BatchEngine.h"
#include "tools/BenchReport.h"
#include "tools/Commands.h"
#include "tools/Compiling.h"
#include "tools/Progress.h"
#include "tools/PromptIds.h"
#include "tools/RunSetup.h"
#include "tools/WriteFile.h"

namespace headrace::tools {
namespace {

using model::cat;

absl::Status bad(const std::string &message) { return absl::InvalidArgumentError(cat("command line: ", message)); }

// What is measured of one policy under one load, over all rounds.
struct Samples {
  std::vector<int64_t> ttftNs, tpotNs;
  int64_t totalNs = 0, stallNs = 0;
  uint64_t tokens = 0;
};

// One policy's plan on a device of its own.
struct Contender {
  BenchRow row;
  plan::Plan plan;
  std::unique_ptr<core::Device> device;
  std::unique_ptr<core::Runtime> runtime;
  Samples samples;
  uint32_t lastPrefill = plan::kNone, lastDecode = plan::kNone; // variants
};

absl::StatusOr<std::vector<int64_t>> parseBatches(const std::string &text) {
  std::vector<int64_t> out;
  for (const auto part : absl::StrSplit(text, ',')) {
    int64_t batch = 0;
    if (!absl::SimpleAtoi(part, &batch) || batch < 1 || batch > (int64_t{1} << 20))
      return bad(cat("--batches ", model::escaped(text, 80), ": expected numbers of 1 or more, such as 1,8,32"));
    out.push_back(batch);
  }
  return out;
}

class Bench {
public:
  Bench(const BenchOptions &options, model::Job job) : options_(options), job_(std::move(job)) {}

  absl::StatusOr<BenchReport> run(const std::vector<std::string> &policies, const std::vector<int64_t> &batches) {
    report_.model = job_.model->spec.name;
    report_.hardware = job_.hardware->name;
    report_.inputLength = options_.inputLength;
    report_.outputLength = options_.outputLength;
    report_.rounds = options_.rounds;
    report_.deviceMemory = job_.goal.deviceMemory.value_or(job_.hardware->memoryBytes);
    for (const int64_t batch : batches)
      if (absl::Status status = load(policies, batch); !status.ok())
        return status;
    return std::move(report_);
  }

private:
  absl::Status load(const std::vector<std::string> &policies, int64_t batch) {
    std::vector<std::unique_ptr<Contender>> contenders;
    for (const std::string &policy : policies) {
      absl::StatusOr<std::unique_ptr<Contender>> contender = contend(policy, batch);
      if (!contender.ok())
        return contender.status();
      contenders.push_back(*std::move(contender));
    }
    serve::GenerateRequest request;
    request.prompts = randomPrompts(batch, options_.inputLength, job_.model->spec.vocab, options_.run.seed);
    request.maxNewTokens = options_.outputLength;
    request.separatePrefill = true;
    Progress progress(cat("batch ", batch), Amount::Count);
    // One round that does not count: caches, page faults, clock rates.
    for (int64_t round = 0; round <= options_.rounds; ++round)
      for (size_t c = 0; c < contenders.size(); ++c) {
        progress.update(static_cast<uint64_t>(round) * contenders.size() + c,
                        static_cast<uint64_t>(options_.rounds + 1) * contenders.size());
        if (contenders[c]->row.refused.empty())
          if (absl::Status status = generateOnce(request, /*counts=*/round > 0, *contenders[c]); !status.ok())
            return status;
      }
    for (std::unique_ptr<Contender> &contender : contenders) {
      if (contender->row.refused.empty())
        finish(*contender);
      report_.rows.push_back(contender->row);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<Contender>> contend(const std::string &policy, int64_t batch) {
    auto contender = std::make_unique<Contender>();
    contender->row.policy = policy;
    contender->row.batch = batch;
    model::Job job = job_;
    job.policy.name = policy;
    job.goal.batch = batch;
    job.goal.context = options_.inputLength + options_.outputLength;
    if (absl::Status status = model::validate(job, "command line"); !status.ok())
      return status;
    absl::StatusOr<plan::Plan> plan = compileJob(job);
    if (absl::IsResourceExhausted(plan.status())) {
      contender->row.refused = std::string(plan.status().message());
      return contender;
    }
    if (!plan.ok())
      return plan.status();
    contender->plan = *std::move(plan);
    absl::StatusOr<std::unique_ptr<core::Device>> device =
        makeDevice(options_.run.device.empty() ? defaultDevice(contender->plan) : options_.run.device, options_.run);
    if (!device.ok())
      return device.status();
    contender->device = *std::move(device);
    report_.device = std::string(contender->device->kind());
    std::unique_ptr<model::WeightSource> weights;
    if (contender->device->holdsData()) {
      absl::StatusOr<std::unique_ptr<model::WeightSource>> opened = openWeights(options_.run, contender->plan);
      if (!opened.ok())
        return opened.status();
      weights = *std::move(opened);
    }
    core::DeviceOptions deviceOptions;
    deviceOptions.trace = true;
    if (options_.run.pin)
      pinLanes(deviceOptions);
    absl::StatusOr<std::unique_ptr<core::Runtime>> runtime =
        core::Runtime::load(contender->plan, *contender->device, deviceOptions, weights.get(), {});
    if (!runtime.ok())
      return runtime.status();
    contender->runtime = *std::move(runtime);
    return contender;
  }

  absl::Status generateOnce(const serve::GenerateRequest &load, bool counts, Contender &contender) {
    serve::GenerateRequest request = load;
    Samples &samples = contender.samples;
    int64_t total = 0;
    std::vector<std::pair<uint32_t, int64_t>> iterations; // variant, ns
    request.onIteration = [&](uint32_t variant, int64_t ns) {
      total += ns;
      iterations.emplace_back(variant, ns);
    };
    absl::StatusOr<serve::GenerateResult> result = serve::generate(*contender.runtime, request);
    if (!result.ok())
      return result.status();
    if (!counts)
      return absl::OkStatus();
    // Prompts come first, in iterations of their own.
    for (size_t i = result->prefillIterations; i < iterations.size(); ++i) {
      contender.lastDecode = iterations[i].first;
      samples.tpotNs.push_back(iterations[i].second);
    }
    contender.lastPrefill = iterations.front().first;
    samples.totalNs += total;
    samples.stallNs += result->counters.stallNs;
    samples.ttftNs.insert(samples.ttftNs.end(), result->firstTokenNs.begin(), result->firstTokenNs.end());
    for (const std::vector<int32_t> &tokens : result->tokens)
      samples.tokens += tokens.size();
    return absl::OkStatus();
  }

  static double within(const std::vector<int64_t> &samplesNs, double sloNs) {
    if (sloNs <= 0 || samplesNs.empty())
      return 1;
    const auto held =
        std::count_if(samplesNs.begin(), samplesNs.end(), [&](int64_t ns) { return static_cast<double>(ns) <= sloNs; });
    return static_cast<double>(held) / static_cast<double>(samplesNs.size());
  }

  void finish(Contender &contender) {
    BenchRow &row = contender.row;
    const Samples &samples = contender.samples;
    const plan::Plan &plan = contender.plan;
    row.ttft = spreadOf(samples.ttftNs);
    row.tpot = spreadOf(samples.tpotNs);
    row.ttftHeld = within(samples.ttftNs, row.ttftSloNs);
    row.tpotHeld = within(samples.tpotNs, row.tpotSloNs);
    if (samples.totalNs > 0) {
      row.tokensPerSecond = static_cast<double>(samples.tokens) / (static_cast<double>(samples.totalNs) * 1e-9);
      row.stallShare = static_cast<double>(samples.stallNs) / static_cast<double>(samples.totalNs);
    }
    row.deviceBytes = plan.arenaBytes;
    const uint32_t variant = contender.lastDecode; // at least two tokens a prompt, so there was one
    const uint32_t placement = plan.variants[variant].placement;
    row.decodePlacement = plan.placements[placement].name;
    row.decodeLayers = plan.placements[placement].offloadedLayers;
    const plan::Placement &prefill = plan.placements[plan.variants[contender.lastPrefill].placement];
    row.prefillPlacement = prefill.name;
    row.prefillLayers = prefill.offloadedLayers;
    row.hostBytes = offloadedBytes(plan, placement);
    row.freedBytes = freedBytes(plan, placement);
    row.maxTokens = maxTokens(plan, report_.deviceMemory);
    const plan::Schedule &schedule = plan.schedules[plan.variants[variant].schedule];
    row.predictedTpotNs = static_cast<double>(plan.variants[variant].predictedNs);
    row.movedBytes = plan::linkBytes(schedule).h2d;
    busyShares(schedule, contender.device->lastTimes(), row);
  }

  // Of the last iteration: the time in which each lane had a step running.
  static void busyShares(const plan::Schedule &schedule, absl::Span<const core::StepTime> times, BenchRow &row) {
    if (times.size() != schedule.steps.size() || times.empty())
      return;
    int64_t begin = times[0].startNs, end = times[0].endNs, compute = 0, link = 0;
    for (size_t i = 0; i < times.size(); ++i) {
      begin = std::min(begin, times[i].startNs);
      end = std::max(end, times[i].endNs);
      const int64_t ns = times[i].endNs - times[i].startNs;
      if (schedule.steps[i].lane == plan::Lane::Compute)
        compute += ns;
      else if (schedule.steps[i].lane == plan::Lane::H2D)
        link += ns;
    }
    const auto whole = static_cast<double>(std::max<int64_t>(end - begin, 1));
    row.computeBusy = static_cast<double>(compute) / whole;
    row.linkBusy = static_cast<double>(link) / whole;
  }

  const BenchOptions &options_;
  const model::Job job_;
  BenchReport report_;
};

} // namespace

absl::Status benchCommand(const BenchOptions &options) {
  if (options.inputLength < 1 || options.outputLength < 2)
    return bad(cat("--input-len ", options.inputLength, " --output-len ", options.outputLength,
                   ": expected 1 or more tokens in, 2 or more out"));
  if (options.rounds < 1)
    return bad(cat("--rounds ", options.rounds, ": expected 1 or more"));
  absl::StatusOr<std::vector<int64_t>> batches = parseBatches(options.batches);
  if (!batches.ok())
    return batches.status();
  std::vector<std::string> policies = absl::StrSplit(options.policies, ',', absl::SkipEmpty());
  if (policies.empty())
    return bad("--policies: expected names, such as none,select-n,headrace");
  if (!options.run.device.empty())
    if (absl::Status status = makeDevice(options.run.device, options.run).status(); !status.ok())
      return status;
  if (!options.svg.empty())
    if (absl::Status status = checkWritable(options.svg); !status.ok())
      return status;
  absl::StatusOr<AssembledJob> assembled = assembleJob(options.run.job);
  if (!assembled.ok())
    return assembled.status();
  for (const std::string &note : assembled->notes)
    std::fprintf(stderr, "headrace: %s\n", note.c_str());
  absl::StatusOr<BenchReport> report = Bench(options, std::move(assembled->job)).run(policies, *batches);
  if (!report.ok())
    return report.status();
  if (!options.svg.empty())
    if (absl::Status status = writeFile(options.svg, report->svg()); !status.ok())
      return status;
  std::fputs((options.run.json ? report->json() : report->text()).c_str(), stdout);
  return absl::OkStatus();
}

} // namespace headrace::tools
