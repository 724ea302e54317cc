// SPDX-License-Identifier: Apache-2.0
//
// A choice by its coordinates, and what it comes to.
#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

#include "compiler/choice/Candidate.h"
#include "compiler/choice/Resolve.h"
#include "compiler/evaluate/PlayChoice.h"

namespace headrace::compiler {

inline constexpr int64_t kActParts = 64; // a share is so many of them
inline constexpr int64_t kShallow = 8;   // layers: a model of no more is searched more closely
inline constexpr double kTie = 1e-3;     // of the aim: a smaller difference is none

struct Coordinates {
  int64_t listed = 0; // of the space's list of placements of weights (from 1), which then says all that is said below
                      // of weights; 0: none of it
  int64_t miniBatches = 1;
  int64_t actParts = 0; // of kActParts
  int64_t actAway = 0;  // layers whose activation blocks are on the host
  int64_t layers = 0;   // whose weights are
  bool embedding = false, head = false;
  int64_t slots = 2;                            // of weights
  int64_t kvSlots = 2;                          // of tails
  bool decodeDirty = false, mixedDirty = false; // rows of tails go home behind the step, not by it
  bool allBack = false;                         // all that is in use goes home, when it leaves its place
  bool wraps = true;             // iterations copy for the next; else transients may use slots that are empty
  int64_t chunk = kLargestChunk; // Choice::largestChunk
  // How weights and caches are held: of those that are allowed (choice/Packing.h) the nth, 0 as it is.
  int64_t weightEncoding = 0, kvEncoding = 0;
  bool attendsOnCpu = false; // Choice::attendsOnCpu

  auto key() const {
    return std::tie(listed, miniBatches, actParts, actAway, layers, embedding, head, slots, kvSlots, decodeDirty,
                    mixedDirty, allBack, wraps, chunk, weightEncoding, kvEncoding, attendsOnCpu);
  }
  bool operator==(const Coordinates &other) const { return key() == other.key(); }
  bool operator<(const Coordinates &other) const { return key() < other.key(); }
};

// What a choice comes to.
struct Scored {
  Coordinates at;
  Candidate candidate;
  std::vector<Played> played; // by point of the aim
  double aimNs = 0;
  double comparedNs = 0;           // Aim::compared
  double movedBytes = 0;           // over the link, by the aim's weights
  std::vector<uint64_t> limitedNs; // of each of the space's limits, in its slowest iterations
  double late = 0;                 // of the limit that is missed by most: the part of it that is missed; 0: all hold
  uint64_t deviceBytes = 0, hostBytes = 0;
  uint64_t overBytes = 0; // beyond what memory has: it was not played
  size_t nth = 0;         // of a policy's candidates in their order
};

} // namespace headrace::compiler
