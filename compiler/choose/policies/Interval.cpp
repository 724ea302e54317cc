// SPDX-License-Identifier: Apache-2.0
//
// Whole layers, evenly spread.
#include "compiler/choose/PolicyInputs.h"
#include "compiler/choose/policies/Policies.h"
#include "compiler/choose/policies/WholeLayers.h"

namespace headrace::compiler {
namespace {

std::vector<Candidate> candidates(const PolicyInputs &in) {
  return wholeLayers(in.request.policy, in.request.model, in.layout);
}

} // namespace

const Policy kIntervalPolicy = {
    .name = "interval",
    .summary = "the least offloading that fits the memory, or what interval or offload_layers state",
    .traits = {.statesPlacement = true,
               .flagsReachIt = true,
               .allowsForSlowest = true,
               .splitsCaches = true,
               .seeksChunk = true,
               .colour = 5},
    .candidates = candidates,
};

} // namespace headrace::compiler
