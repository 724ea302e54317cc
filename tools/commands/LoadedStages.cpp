// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/LoadedStages.h"

#include <limits>
#include <utility>

#include "runtime/base/FileIo.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/plan/StagesFile.h"
#include "runtime/plan/value/PlacementTable.h"
#include "runtime/serve/engine/EngineBounds.h"
#include "tools/commands/Devices.h"
#include "tools/commands/ModelPath.h"
#include "tools/commands/Progress.h"
#include "tools/commands/RunSetup.h"
#include "tools/commands/RunSource.h"

namespace headrace::tools {

using model::cat;

bool isStagesFile(const std::string &path) { return holdsKind(path, OutputKind::Stages); }

absl::StatusOr<std::optional<std::string>> onlyPlanOf(const std::string &path) {
  ASSIGN_OR_RETURN(text, model::readTextFile(path));
  ASSIGN_OR_RETURN(named, plan::parseStages(text, path));
  if (named.stages.size() > 1)
    return std::nullopt;
  RETURN_IF_ERROR(plan::readStages(path).status()); // that nothing is missing
  return named.stages.front().path;
}

absl::StatusOr<std::unique_ptr<LoadedStages>> LoadedStages::read(const JobInput &input,
                                                                 std::optional<uint32_t> placement, Outputs &outputs) {
  if (input.any())
    return refuseJobFlags(input);
  auto out = std::make_unique<LoadedStages>();
  out->source_ = input.source;
  out->folder_ = input.folder;
  out->placement_ = placement;
  ASSIGN_OR_RETURN(plans, plan::readStages(input.source));
  for (plan::StagePlan &stage : plans) {
    outputs.addInput(stage.path);
    RETURN_IF_ERROR(checkRunnable(stage.plan, placement));
    out->plans_.push_back(std::move(stage.plan));
    out->plans_.back().modelPath = pathFromPlan(out->plans_.back().modelPath, stage.path);
  }
  outputs.addInput(out->plan().modelPath);
  RETURN_IF_ERROR(outputs.check());
  out->whole_ = model::wholeOf(out->plan().model);
  return out;
}

std::string LoadedStages::layersText(size_t stage) const {
  const model::ModelSpec &spec = plans_[stage].model;
  return cat("layers ", spec.stage.first, " to ", spec.stage.first + spec.layers - 1);
}

absl::Status LoadedStages::open(const DeviceFlags &device, const WeightFlags &weights, const WrapGroup &wrap) {
  device_ = device.deviceOr(deviceFor(plan().hardware.kind));
  constexpr double kAny = std::numeric_limits<double>::infinity(); // the links alone limit
  const MakeGroup make = [&] { return makeDeviceGroup(device_, device, plans_.size(), {kAny, kAny, kAny}); };
  ASSIGN_OR_RETURN(group, wrap ? wrap(make) : make());
  group_ = std::move(group);
  if (!holdsData())
    return absl::OkStatus();
  WantedWeights wanted = weightsOf(plan(), folder_);
  wanted.model = &whole_;
  ASSIGN_OR_RETURN(opened, openWeights(weights, wanted));
  weights_ = std::move(opened);
  return absl::OkStatus();
}

absl::Status LoadedStages::load(const core::DeviceOptions &options, int64_t maxNumSeqs) {
  Progress progress("loading", Amount::Bytes);
  std::vector<core::Runtime *> runtimes;
  for (size_t i = 0; i < plans_.size(); ++i) {
    core::LoadOptions loading;
    loading.placement = placement_.value_or(plan::chosenPlacement(plans_[i], {1, 1, 1}).value_or(0));
    loading.progress = [&](uint64_t done, uint64_t total) { progress.update(done, total); };
    absl::StatusOr<std::unique_ptr<core::Runtime>> runtime =
        core::Runtime::load(plans_[i], group_->device(i), options, weights_.get(), loading);
    if (!runtime.ok())
      return absl::Status(runtime.status().code(), cat("stage ", i, ": ", runtime.status().message()));
    runtimes_.push_back(*std::move(runtime));
    runtimes.push_back(runtimes_.back().get());
  }
  weights_.reset();
  ASSIGN_OR_RETURN(stages,
                   core::Stages::make(runtimes, *group_, serve::microBatchesOf(plan(), plans_.size(), maxNumSeqs)));
  stages_ = std::move(stages);
  for (size_t i = 0; i < plans_.size() && placement_; ++i)
    RETURN_IF_ERROR(stages_->setPlacement(i, placement_));
  return absl::OkStatus();
}

} // namespace headrace::tools
