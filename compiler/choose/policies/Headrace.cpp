// SPDX-License-Identifier: Apache-2.0
//
// Single units through a ring, as a search finds them (SearchPlacement.h), and beside them the plainest placements:
// any number of whole layers under both rules, in as many slots as the rule asks for and in fewer, with and without the
// embedding and the head; and Select-N's.
#include "compiler/choose/PolicyInputs.h"
#include "compiler/choose/policies/Policies.h"
#include "compiler/choose/policies/WholeLayers.h"

namespace headrace::compiler {
namespace {

std::vector<Candidate> candidates(const PolicyInputs &in) {
  std::vector<Candidate> found;
  for (const model::StartRule rule : {model::StartRule::Eager, model::StartRule::Paper}) {
    if (in.target.choice.residency.movesBack() && rule != model::StartRule::Eager)
      continue;
    model::Policy any = in.request.policy;
    any.startRule = rule;
    appendNew(found, wholeLayers(any, in.request.model, in.layout));
  }
  if (!in.target.choice.residency.movesBack()) // whose rule is paper
    appendNew(found, kSelectNPolicy.candidates(in));
  return found;
}

} // namespace

const Policy kHeadracePolicy = {
    .name = "headrace",
    .summary = "of all placements the one that frees the most device memory within the objective",
    .traits = {.byObjective = true,
               .allowsForSlowest = true,
               .countsGaps = true,
               .searchesUnits = true,
               .splitsCaches = true,
               .colour = 4},
    .candidates = candidates,
};

} // namespace headrace::compiler
