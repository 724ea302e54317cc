// SPDX-License-Identifier: Apache-2.0
//
// What every command that runs a plan needs first beside a device (Devices.h): weights.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/core/Device.h"
#include "runtime/model/WeightSource.h"
#include "runtime/plan/Plan.h"
#include "tools/commands/Commands.h"
#include "tools/commands/Devices.h"

namespace headrace::tools {

// The device that a plan is for; where that is a GPU and none answers, it is said why.
std::string defaultDevice(const plan::Plan &plan);
// A line on standard error, once a process: "headrace: warning: ...", clear of a line of progress.
void warnOnce(const std::string &warning);
// --synthetic-weights, --weights, or the folder that the plan was made from; --verify-weights. Warns of tensors that
// nothing uses, and, as they are loaded, of those with values that are not finite.
absl::StatusOr<std::unique_ptr<model::WeightSource>> openWeights(const RunOptions &options, const plan::Plan &plan);

} // namespace headrace::tools
