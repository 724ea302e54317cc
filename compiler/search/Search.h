// SPDX-License-Identifier: Apache-2.0
//
// The choice with the smallest aim that memory holds: every generator's beginnings, then from the best of them along
// every coordinate, by ever smaller steps, until no step is better.
//
//   layers    0 .. 8 .. 16 .. 24 .. 32      seeds
//                       16                  the best of them
//                   12  16  20              steps of 4, 2, 1 from it, of all coordinates in turn
//
// A step is taken where the aim falls, and the next round begins there; in the end two steps at once are tried, since
// what gives up memory along one coordinate may take it along another. What was evaluated is not evaluated again.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compiler/search/Generator.h"
#include "compiler/search/Space.h"

namespace headrace::compiler {

struct BestOf {
  std::string_view generator;
  std::optional<Scored> best; // none: memory holds nothing of it
};

struct Searched {
  Scored best;
  std::optional<Scored> runnerUp; // the best that moves other things
  std::vector<BestOf> of;         // each generator alone, of those that the space has something of
  size_t evaluated = 0;           // choices that were played
  bool atEnd = false;             // of none of them: an end of the space, which takes the least memory
};

// Whether a search may go there.
using Holds = std::function<bool(const Coordinates &)>;

// From a choice along every coordinate, until no step is better.
const Scored *climb(Space &space, const Scored *from, const Holds &holds);

// None: memory holds no choice of any generator.
std::optional<Searched> search(Space &space, const std::vector<const Generator *> &generators);

} // namespace headrace::compiler
