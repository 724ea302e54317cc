// SPDX-License-Identifier: Apache-2.0
//
// What run, simulate and bench serve run: a plan that was read, or a job that is to be compiled to one.
//
//   absl::StatusOr<RunSource> source = RunSource::open(options.job, 0, false, outputs);    refuses what can be refused
//   at once source->fit(batch, context);                                                    what the job leaves open
//   absl::StatusOr<plan::Plan> plan = std::move(*source).makePlan();         takes long
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/plan/value/Plan.h"
#include "runtime/serve/engine/BatchEngine.h"
#include "tools/commands/Commands.h"
#include "tools/commands/Outputs.h"
#include "tools/commands/RunSetup.h"

namespace headrace::tools {

// A plan is any file that is neither a shape nor a job, nor by its ending a model's and none by its content; whether it
// is one is for the plan's reader to say.
bool isPlanFile(const std::string &path);
// Of a job's flags beside a plan, the first.
absl::Status refuseJobFlags(const JobInput &input);
// The plan is made for the link that the run will have.
void setLink(double linkBandwidth, model::Hardware &hardware);
// Refuse a --placement that the plan does not have, or none that a job with this policy becomes.
absl::Status checkPlacement(uint32_t placement, const plan::Plan &plan);
absl::Status checkPlacement(uint32_t placement, const model::Policy &policy);
// Of a plan that is to run: that it has the placement, where one is asked for, and a way between all that it has.
absl::Status checkRunnable(const plan::Plan &plan, std::optional<uint32_t> placement);

class RunSource {
public:
  // Adds what it reads to the inputs of `outputs`, and checks them. `linkBandwidth`: that of the run, 0: the
  // hardware's.
  static absl::StatusOr<RunSource> open(const JobInput &input, double linkBandwidth, bool quiet, Outputs &outputs);

  // Null: a plan was read.
  AssembledJob *job() { return assembled_ ? &*assembled_ : nullptr; }
  const model::Goal &goal() const { return plan_ ? plan_->goal : assembled_->job.goal; }
  const model::ModelSpec &model() const { return plan_ ? plan_->model : assembled_->job.model->spec; }
  // That runs it where --device does not say.
  std::string device() const { return plan_ ? deviceFor(plan_->hardware.kind) : assembled_->device; }
  // Of the model, or a shape's file; empty: it was not said where.
  const std::string &folder() const { return plan_ ? plan_->modelPath : assembled_->job.model->path; }
  // Tokens of a prompt with its new ones, at most; of a job that does not say, the model's positions.
  int64_t mostContext() const;
  // What the job leaves open: so many seats, a context of so many tokens, and what a TTFT is of, the longest prompt;
  // 0: the longest that the context leaves. `output`: tokens of each output, where all prompts are as long as that one:
  // such requests are then what the plan is for; 0: lengths are not stated.
  void fit(int64_t batch, int64_t context, int64_t longestPrompt = 0, int64_t output = 0);
  // Refuses a --placement that the plan does not have, or none that a job becomes.
  absl::Status checkPlacement(uint32_t placement) const;
  // The same of what a scheduler is asked for, as far as it is known before the plan is made.
  absl::Status checkScheduler(const SchedulerFlags &flags) const;
  // The flags that `headrace compile` would make the same plan with; empty: a plan was read.
  std::string askedFlags() const;
  serve::RequestBounds bounds() const;
  int64_t miniBatches() const { return plan_ ? plan_->miniBatches : assembled_->job.goal.miniBatches; }
  // Of this object's model.
  WantedWeights weights() const { return plan_ ? weightsOf(*plan_, folder_) : weightsOf(assembled_->job); }
  absl::StatusOr<plan::Plan> makePlan() &&;

private:
  absl::Status readPlan(const JobInput &input, Outputs &outputs);
  absl::Status readJob(const JobInput &input, double linkBandwidth, bool quiet, Outputs &outputs);

  model::FolderOptions folder_;
  std::optional<plan::Plan> plan_;        // either
  std::optional<AssembledJob> assembled_; // or
};

} // namespace headrace::tools
