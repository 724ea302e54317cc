// SPDX-License-Identifier: Apache-2.0
//
// What a policy makes its candidates of, and these.
#pragma once

#include <vector>

#include "compiler/choice/CompileRequest.h"
#include "compiler/evaluate/Placements.h"
#include "compiler/evaluate/Prices.h"
#include "compiler/search/Generator.h"
#include "compiler/search/Objective.h"

namespace headrace::compiler {

// All outlive what a policy makes of them.
struct GeneratorInputs {
  const CompileRequest &request;
  const Target &target;
  const model::WeightLayout &layout;
  const PlacementFamily &family;
  const std::vector<PricedStep> &steps; // of an iteration with nothing offloaded
  Prices &prices;
};

// With what all placements have alike.
std::vector<Candidate> candidatesOf(const Generator &policy, const GeneratorInputs &inputs);

} // namespace headrace::compiler
