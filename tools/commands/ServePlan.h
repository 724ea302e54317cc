// SPDX-License-Identifier: Apache-2.0
//
// What `headrace bench serve` runs: a plan that was read, or one that is compiled for the traffic.
//
//   ServePlan::open(options, outputs)    reads a plan, or a model and its job
//   fit(options, traffic)                seats, the longest request, rows of an iteration; what flags ask beside these
//   makePlan()                           compiles, with a KV cache of what memory is left
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "runtime/plan/Plan.h"
#include "tools/commands/Commands.h"
#include "tools/commands/Outputs.h"
#include "tools/commands/RunSetup.h"
#include "tools/commands/ServeTraffic.h"

namespace headrace::tools {

class ServePlan {
public:
  // Adds what it reads to the inputs of `outputs`, and checks them.
  static absl::StatusOr<ServePlan> open(const BenchServeOptions &options, Outputs &outputs);

  const model::ModelSpec &model() const { return plan_ ? plan_->model : assembled_->job.model->spec; }
  // That runs it where --device does not say.
  std::string device() const { return plan_ ? deviceFor(plan_->hardware.kind) : assembled_->device; }
  const model::Goal &goal() const { return plan_ ? plan_->goal : assembled_->job.goal; }
  // The longest request that it will take: the plan's context, the job's, or what the model has positions for.
  int64_t mostContext() const;
  // Of this object's model.
  WantedWeights weights() const { return plan_ ? weightsOf(*plan_, folder_) : weightsOf(assembled_->job); }
  // Refuses flags that a plan of these sizes does not allow.
  absl::Status fit(const BenchServeOptions &options, const ServeTraffic &traffic);
  // Whether makePlan() chooses how large the KV cache is.
  bool choosesKv() const;
  absl::StatusOr<plan::Plan> makePlan() &&;

private:
  model::FolderOptions folder_;
  std::optional<plan::Plan> plan_;        // either
  std::optional<AssembledJob> assembled_; // or
};

} // namespace headrace::tools
