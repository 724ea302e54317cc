// SPDX-License-Identifier: Apache-2.0
//
// The baseline that needs the most memory.
#include "compiler/choose/PolicyInputs.h"
#include "compiler/choose/policies/Policies.h"
#include "compiler/choose/policies/WholeLayers.h"

namespace headrace::compiler {
namespace {

std::vector<Candidate> candidates(const PolicyInputs &in) {
  model::Policy none = in.request.policy;
  none.none = true;
  return wholeLayers(none, in.request.model, in.layout);
}

} // namespace

const Policy kNonePolicy = {
    .name = "none",
    .summary = "everything on the device",
    .traits = {.flagsReachIt = true, .colour = 0},
    .candidates = candidates,
};

} // namespace headrace::compiler
