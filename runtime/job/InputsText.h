// SPDX-License-Identifier: Apache-2.0
//
// What a plan is made from, as one text: the sections of a job, whose keys stand in the order of their names, with
// what was resolved in place of what was left open, and without paths. The same inputs are the same text, whether
// flags or a file stated them.
//
//   [model]
//   family = "llama"
//   ...
//   [goal]
//   batch = 4
//   context = 2048
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "runtime/job/JobFile.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::model {

struct Inputs {
  ModelSpec model;
  Hardware hardware; // without `gpus`
  Goal goal;         // without a record
  Policy policy;
};

std::string inputsText(const ModelSpec &spec, const Hardware &hardware, const Goal &goal, const Policy &policy);
// Refuses by `where` and key what no job may say, and another spelling of the same inputs.
absl::StatusOr<Inputs> parseInputs(std::string_view text, const std::string &where);

} // namespace headrace::model
