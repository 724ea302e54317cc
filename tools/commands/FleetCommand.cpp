// SPDX-License-Identifier: Apache-2.0
//
// fleet: several devices on one bus, requests that come and go, one coordinator.
//
//   FLEET.toml -> plans (read, or compiled from jobs) -> DeviceGroup -> Runtimes -> serve::Fleet -> report
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/job/FleetFile.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/StagesFile.h"
#include "runtime/serve/fleet/Fleet.h"
#include "tools/commands/Commands.h"
#include "tools/commands/Compiling.h"
#include "tools/commands/Devices.h"
#include "tools/commands/InputErrors.h"
#include "tools/commands/LoadedStages.h"
#include "tools/commands/ModelPath.h"
#include "tools/commands/Progress.h"
#include "tools/commands/PromptIds.h"
#include "tools/commands/RunSetup.h"
#include "tools/commands/Terminal.h"
#include "tools/report/FleetReport.h"

namespace headrace::tools {
namespace {

using model::cat;

// The same numbers on every machine, which the standard's distributions do not promise.
class Draw {
public:
  explicit Draw(uint64_t seed) : engine_(seed) {}
  int64_t in(const model::FleetRange &range) {
    return range.least + static_cast<int64_t>(engine_() % static_cast<uint64_t>(range.most - range.least + 1));
  }
  // Exponential of this mean.
  double gap(double mean) {
    const double u = static_cast<double>(engine_() >> 11) * 0x1p-53; // [0, 1)
    return -mean * std::log1p(-u);
  }

private:
  std::mt19937_64 engine_;
};

class FleetRun {
public:
  FleetRun(const FleetOptions &options, model::FleetSpec spec) : options_(options), spec_(std::move(spec)) {}

  absl::StatusOr<FleetReport> run() {
    RETURN_IF_ERROR(openSources());
    RETURN_IF_ERROR(makeRequests());
    RETURN_IF_ERROR(openGroup());
    RETURN_IF_ERROR(openAllWeights());
    RETURN_IF_ERROR(compilePlans());
    RETURN_IF_ERROR(loadDevices());
    serve::FleetOptions fleetOptions;
    fleetOptions.busBandwidth = spec_.busBandwidth;
    fleetOptions.busD2hBandwidth = spec_.busD2hBandwidth;
    fleetOptions.busDuplexBandwidth = spec_.busDuplexBandwidth;
    fleetOptions.objective = spec_.throughput ? serve::Maximise::Throughput : serve::Maximise::FreedMemory;
    fleetOptions.queue = spec_.queue;
    for (const model::FleetBusChange &change : spec_.changes)
      fleetOptions.busChanges.push_back({change.at.count(), change.bandwidth});
    report_.late.assign(report_.requests.size(), 0);
    Progress progress("serving requests");
    uint64_t ended = 0;
    fleetOptions.onIteration = [&](const serve::FleetIteration &iteration) {
      DeviceTally &tally = report_.devices[iteration.instance];
      ++tally.iterations;
      tally.changes += iteration.changed;
      ++tally.inPlacement[iteration.placement];
      tally.busyNs += iteration.visibleNs - iteration.launchNs;
      for (const serve::FleetGap &gap : iteration.gaps)
        if (static_cast<double>(gap.longestNs) > report_.requests[gap.request].tpotNs())
          ++report_.late[gap.request];
      for (const serve::FleetRows &rows : iteration.rows)
        ended = std::max<uint64_t>(ended, rows.request);
      progress.update(ended, report_.requests.size());
    };
    absl::StatusOr<std::unique_ptr<serve::Fleet>> fleet =
        serve::Fleet::create(*group_, instances_, std::move(fleetOptions));
    if (!fleet.ok())
      return fleet.status();
    std::vector<serve::FleetRequest> asked = report_.requests;
    if (!report_.coordinated) // whatever is asked for is admitted, and measured against what was asked for
      for (serve::FleetRequest &request : asked)
        request.ttft = request.tpot = kNoObjective;
    absl::StatusOr<serve::FleetResult> result = (*fleet)->run(asked);
    if (!result.ok())
      return result.status();
    report_.result = *std::move(result);
    finish();
    return std::move(report_);
  }

private:
  static constexpr std::chrono::hours kNoObjective{24 * 11};

  // What a device runs: a plan that was read, or a job that is to be compiled to one.
  struct Source {
    std::unique_ptr<plan::Plan> plan; // once it is read, or made
    std::optional<AssembledJob> assembled;
    std::shared_ptr<const model::WeightSource> weights; // null where the devices hold no data
    const model::ModelSpec &model() const { return plan ? plan->model : assembled->job.model->spec; }
  };

  // Reads all that is read, so that what can be refused is refused before the first of them compiles.
  absl::Status openSources() {
    report_.coordinated = options_.coordinate;
    for (const model::FleetDevice &device : spec_.devices) {
      for (const auto &[flag, value] :
           {std::pair("--policy", &options_.policy), {"--placements", &options_.placements}})
        if (!device.plan.empty() && !value->empty())
          return badFlag(flag, *value, cat("the plan of ", device.name, " has its placements already"),
                         "a job for every device");
      absl::StatusOr<Source> source = device.plan.empty() ? assemble(device) : readPlan(device);
      if (!source.ok())
        return about(device, source.status());
      if (source->plan)
        RETURN_IF_ERROR(checkUncoordinated(device, *source->plan));
      sources_.push_back(*std::move(source));
    }
    return absl::OkStatus();
  }

  static absl::Status about(const model::FleetDevice &device, const absl::Status &status) {
    return absl::Status(status.code(), cat(device.name, ": ", status.message()));
  }

  static absl::StatusOr<Source> readPlan(const model::FleetDevice &device) {
    ASSIGN_OR_RETURN(plan, plan::readWholePlan(device.plan));
    plan.modelPath = pathFromPlan(plan.modelPath, device.plan);
    Source source;
    source.plan = std::make_unique<plan::Plan>(std::move(plan));
    return source;
  }

  // An earlier device with the same job or plan as the d-th, whose files are open already; null: there is none.
  const Source *twinOf(size_t d) const {
    const model::FleetDevice &device = spec_.devices[d];
    for (size_t earlier = 0; earlier < std::min(d, sources_.size()); ++earlier)
      if (spec_.devices[earlier].job == device.job && spec_.devices[earlier].plan == device.plan)
        return &sources_[earlier];
    return nullptr;
  }

  absl::StatusOr<Source> assemble(const model::FleetDevice &device) const {
    Source source;
    if (const Source *twin = twinOf(sources_.size())) {
      source.assembled = twin->assembled;
    } else {
      ASSIGN_OR_RETURN(assembled, assembledFrom(device));
      source.assembled = std::move(assembled);
    }
    return source;
  }

  absl::StatusOr<AssembledJob> assembledFrom(const model::FleetDevice &device) const {
    JobInput input;
    input.source = device.job;
    input.folder = options_.folder;
    input.device = options_.device;
    if (!options_.policy.empty())
      input.flags["--policy"] = options_.policy;
    if (!options_.placements.empty())
      input.flags["--placements"] = options_.placements;
    return assembleJob(input);
  }

  absl::Status checkUncoordinated(const model::FleetDevice &device, const plan::Plan &plan) const {
    if (options_.coordinate || plan.placements.size() == 1)
      return absl::OkStatus();
    return badUsage(cat("--no-coordinator: the plan of ", device.name, " has ", plan.placements.size(),
                        " placements and nobody chooses between them: expected one each, as --placements 1 makes "
                        "them"));
  }

  absl::Status openGroup() {
    ASSIGN_OR_RETURN(group, makeDeviceGroup(options_.device, {.threads = options_.threads}, sources_.size(),
                                            {spec_.busBandwidth, spec_.busD2hBandwidth, spec_.busDuplexBandwidth}));
    group_ = std::move(group);
    report_.device = options_.device;
    return absl::OkStatus();
  }

  absl::Status openAllWeights() {
    WeightFlags flags;
    flags.synthetic = options_.syntheticWeights;
    for (size_t d = 0; d < sources_.size(); ++d) {
      if (!group_->device(d).holdsData())
        continue;
      Source &source = sources_[d];
      if (const Source *twin = twinOf(d)) {
        source.weights = twin->weights;
        continue;
      }
      ASSIGN_OR_RETURN(weights, openWeights(flags, source.plan ? weightsOf(*source.plan, options_.folder)
                                                               : weightsOf(source.assembled->job)));
      source.weights = std::move(weights);
    }
    return absl::OkStatus();
  }

  // The request that a TTFT is of, where the job does not say: the longest prompt that comes and fits. A device that
  // only decodes reads none.
  void setPrompt(model::FleetRole role, const std::string &model, model::Goal &goal) const {
    if (role == model::FleetRole::Decode) {
      goal.inputLen = 1;
    } else if (!goal.inputLen) {
      int64_t longest = 0;
      for (const model::FleetLoad &load : spec_.loads)
        if (load.model == model)
          longest = std::max(longest, load.inputLength.most);
      if (longest > 0 && longest <= goal.promptLength(goal.context.value_or(longest + goal.outputLen.value_or(1))))
        goal.inputLen = longest;
    }
  }

  absl::Status compilePlans() {
    Progress progress("plans");
    for (size_t d = 0; d < sources_.size(); ++d) {
      progress.update(d, sources_.size());
      Source &source = sources_[d];
      if (source.plan)
        continue;
      model::Job job = source.assembled->job;
      if (spec_.devices[d].role != model::FleetRole::Both)
        job.goal.instances = model::Instances::Apart;
      if (job.policy.name == "auto" && job.goal.hasSlo() && !job.policy.statesPlacement())
        job.policy.name = "headrace"; // whose placements a coordinator changes between
      if (job.goal.ttft)
        setPrompt(spec_.devices[d].role, source.model().name, job.goal);
      absl::StatusOr<plan::Plan> plan = compileJob(job);
      if (!plan.ok())
        return about(spec_.devices[d], aboutInput(source.assembled->input, plan.status()));
      RETURN_IF_ERROR(checkUncoordinated(spec_.devices[d], *plan));
      source.plan = std::make_unique<plan::Plan>(*std::move(plan));
    }
    return absl::OkStatus();
  }

  absl::Status makeRequests() {
    for (size_t l = 0; l < spec_.loads.size(); ++l) {
      const model::FleetLoad &load = spec_.loads[l];
      const auto source =
          std::find_if(sources_.begin(), sources_.end(), [&](const Source &s) { return s.model().name == load.model; });
      if (source == sources_.end())
        return absl::InvalidArgumentError(cat(options_.file, ": requests.model = \"", model::escaped(load.model, 80),
                                              "\": expected the model of one of the devices"));
      Draw draw(load.seed * 0x9e3779b97f4a7c15u + l);
      double at = static_cast<double>(load.start.count());
      for (int64_t i = 0; i < load.count; ++i) {
        serve::FleetRequest request;
        request.model = load.model;
        const int64_t batch = draw.in(load.batch), input = draw.in(load.inputLength);
        request.maxNewTokens = draw.in(load.outputLength);
        request.prompts = randomPrompts(batch, input, source->model().vocab, load.seed + static_cast<uint64_t>(i));
        request.sampling.seed = load.seed + static_cast<uint64_t>(i);
        request.ttft = load.ttft;
        request.tpot = load.tpot;
        request.arrivalNs = static_cast<int64_t>(at);
        report_.requests.push_back(std::move(request));
        const auto every = static_cast<double>(load.every.count());
        at += load.random ? draw.gap(every) : every;
      }
    }
    std::stable_sort(report_.requests.begin(), report_.requests.end(),
                     [](const auto &a, const auto &b) { return a.arrivalNs < b.arrivalNs; });
    return absl::OkStatus();
  }

  absl::Status loadDevices() {
    Progress progress("loading devices");
    for (size_t d = 0; d < sources_.size(); ++d) {
      progress.update(d, sources_.size());
      const model::FleetDevice &device = spec_.devices[d];
      const plan::Plan &plan = *sources_[d].plan;
      core::DeviceOptions deviceOptions;
      deviceOptions.linkBandwidth = device.link;
      absl::StatusOr<std::unique_ptr<core::Runtime>> runtime =
          core::Runtime::load(plan, group_->device(d), deviceOptions, sources_[d].weights.get(), {});
      if (!runtime.ok())
        return about(device, runtime.status());
      sources_[d].weights.reset();
      runtimes_.push_back(*std::move(runtime));
      serve::InstanceSpec instance;
      instance.name = device.name;
      instance.role = device.role == model::FleetRole::Prefill  ? serve::Role::Prefill
                      : device.role == model::FleetRole::Decode ? serve::Role::Decode
                                                                : serve::Role::Both;
      instance.runtime = runtimes_.back().get();
      instance.linkBandwidth = device.link;
      instances_.push_back(std::move(instance));
      DeviceTally tally;
      tally.name = device.name;
      tally.model = plan.model->name;
      tally.inPlacement.assign(plan.placements.size(), 0);
      for (const plan::Placement &placement : plan.placements)
        tally.placements.push_back(placement.name);
      report_.devices.push_back(std::move(tally));
    }
    return absl::OkStatus();
  }

  void finish() {
    for (size_t r = 0; r < report_.requests.size(); ++r) {
      const serve::RequestOutcome &got = report_.result.requests[r];
      for (const std::vector<int32_t> &tokens : got.tokens)
        report_.tokens += tokens.size();
      report_.held +=
          got.status.ok() && report_.late[r] == 0 && static_cast<double>(got.ttftNs()) <= report_.requests[r].ttftNs();
    }
    report_.seconds = static_cast<double>(report_.result.endNs - report_.result.startNs) * 1e-9;
  }

  const FleetOptions &options_;
  const model::FleetSpec spec_;
  FleetReport report_;
  std::vector<Source> sources_; // of each device
  std::unique_ptr<core::DeviceGroup> group_;
  std::vector<std::unique_ptr<core::Runtime>> runtimes_; // before the group
  std::vector<serve::InstanceSpec> instances_;
};

} // namespace

absl::Status fleetCommand(const FleetOptions &options) {
  RETURN_IF_ERROR(checkDeviceGroup(options.device));
  if (isStagesFile(options.file))
    return absl::InvalidArgumentError(
        cat(options.file, ": a file of stages: expected a fleet's file: each of its devices has a whole model"));
  absl::StatusOr<model::FleetSpec> spec = model::readFleet(options.file);
  if (!spec.ok())
    return spec.status();
  absl::StatusOr<FleetReport> report = FleetRun(options, *std::move(spec)).run();
  if (!report.ok())
    return report.status();
  show(options.json ? report->json() : report->text(options.each, options.all), options.json);
  for (size_t r = 0; r < report->result.requests.size(); ++r) // wrong numbers are no answer, whoever else was served
    if (const absl::Status &status = report->result.requests[r].status; absl::IsAborted(status))
      return absl::Status(status.code(), cat("request ", r, ": ", status.message()));
  if (std::none_of(report->result.requests.begin(), report->result.requests.end(),
                   [](const serve::RequestOutcome &outcome) { return outcome.status.ok(); }))
    return withReport(absl::FailedPreconditionError("fleet: no request was served, for the reasons above"));
  return absl::OkStatus();
}

} // namespace headrace::tools
