// SPDX-License-Identifier: Apache-2.0
//
// DeepSpeed's ZeRO-Inference as Select-N compares with it (section 3.2): interval 1 in two slots.
#include "compiler/search/GeneratorInputs.h"
#include "compiler/search/generators/WholeLayers.h"

namespace headrace::compiler {
namespace {

std::vector<Candidate> candidates(const GeneratorInputs &in) {
  return paperIntervals(in.request.policy, 1, in.request.model, in.layout);
}

} // namespace

extern const Generator kDeepSpeedGenerator;
const Generator kDeepSpeedGenerator = {
    .name = "deepspeed",
    .summary = "every layer offloaded, the next one copied while one computes",
    .startsItemByItem = true,
    .flagsReachIt = true,
    .colour = 1,
    .candidates = candidates,
};

} // namespace headrace::compiler
