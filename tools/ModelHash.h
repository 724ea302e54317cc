// SPDX-License-Identifier: Apache-2.0
//
// Which model a plan is for: a hash of the spec (its name left out) and, where there is a checkpoint, of its
// safetensors headers (names, types, shapes and places of all tensors; not their values, so that it takes no time).
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/model/JobFile.h"
#include "runtime/plan/Plan.h"

namespace headrace::tools {

// 32 hex digits (FNV-1a, 128 bit): against mix-ups, not against forgery.
absl::StatusOr<std::string> modelHash(const model::ModelSource &source);

// Whether a folder's weights are those of the plan's model: the same spec, and the same headers if the plan was
// compiled from a checkpoint. InvalidArgument naming the difference.
absl::Status checkWeightsMatch(const plan::Plan &plan, const model::ModelSource &weights);

} // namespace headrace::tools
