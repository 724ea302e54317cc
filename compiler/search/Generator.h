// SPDX-License-Identifier: Apache-2.0
//
// Where a search begins, and how far it may go from there: what a policy would consider, found by name.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "compiler/search/Space.h"

namespace headrace::compiler {

struct Generator {
  std::string_view name;
  std::string_view what;                        // one line, for reports
  std::vector<Coordinates> (*seeds)(Space &of); // empty: the space has nothing of it
  bool (*holds)(const Coordinates &at);         // whether it would consider this; moves beyond are another's
};

extern const Generator kWeightsGenerator; // whole layers of weights away
extern const Generator kUnitsGenerator;   // single units of weights through a ring
extern const Generator kCachesGenerator;  // blocks of caches away, weights only where the device holds no block else
extern const Generator kHybridGenerator;  // all layers away, KV on the host, activations in place of some of it

const std::vector<const Generator *> &allGenerators();

// None of these, but what is left to try where none holds the objectives: what it begins with depends on them.
extern const Generator kMostFreedGenerator;

} // namespace headrace::compiler
