// SPDX-License-Identifier: Apache-2.0
//
// Where layers' caches are while an iteration runs, of a plan whose caches move: Pie's mapping table (its Figure 3) and
// what begins when (Figure 4), as the plan has it and sim predicts it.
//
//   #  the layer that computes     .  on the device     i  on its way in     o  on its way out     h  on the host
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/plan/value/Plan.h"

namespace headrace::tools {

struct MappingSwap {
  int32_t layer = 0, place = 0;
  bool out = false;
  uint64_t beginNs = 0, endNs = 0; // of the iteration
};

// One iteration of a cycle. Of one mini-batch, the first.
struct MappingPhase {
  uint32_t variant = 0;
  std::vector<int32_t> entry;     // the layer in each place at the start; -1: none
  std::vector<uint64_t> startsNs; // of each layer's compute
  std::vector<uint64_t> endsNs;
  std::vector<MappingSwap> swaps; // in order of their begin
};

struct Mapping {
  std::vector<uint64_t> places; // addresses in the arena
  std::vector<uint64_t> homes;  // of each layer's cache, in the host slab
  std::vector<MappingPhase> phases;
};

// Of the first placement's largest decode bucket, all blocks in use. Without phases: no caches move.
Mapping mappingOf(const plan::Plan &plan);

// `all`: every phase layer by layer, else the first.
std::string mappingText(const plan::Plan &plan, bool all);
std::string mappingJson(const plan::Plan &plan); // one object, indented

} // namespace headrace::tools
