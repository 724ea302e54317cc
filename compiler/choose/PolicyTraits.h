// SPDX-License-Identifier: Apache-2.0
//
// What sets one policy apart from another, for whoever treats them differently: nobody compares names.
#pragma once

#include <cstddef>

namespace headrace::compiler {

struct PolicyTraits {
  // Chooses by the goal's latency objective, and needs one: the placement that frees the most device memory within it.
  // Else the first of the candidates that fits the memory, whatever it takes.
  bool byObjective = false;
  bool statesPlacement = false;  // takes what interval, offload_layers and start_rule state
  bool flagsReachIt = false;     // its placements are whole layers in the slots of their start rule
  bool allowsForSlowest = false; // holds objectives for the slowest iterations that the performance record has seen
  bool countsGaps = false;       // holds a TPOT for the whole gap between tokens, foreign prompts included
  bool searchesUnits = false;    // single units in a ring are searched beside the candidates
  bool onePlacement = false;     // one setting serves all iterations
  bool splitsCaches = false;     // where KV caches do not fit, some of their blocks are at home on the host
  bool swapsLayers = false;      // where they do not fit, layers' caches are swapped whole, first in, first out
  bool keepsActivations = false; // KV on the host and activation blocks in place of some of it, where neither is stated
  bool searches = false;         // chosen by compiler/search, of all mechanisms
  bool seeksChunk = false;       // the largest chunk of prompts is sought where the goal says what is prompted
  bool printsFormula = false;    // Select-N's closed form stands beside its choices
  size_t colour = 5;             // its own in every chart (tools/timeline/BarChart.h)
};

} // namespace headrace::compiler
