// SPDX-License-Identifier: Apache-2.0
//
// HybridServe: weights and KV caches at home on the host, some of each sequence's blocks keep activations, on the
// device first (section 4.2.1), as many as is fastest. Whoever states a placement, a share or KV's device memory has
// them.
#include "compiler/choose/PolicyInputs.h"
#include "compiler/choose/policies/Policies.h"
#include "compiler/choose/policies/WholeLayers.h"

namespace headrace::compiler {

const Policy kHybridServePolicy = {
    .name = "hybridserve",
    .summary = "HybridServe: weights and KV on the host, and activations in place of KV as far as that is faster",
    .traits =
        {.statesPlacement = true, .onePlacement = true, .splitsCaches = true, .keepsActivations = true, .colour = 7},
    .candidates =
        [](const PolicyInputs &in) {
          model::Policy every = in.request.policy;
          if (!every.statesPlacement())
            every.interval = 1;
          return wholeLayers(every, in.request.model, in.layout);
        },
};

} // namespace headrace::compiler
