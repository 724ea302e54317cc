// SPDX-License-Identifier: Apache-2.0
//
// The baseline that needs the most memory.
#include "compiler/search/GeneratorInputs.h"
#include "compiler/search/generators/WholeLayers.h"

namespace headrace::compiler {
namespace {

std::vector<Candidate> candidates(const GeneratorInputs &in) {
  model::Policy none = in.request.policy;
  none.none = true;
  return wholeLayers(none, in.request.model, in.layout);
}

} // namespace

extern const Generator kNoneGenerator;
const Generator kNoneGenerator = {
    .name = "none",
    .summary = "everything on the device",
    .flagsReachIt = true,
    .colour = 0,
    .candidates = candidates,
};

} // namespace headrace::compiler
