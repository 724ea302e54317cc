// SPDX-License-Identifier: Apache-2.0
//
// Why a search chose what it did, in words: what the aim comes to, how far that is from any choice's least, what else
// there was.
#pragma once

#include <string>

#include "compiler/search/Search.h"

namespace headrace::compiler {

// No choice has a smaller aim: each iteration computes all that it computes, and brings what device memory cannot hold
// of all that it uses.
struct Bound {
  double aimNs = 0;
  double computeNs = 0; // nothing on the host
  double linkNs = 0;    // the bytes that the device cannot hold, alone
};
Bound boundOf(Space &space, const Searched &searched);

// A flag that would change what the search chose, by how much: the best choice with what the flag lets vary besides.
struct FlagThatHelps {
  std::string flag; // "--act-ratio auto"; empty: none of those there are makes it a fiftieth shorter
  double ratio = 1; // of the aim's time with it to that without
};
// Of flags that the policy takes.
FlagThatHelps flagThatHelps(Space &space, const Searched &searched, const Generator &policy,
                            const cost::CostModel &costs);

// ". Encodings that are allowed: as it is 357.990 ms, weights q8 190.223 ms, weights q4 101.500 ms", the best of each
// that was tried; empty where none is allowed.
std::string explainEncodings(Space &space, const Scored &best);

// `chosen`: the best, as it is compiled.
std::string why(Space &space, const Searched &searched, const Candidate &chosen, const FlagThatHelps &flag);

} // namespace headrace::compiler
