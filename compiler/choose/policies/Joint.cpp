// SPDX-License-Identifier: Apache-2.0
//
// What is best of all that other policies would consider, by one aim: searched elsewhere (compiler/search).
#include "compiler/choose/policies/Policies.h"

namespace headrace::compiler {

const Policy kJointPolicy = {
    .name = "joint",
    .summary = "of all mechanisms together what takes the least time over the contexts that will run",
    .traits = {.allowsForSlowest = true, .onePlacement = true, .splitsCaches = true, .searches = true, .colour = 6},
    .candidates = [](const PolicyInputs &) { return std::vector<Candidate>(); },
};

} // namespace headrace::compiler
