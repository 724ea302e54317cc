// SPDX-License-Identifier: Apache-2.0
//
// What a lane's time went to in one iteration, so that two iterations can be held against each other: planned and
// measured, or alone and beside copies.
//
//   compute  qkv 4.0 ms, attention 1.0 ms, ..., waits 2.0 ms, idle 0.5 ms      = the iteration
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/timeline/Timeline.h"

namespace headrace::tools {

struct LaneAccount {
  struct Part {
    std::string name;
    int64_t ns = 0;
  };
  std::vector<Part> kinds; // of steps, in their order of first appearance: "qkv", "attention", "head"
  int64_t waitNs = 0;      // before a step that needs what another lane was still at
  int64_t idleNs = 0;      // the rest: before the first step, behind the last, between two. Below 0 where steps overlap
  int64_t of(const std::string &kind) const; // 0 of one that it lacks
  int64_t totalNs() const;                   // the iteration
};

// Of one of the lanes that the track's chart has.
LaneAccount accountOf(const Track &track, plan::Lane lane);

// A line a lane and part: what both took, and by how much they differ. Each lane's differences add up to the
// iterations'. Kinds that both lack are left out.
std::string accountsText(const Track &from, const Track &to, const std::vector<plan::Lane> &lanes);

} // namespace headrace::tools
