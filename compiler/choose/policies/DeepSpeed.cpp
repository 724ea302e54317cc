// SPDX-License-Identifier: Apache-2.0
//
// DeepSpeed's ZeRO-Inference as Select-N compares with it (section 3.2): interval 1 in two slots.
#include "compiler/choose/PolicyInputs.h"
#include "compiler/choose/policies/Policies.h"
#include "compiler/choose/policies/WholeLayers.h"

namespace headrace::compiler {
namespace {

std::vector<Candidate> candidates(const PolicyInputs &in) {
  return paperIntervals(in.request.policy, 1, in.request.model, in.layout);
}

} // namespace

const Policy kDeepSpeedPolicy = {
    .name = "deepspeed",
    .summary = "every layer offloaded, the next one copied while one computes",
    .traits = {.flagsReachIt = true, .colour = 1},
    .candidates = candidates,
};

} // namespace headrace::compiler
