// SPDX-License-Identifier: Apache-2.0
//
// What each policy chooses from.
#pragma once

#include <string_view>
#include <vector>

#include "compiler/lower/Placements.h"

namespace headrace::compiler {

// From the one that offloads least. `policy` gives what the user stated (embedding, head, slots); `name` is one of
// model::kPolicyNames but "auto" and those of FlexGen (FlexGen.h).
//
//   none, interval   as PlacementFamily gives them
//   deepspeed        interval 1 under the paper's rule in two slots
//   select-n         nothing, then every interval from the number of layers down to 1, under the paper's rule: one
//   slot,
//                    two for interval 1. Embedding and head stay unless the user says otherwise: the paper moves layers
//   headrace         all of these, and any number of whole layers under both rules, in as many slots as the rule asks
//                    for and in fewer, with and without the embedding and the head
std::vector<Candidate> policyCandidates(std::string_view name, const model::Policy &policy,
                                        const model::ModelSpec &spec, const PlacementFamily &family);

} // namespace headrace::compiler
