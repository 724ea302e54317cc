// SPDX-License-Identifier: Apache-2.0
//
// Placements as a user would state them (none, an interval, a number of layers), several of them for one plan.
#pragma once

#include <vector>

#include "compiler/Compile.h"
#include "compiler/search/generators/WholeLayers.h"

namespace headrace::compiler {

// What each policy means where memory is plenty: in as many slots as its start rule asks for.
inline std::vector<Candidate> stated(const model::ModelSpec &spec, const std::vector<model::Policy> &policies) {
  const model::WeightLayout layout = model::layoutWeights(spec);
  std::vector<Candidate> found;
  for (const model::Policy &policy : policies)
    found.push_back(wholeLayers(policy, spec, layout).front());
  return found;
}

inline model::Policy none() {
  model::Policy policy;
  policy.none = true;
  return policy;
}

inline model::Policy interval(int64_t interval) {
  model::Policy policy;
  policy.interval = interval;
  return policy;
}

// The least device memory that a request of policy interval can have: that of its last candidate.
inline absl::StatusOr<uint64_t> leastMemory(CompileRequest request) {
  const model::WeightLayout layout = model::layoutWeights(request.model);
  request.placements = {wholeLayers(request.policy, request.model, layout).back()};
  request.goal.deviceMemory = uint64_t{1} << 53;
  absl::StatusOr<plan::Plan> plan = compile(request);
  if (!plan.ok())
    return plan.status();
  return plan->arenaBytes;
}

} // namespace headrace::compiler
