// SPDX-License-Identifier: Apache-2.0
//
// Which model a plan is for: a hash of the spec (its name left out) and, where there is a checkpoint, of its
// safetensors headers (names, types, shapes and places of all tensors; not their values, so that it takes no time).
// Which values, only where asked: a hash of each weight unit's bytes.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/job/JobFile.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::tools {

// 32 hex digits (FNV-1a, 128 bit): against mix-ups, not against forgery.
std::string modelHash(const model::ModelSource &source);

// What a plan's hash covers, in words: "the config, and the tensors' names, types, shapes and places".
std::string modelHashCovers(const plan::Plan &plan);
// The hashes of its weight units in one: 16 hex digits; empty where it has none.
std::string weightsHash(const plan::Plan &plan);

// Whether a folder's weights are those of a plan's model: the same spec, and the same headers if the plan was compiled
// from a checkpoint. InvalidArgument naming the difference.
absl::Status checkWeightsMatch(const model::ModelSpec &planned, std::string_view plannedHash,
                               const model::ModelSource &weights);

// --verify-weights. Records the hashes of a folder's weight units in a plan, with progress on a terminal.
absl::Status hashWeights(const model::ModelSource &weights, plan::Plan &plan);
// That there are weights to record hashes of: InvalidArgument naming the flag.
absl::Status checkHasWeights(const model::ModelSource &weights);
// Whether a folder's weights are those of these hashes, a plan's. InvalidArgument naming the first unit that is not, or
// that there are no hashes.
absl::Status verifyWeights(const model::ModelSpec &planned, absl::Span<const uint64_t> hashes,
                           const model::ModelSource &weights);

} // namespace headrace::tools
