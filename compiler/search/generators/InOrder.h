// SPDX-License-Identifier: Apache-2.0
//
// A policy in its own order: of its candidates the first that memory holds (Space.h), and all that these leave open
// (mini-batches, the share and home of activation blocks, slots of tails, the chunk of prompts) as its largest decode
// iteration is fastest with. How rows of tails get home is decided by whoever has all buckets.
//
//   interval of a model of 32 layers    none, interval 32, interval 16, ...: the first that fits beside whole caches;
//                                       where none does, the first that fits beside a block of each
//   a share of 0, 1/4, 1/2, 3/4, 1      and Algorithm 1's (HybridShare.h): for each the first candidate that fits, from
//                                       the best of them by 16, 4, 1 64ths as long as
//                                       one is better, each with what is best beside it
#pragma once

#include <optional>
#include <string>

#include "compiler/search/Search.h"

namespace headrace::compiler {

struct FoundInOrder {
  Scored best;
  std::string algorithm1; // what it says of the share; empty: none is sought
};

// None: memory holds nothing. `space`: in the order of a policy.
std::optional<FoundInOrder> searchInOrder(Space &space);

// "Activation blocks: the share of 9/16 takes the least of those tried (0 5981.339 ms, 9/16 4205.879 ms); compute alone
// 3900 ms, link alone 4100 ms: the link is the longer", then mini-batches and chunks of prompts; empty where all that
// is stated. Of shares the ends, the one taken and those next to it.
std::string explainFound(Space &space, const Generator &policy, const FoundInOrder &found);
// "Rows of KV on the host: decode mirrors: 41.200 ms against 44.000 ms written back; prefill ..."; empty where none are
// there; without times where it is stated.
std::string explainWriteBack(Space &space, const Coordinates &at, const Candidate &candidate);

} // namespace headrace::compiler
