// SPDX-License-Identifier: Apache-2.0
//
// A model's stages, from the file that names their plans (plan/StagesFile.h): read, then loaded onto a device each.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/core/Stages.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/value/Plan.h"
#include "tools/commands/Commands.h"
#include "tools/commands/Outputs.h"

namespace headrace::tools {

// By what stands in it.
bool isStagesFile(const std::string &path);
// Where such a file names one plan, of a whole model: that.
absl::StatusOr<std::optional<std::string>> onlyPlanOf(const std::string &path);

class LoadedStages {
public:
  // Refuses flags of a job, and a placement that a plan has not, in which all run then; adds what it reads to the
  // inputs of `outputs`, and checks them.
  static absl::StatusOr<std::unique_ptr<LoadedStages>> read(const JobInput &input, std::optional<uint32_t> placement,
                                                            Outputs &outputs);

  const std::vector<plan::Plan> &plans() const { return plans_; }
  const plan::Plan &plan() const { return plans_.front(); } // whose bounds are all stages'
  const model::ModelSpec &whole() const { return whole_; }
  // "layers 0 to 40".
  std::string layersText(size_t stage) const;

  // Opens the devices, and the weights where these hold data: everything that can be refused before they are loaded.
  // `wrap` may put something around the group that is made.
  using MakeGroup = std::function<absl::StatusOr<std::unique_ptr<core::DeviceGroup>>()>;
  using WrapGroup = std::function<absl::StatusOr<std::unique_ptr<core::DeviceGroup>>(const MakeGroup &make)>;
  absl::Status open(const DeviceFlags &device, const WeightFlags &weights, const WrapGroup &wrap = nullptr);
  const std::string &device() const { return device_; } // "host", "sim"
  bool holdsData() const { return group_->device(0).holdsData(); }
  core::DeviceGroup &group() { return *group_; }

  // With as many micro-batches as stages, and no more than sequences. Shows how far it is.
  absl::Status load(const core::DeviceOptions &options, int64_t maxNumSeqs);
  core::Stages &stages() { return *stages_; }

private:
  std::string source_, device_;
  std::optional<uint32_t> placement_;
  model::FolderOptions folder_;
  std::vector<plan::Plan> plans_;
  model::ModelSpec whole_;
  std::unique_ptr<model::WeightSource> weights_; // of the whole model, until they are loaded
  std::unique_ptr<core::DeviceGroup> group_;
  std::vector<std::unique_ptr<core::Runtime>> runtimes_;
  std::unique_ptr<core::Stages> stages_;
};

} // namespace headrace::tools
