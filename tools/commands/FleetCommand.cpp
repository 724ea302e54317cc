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
#include "runtime/plan/PlanFile.h"
#include "runtime/serve/fleet/Fleet.h"
#include "tools/commands/Commands.h"
#include "tools/commands/Compiling.h"
#include "tools/commands/Devices.h"
#include "tools/commands/InputErrors.h"
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
    for (absl::Status status : {openPlans(), makeRequests(), openDevices()})
      if (!status.ok())
        return status;
    serve::FleetOptions fleetOptions;
    fleetOptions.busBandwidth = spec_.busBandwidth;
    fleetOptions.objective = spec_.throughput ? serve::Objective::Throughput : serve::Objective::FreedMemory;
    fleetOptions.queue = spec_.queue;
    for (const model::FleetBusChange &change : spec_.changes)
      fleetOptions.busChanges.push_back({static_cast<int64_t>(change.atNs), change.bandwidth});
    report_.late.assign(report_.requests.size(), 0);
    Progress progress("serving requests");
    uint64_t ended = 0;
    fleetOptions.onIteration = [&](const serve::FleetIteration &iteration) {
      DeviceTally &tally = report_.devices[iteration.instance];
      ++tally.iterations;
      tally.changes += iteration.changed;
      ++tally.inPlacement[iteration.placement];
      tally.busyNs += iteration.visibleNs - iteration.launchNs;
      if (static_cast<double>(iteration.longestGapNs) > report_.requests[iteration.request].tpotNs)
        ++report_.late[iteration.request];
      progress.update(ended = std::max<uint64_t>(ended, iteration.request), report_.requests.size());
    };
    absl::StatusOr<std::unique_ptr<serve::Fleet>> fleet =
        serve::Fleet::create(*group_, instances_, std::move(fleetOptions));
    if (!fleet.ok())
      return fleet.status();
    std::vector<serve::FleetRequest> asked = report_.requests;
    if (!report_.coordinated) // whatever is asked for is admitted, and measured against what was asked for
      for (serve::FleetRequest &request : asked)
        request.ttftNs = request.tpotNs = kNoObjectiveNs;
    absl::StatusOr<serve::FleetResult> result = (*fleet)->run(asked);
    if (!result.ok())
      return result.status();
    report_.result = *std::move(result);
    finish();
    return std::move(report_);
  }

private:
  static constexpr double kNoObjectiveNs = 1e15; // 11 days

  absl::Status openPlans() {
    Progress progress("plans");
    for (const model::FleetDevice &device : spec_.devices) {
      for (const auto &[flag, value] :
           {std::pair("--policy", &options_.policy), {"--placements", &options_.placements}})
        if (!device.plan.empty() && !value->empty())
          return badFlag(flag, *value, cat("the plan of ", device.name, " has its placements already"),
                         "a job for every device");
      progress.update(plans_.size(), spec_.devices.size());
      absl::StatusOr<plan::Plan> plan = device.plan.empty() ? compiled(device) : plan::readPlan(device.plan);
      if (!plan.ok())
        return absl::Status(plan.status().code(), cat(device.name, ": ", plan.status().message()));
      if (!device.plan.empty())
        plan->modelPath = pathFromPlan(plan->modelPath, device.plan);
      plans_.push_back(std::make_unique<plan::Plan>(*std::move(plan)));
    }
    report_.coordinated = options_.coordinate;
    for (size_t d = 0; d < plans_.size() && !options_.coordinate; ++d)
      if (plans_[d]->placements.size() > 1)
        return badUsage(
            cat("--no-coordinator: the plan of ", spec_.devices[d].name, " has ", plans_[d]->placements.size(),
                " placements and nobody chooses between them: expected one each, as --placements 1 makes them"));
    return absl::OkStatus();
  }

  absl::StatusOr<plan::Plan> compiled(const model::FleetDevice &device) const {
    JobInput input;
    input.source = device.job;
    if (!options_.policy.empty())
      input.flags["--policy"] = options_.policy;
    if (!options_.placements.empty())
      input.flags["--placements"] = options_.placements;
    absl::StatusOr<AssembledJob> assembled = assembleJob(input);
    if (!assembled.ok())
      return assembled.status();
    if (device.role != model::FleetRole::Both)
      assembled->job.goal.instances = model::Instances::Apart;
    absl::StatusOr<plan::Plan> plan = compileJob(assembled->job);
    if (!plan.ok())
      return aboutInput(assembled->input, plan.status());
    return plan;
  }

  absl::Status makeRequests() {
    for (size_t l = 0; l < spec_.loads.size(); ++l) {
      const model::FleetLoad &load = spec_.loads[l];
      const auto plan =
          std::find_if(plans_.begin(), plans_.end(), [&](const auto &p) { return p->model->name == load.model; });
      if (plan == plans_.end())
        return absl::InvalidArgumentError(cat(options_.file, ": requests.model = \"", model::escaped(load.model, 80),
                                              "\": expected the model of one of the devices"));
      Draw draw(load.seed * 0x9e3779b97f4a7c15u + l);
      double at = static_cast<double>(load.startNs);
      for (int64_t i = 0; i < load.count; ++i) {
        serve::FleetRequest request;
        request.model = load.model;
        const int64_t batch = draw.in(load.batch), input = draw.in(load.inputLength);
        request.maxNewTokens = draw.in(load.outputLength);
        request.prompts = randomPrompts(batch, input, (*plan)->model->vocab, load.seed + static_cast<uint64_t>(i));
        request.sampling.seed = load.seed + static_cast<uint64_t>(i);
        request.ttftNs = static_cast<double>(load.ttftNs);
        request.tpotNs = static_cast<double>(load.tpotNs);
        request.arrivalNs = static_cast<int64_t>(at);
        report_.requests.push_back(std::move(request));
        const auto every = static_cast<double>(load.everyNs);
        at += load.random ? draw.gap(every) : every;
      }
    }
    std::stable_sort(report_.requests.begin(), report_.requests.end(),
                     [](const auto &a, const auto &b) { return a.arrivalNs < b.arrivalNs; });
    return absl::OkStatus();
  }

  absl::Status openDevices() {
    absl::StatusOr<std::unique_ptr<core::DeviceGroup>> group =
        makeDeviceGroup(options_.device, plans_.size(), spec_.busBandwidth);
    if (!group.ok())
      return group.status();
    group_ = *std::move(group);
    report_.device = options_.device;
    Progress progress("loading devices");
    for (size_t d = 0; d < plans_.size(); ++d) {
      progress.update(d, plans_.size());
      const model::FleetDevice &device = spec_.devices[d];
      const plan::Plan &plan = *plans_[d];
      std::unique_ptr<model::WeightSource> weights;
      if (group_->device(d).holdsData()) {
        RunOptions source;
        source.syntheticWeights = options_.syntheticWeights;
        absl::StatusOr<std::unique_ptr<model::WeightSource>> opened = openWeights(source, plan);
        if (!opened.ok())
          return opened.status();
        weights = *std::move(opened);
      }
      core::DeviceOptions deviceOptions;
      deviceOptions.linkBandwidth = device.link;
      absl::StatusOr<std::unique_ptr<core::Runtime>> runtime =
          core::Runtime::load(plan, group_->device(d), deviceOptions, weights.get(), {});
      if (!runtime.ok())
        return absl::Status(runtime.status().code(), cat(device.name, ": ", runtime.status().message()));
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
          got.status.ok() && report_.late[r] == 0 && static_cast<double>(got.ttftNs()) <= report_.requests[r].ttftNs;
    }
    report_.seconds = static_cast<double>(report_.result.endNs - report_.result.startNs) * 1e-9;
  }

  const FleetOptions &options_;
  const model::FleetSpec spec_;
  FleetReport report_;
  std::vector<std::unique_ptr<plan::Plan>> plans_;
  std::unique_ptr<core::DeviceGroup> group_;
  std::vector<std::unique_ptr<core::Runtime>> runtimes_; // before the group
  std::vector<serve::InstanceSpec> instances_;
};

} // namespace

absl::Status fleetCommand(const FleetOptions &options) {
  RETURN_IF_ERROR(checkDeviceGroup(options.device));
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
  return absl::OkStatus();
}

} // namespace headrace::tools
