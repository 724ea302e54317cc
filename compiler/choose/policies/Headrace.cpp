// SPDX-License-Identifier: Apache-2.0
//
// Single units through a ring, as a search finds them (SearchPlacement.h), and beside them the plainest placements:
// any number of whole layers under both rules, in as many slots as the rule asks for and in fewer, with and without the
// embedding and the head; and Select-N's.
#include "compiler/choose/policies/Policies.h"
#include "compiler/choose/policies/WholeLayers.h"

namespace headrace::compiler {
namespace {

class Headrace : public Policy {
public:
  std::string_view name() const override { return "headrace"; }
  std::string_view summary() const override {
    return "of all placements the one that frees the most device memory within the objective";
  }
  PolicyTraits traits() const override {
    PolicyTraits traits;
    traits.byObjective = traits.allowsForSlowest = traits.countsGaps = traits.searchesUnits = true;
    traits.colour = 4;
    return traits;
  }
  std::vector<Candidate> candidates(const PolicyInputs &in) const override {
    std::vector<Candidate> found;
    for (const model::StartRule rule : {model::StartRule::Eager, model::StartRule::Paper}) {
      model::Policy any = in.request.policy;
      any.startRule = rule;
      appendNew(found, wholeLayers(any, in.request.model, in.layout));
    }
    appendNew(found, selectNPolicy().candidates(in));
    return found;
  }
};

} // namespace

const Policy &headracePolicy() {
  static const Headrace policy;
  return policy;
}

} // namespace headrace::compiler
