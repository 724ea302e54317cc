// SPDX-License-Identifier: Apache-2.0
//
// Candidates of whole layers, as intervals, none and the plainest of headrace's are.
#pragma once

#include <string>
#include <vector>

#include "compiler/choice/Candidate.h"

namespace headrace::compiler {

// What a policy that states a placement means, or where it states none every number of layers, evenly spread: from the
// one that offloads least. Each with as many slots as its start rule asks for, then fewer where that is left open; the
// embedding and the head beside them where the policy leaves it open, as late as the memory allows. The last needs the
// least memory.
std::vector<Candidate> wholeLayers(const model::Policy &policy, const model::ModelSpec &spec,
                                   const model::WeightLayout &layout);

// Of Select-N: interval i under the paper's rule in one slot, two for interval 1. Embedding and head stay unless the
// user says otherwise: the paper moves layers.
std::vector<Candidate> paperIntervals(const model::Policy &policy, int64_t interval, const model::ModelSpec &spec,
                                      const model::WeightLayout &layout);

// Appends those whose placement is not there yet.
void appendNew(std::vector<Candidate> &to, const std::vector<Candidate> &more);

} // namespace headrace::compiler
