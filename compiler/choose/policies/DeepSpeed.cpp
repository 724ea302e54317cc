// SPDX-License-Identifier: Apache-2.0
//
// DeepSpeed's ZeRO-Inference as Select-N compares with it (section 3.2): interval 1 in two slots.
#include "compiler/choose/policies/Policies.h"
#include "compiler/choose/policies/WholeLayers.h"

namespace headrace::compiler {
namespace {

class DeepSpeed : public Policy {
public:
  std::string_view name() const override { return "deepspeed"; }
  std::string_view summary() const override { return "every layer offloaded, the next one copied while one computes"; }
  PolicyTraits traits() const override {
    PolicyTraits traits;
    traits.flagsReachIt = true;
    traits.colour = 1;
    return traits;
  }
  std::vector<Candidate> candidates(const PolicyInputs &in) const override {
    return paperIntervals(in.request.policy, 1, in.request.model, in.layout);
  }
};

} // namespace

const Policy &deepSpeedPolicy() {
  static const DeepSpeed policy;
  return policy;
}

} // namespace headrace::compiler
