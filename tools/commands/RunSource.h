// SPDX-License-Identifier: Apache-2.0
//
// What run and simulate run: a plan that was read, or a job that is to be compiled to one; and the prompts.
//
//   absl::StatusOr<RunSource> source = RunSource::open(options, outputs);    refuses what can be refused at once
//   absl::StatusOr<plan::Plan> plan = std::move(*source).makePlan();         takes long
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/plan/Plan.h"
#include "runtime/serve/engine/BatchEngine.h"
#include "tools/commands/Commands.h"
#include "tools/commands/Outputs.h"
#include "tools/commands/PromptIds.h"
#include "tools/commands/RunSetup.h"

namespace headrace::tools {

// A plan is any file that is neither a shape nor a job; whether it is one is for the plan's reader to say.
bool isPlanFile(const std::string &path);
// Of a job's flags beside a plan, the first.
absl::Status refuseJobFlags(const JobInput &input);
// The plan is made for the link that the run will have.
void setLink(double linkBandwidth, model::Hardware &hardware);
// Refuse a --placement that the plan does not have, or none that a job with this policy becomes.
absl::Status checkPlacement(uint32_t placement, const plan::Plan &plan);
absl::Status checkPlacement(uint32_t placement, const model::Policy &policy);

class RunSource {
public:
  // Adds what it reads to the inputs of `outputs`, and checks them.
  static absl::StatusOr<RunSource> open(const RunOptions &options, Outputs &outputs);

  const model::ModelSpec &model() const { return plan_ ? plan_->model : assembled_->job.model->spec; }
  model::DeviceKind hardware() const { return plan_ ? plan_->hardware.kind : assembled_->job.hardware->kind; }
  // Refuses a --placement that the plan does not have, or none that a job becomes.
  absl::Status checkPlacement(uint32_t placement) const;
  serve::RequestBounds bounds() const;
  // Of this object's model.
  WantedWeights weights() const { return plan_ ? weightsOf(*plan_) : weightsOf(assembled_->job); }
  Prompts takePrompts() { return std::move(prompts_); }
  absl::StatusOr<plan::Plan> makePlan() &&;

private:
  absl::Status readPlan(const RunOptions &options, Outputs &outputs);
  absl::Status readJob(const RunOptions &options, Outputs &outputs);

  std::optional<plan::Plan> plan_;        // either
  std::optional<AssembledJob> assembled_; // or
  Prompts prompts_;
};

} // namespace headrace::tools
