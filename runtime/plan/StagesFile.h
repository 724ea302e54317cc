// SPDX-License-Identifier: Apache-2.0
//
// The plans of a model's stages by name, in one file, as TOML:
//
//   format = "headrace stages"
//   version = 1
//   model = "llama-3.1-70b"           # for people, as layers below: left out, or what the plans have
//   [[stage]]                          # in order, one a device
//   plan = "llama.0.plan"              # relative to this file
//   layers = "0 to 40"
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::plan {

inline constexpr std::string_view kStagesMark = "format = \"headrace stages\"\n";

// "x.stages" -> "x.0.plan", ...; any other name has ".0.plan" behind it.
std::string stagePlanPath(const std::string &path, size_t stage);
// Of plans at stagePlanPath()s of `path`.
std::string stagesText(absl::Span<const Plan> plans, const std::string &path);
struct NamedStages {
  std::string model; // as the file says; empty: it does not
  struct Stage {
    std::string path, layers; // the plan's, as this process finds it; "0 to 40" or empty
  };
  std::vector<Stage> stages; // one at least
};
// InvalidArgument naming file, line and key.
absl::StatusOr<NamedStages> parseStages(std::string_view text, const std::string &path);

struct StagePlan {
  std::string path;
  Plan plan;
};
// The plans that a file names, read and proved (PlanFile.h), and checked to be one model's stages (checkStages), the
// model and the layers that it says. Every refusal names the file.
absl::StatusOr<std::vector<StagePlan>> readStages(const std::string &path);

// readPlan of a whole model's: InvalidArgument for a stage's, and for a file of stages.
absl::StatusOr<Plan> readWholePlan(const std::string &path);

// That they are all stages of one model, in order, or one plan of a whole model; of one hash, encoding of weights and
// caches, number of mini-batches, block size and element type; on devices that are alike; with contexts that are alike.
// InvalidArgument naming the stage, what it has and what was expected.
absl::Status checkStages(absl::Span<const Plan *const> plans);

} // namespace headrace::plan
