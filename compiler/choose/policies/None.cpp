// SPDX-License-Identifier: Apache-2.0
//
// The baseline that needs the most memory.
#include "compiler/choose/policies/Policies.h"
#include "compiler/choose/policies/WholeLayers.h"

namespace headrace::compiler {
namespace {

class None : public Policy {
public:
  std::string_view name() const override { return "none"; }
  std::string_view summary() const override { return "everything on the device"; }
  PolicyTraits traits() const override {
    PolicyTraits traits;
    traits.flagsReachIt = true;
    traits.colour = 0;
    return traits;
  }
  std::vector<Candidate> candidates(const PolicyInputs &in) const override {
    model::Policy none = in.request.policy;
    none.none = true;
    return wholeLayers(none, in.request.model, in.layout);
  }
};

} // namespace

const Policy &nonePolicy() {
  static const None policy;
  return policy;
}

} // namespace headrace::compiler
