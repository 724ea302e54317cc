// SPDX-License-Identifier: Apache-2.0
//
// Whole layers, evenly spread.
#include "compiler/choose/policies/Policies.h"
#include "compiler/choose/policies/WholeLayers.h"

namespace headrace::compiler {
namespace {

class Interval : public Policy {
public:
  std::string_view name() const override { return "interval"; }
  std::string_view summary() const override {
    return "the least offloading that fits the memory, or what interval or offload_layers state";
  }
  PolicyTraits traits() const override {
    PolicyTraits traits;
    traits.statesPlacement = traits.flagsReachIt = traits.allowsForSlowest = true;
    traits.colour = 5;
    return traits;
  }
  std::vector<Candidate> candidates(const PolicyInputs &in) const override {
    return wholeLayers(in.request.policy, in.request.model, in.layout);
  }
};

} // namespace

const Policy &intervalPolicy() {
  static const Interval policy;
  return policy;
}

} // namespace headrace::compiler
