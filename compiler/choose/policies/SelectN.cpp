// SPDX-License-Identifier: Apache-2.0
//
// Select-N, sections 4.3 and 4.4: nothing, then every interval from the number of layers down to 1.
#include "compiler/choose/policies/Policies.h"
#include "compiler/choose/policies/WholeLayers.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {
namespace {

class SelectN : public Policy {
public:
  std::string_view name() const override { return "select-n"; }
  std::string_view summary() const override { return "Select-N's intervals under the paper's start rule"; }
  PolicyTraits traits() const override {
    PolicyTraits traits;
    traits.byObjective = traits.flagsReachIt = traits.allowsForSlowest = traits.countsGaps = traits.printsFormula =
        true;
    traits.colour = 3;
    return traits;
  }
  std::vector<Candidate> candidates(const PolicyInputs &in) const override {
    const model::Policy &asked = in.request.policy;
    model::Policy none = asked;
    if (asked.offloadEmbedding == model::AutoOnOff::On || asked.offloadHead == model::AutoOnOff::On)
      none.offloadLayers = 0;
    else
      none.none = true;
    for (model::AutoOnOff *choice : {&none.offloadEmbedding, &none.offloadHead})
      if (*choice == model::AutoOnOff::Auto)
        *choice = model::AutoOnOff::Off;
    none.startRule = model::StartRule::Paper;
    std::vector<Candidate> found = wholeLayers(none, in.request.model, in.layout);
    for (int64_t interval = in.request.model->layers; interval >= 1; --interval)
      appendNew(found, paperIntervals(asked, interval, in.request.model, in.layout));
    return found;
  }
};

} // namespace

const Policy &selectNPolicy() {
  static const SelectN policy;
  return policy;
}

} // namespace headrace::compiler
