// SPDX-License-Identifier: Apache-2.0
//
// What every command that runs a plan needs first beside a device (Devices.h): weights.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/core/Device.h"
#include "runtime/core/Runtime.h"
#include "runtime/model/WeightSource.h"
#include "runtime/plan/value/Plan.h"
#include "tools/commands/Commands.h"
#include "tools/commands/Devices.h"

namespace headrace::tools {

// A line on standard error, once a process: "headrace: warning: ...", clear of a line of progress.
void warnOnce(const std::string &warning);

// Whose weights are wanted: a plan's, or those of a job that is to be compiled to one. Holds no model: what it is made
// of outlives it.
struct WantedWeights {
  const model::ModelSpec *model = nullptr;
  std::string modelHash;
  std::string folder;                         // that the plan is made from; a shape's file or empty: it has none
  absl::Span<const uint64_t> hashes;          // of the values, for --verify-weights
  const model::ModelSource *opened = nullptr; // the folder, where it is open already
  model::FolderOptions options;               // to open another with
};
WantedWeights weightsOf(const plan::Plan &plan, const model::FolderOptions &options);
WantedWeights weightsOf(const model::Job &job);

// Refuses flags that contradict each other, and a --weights that is no folder: what needs no model.
absl::Status checkWeightFlags(const WeightFlags &flags);
// --synthetic-weights, --weights, or the folder that the plan is made from; --verify-weights. Warns of tensors that
// nothing uses, and, as they are loaded, of those with values that are not finite.
absl::StatusOr<std::unique_ptr<model::WeightSource>> openWeights(const WeightFlags &flags, const WantedWeights &wanted);

// Loads and builds, and shows how far it is. The files are closed then: the homes are filled.
absl::StatusOr<std::unique_ptr<core::Runtime>> loadRuntime(const plan::Plan &plan, core::Device &device,
                                                           const core::DeviceOptions &options,
                                                           std::unique_ptr<model::WeightSource> &weights,
                                                           core::LoadOptions loading);

} // namespace headrace::tools
