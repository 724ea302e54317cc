// SPDX-License-Identifier: Apache-2.0
#include "compiler/choose/PolicyCandidates.h"

#include "runtime/model/ModelSpec.h"

#include <algorithm>

namespace headrace::compiler {
namespace {

void append(std::vector<Candidate> &to, const std::vector<Candidate> &more) {
  for (const Candidate &candidate : more)
    if (std::none_of(to.begin(), to.end(), [&](const Candidate &c) { return c.samePlacement(candidate); }))
      to.push_back(candidate);
}

// Layers only: what is not said to be offloaded beside them stays.
model::Policy layersAlone(model::Policy policy) {
  for (model::Choice *choice : {&policy.offloadEmbedding, &policy.offloadHead})
    if (*choice == model::Choice::Auto)
      *choice = model::Choice::Off;
  return policy;
}

model::Policy paperInterval(const model::Policy &policy, int64_t interval) {
  model::Policy stated = layersAlone(policy);
  stated.startRule = model::StartRule::Paper;
  stated.interval = interval;
  if (!stated.slots)
    stated.slots = interval == 1 ? 2 : 1;
  return stated;
}

std::vector<Candidate> selectN(const model::Policy &policy, const model::ModelSpec &spec,
                               const PlacementFamily &family) {
  model::Policy none = layersAlone(policy);
  if (none.offloadEmbedding == model::Choice::On || none.offloadHead == model::Choice::On)
    none.offloadLayers = 0;
  else
    none.none = true;
  none.startRule = model::StartRule::Paper;
  std::vector<Candidate> found = family.candidates(none);
  for (int64_t interval = spec.layers; interval >= 1; --interval)
    append(found, family.candidates(paperInterval(policy, interval)));
  return found;
}

} // namespace

std::vector<Candidate> policyCandidates(std::string_view name, const model::Policy &policy,
                                        const model::ModelSpec &spec, const PlacementFamily &family) {
  if (name == "none") {
    model::Policy none = policy;
    none.none = true;
    return family.candidates(none);
  }
  if (name == "deepspeed")
    return family.candidates(paperInterval(policy, 1));
  if (name == "select-n")
    return selectN(policy, spec, family);
  if (name != "headrace")
    return family.candidates(policy);
  std::vector<Candidate> found;
  for (const model::StartRule rule : {model::StartRule::Eager, model::StartRule::Paper}) {
    model::Policy any = policy;
    any.startRule = rule;
    append(found, family.candidates(any));
  }
  append(found, selectN(policy, spec, family));
  return found;
}

} // namespace headrace::compiler
