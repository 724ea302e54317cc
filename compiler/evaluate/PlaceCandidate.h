// SPDX-License-Identifier: Apache-2.0
//
// One candidate from the list of steps to addresses, as plain values: copies, edges and addresses are those of the
// compiled plan.
//
//   steps -> what is moved -> cut -> copies -> program -> edges, lives -> arena
//         -> homes moved to where other placements have them (HomesTogether.h)
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "compiler/evaluate/HomesTogether.h"
#include "compiler/evaluate/IterationProgram.h"
#include "compiler/evaluate/Iterations.h"
#include "compiler/evaluate/LayOutHost.h"
#include "passes/algorithms/LayOutArena.h"

namespace headrace::compiler {

struct PlacedIteration {
  IterationOf of;
  MovedBuffers moved;
  algorithms::MovementPlan plan;
  IterationProgram program;
  std::vector<algorithms::Wait> waits;
  algorithms::OrderedLanes order;
  std::vector<bool> direct; // by step of the list
};

// The candidate and the host layout outlive it.
struct PlacedCandidate {
  const Candidate *candidate = nullptr;
  const HostLayout *host = nullptr;
  std::vector<PlacedIteration> iterations;
  // Io, activation blocks and caches on the device: bytes and, once placed, addresses.
  struct Below {
    BufferIndex buffer = kNoBuffer;
    uint64_t bytes = 0, address = 0;
  };
  std::vector<Below> below;
  uint64_t cachesBegin = 0, cachesEnd = 0; // of those on the device
  std::vector<uint64_t> slotBytes;
  DeviceHomes homes;
  algorithms::ArenaLayout arena;     // as if there were no other placement
  std::vector<uint64_t> homeAddress; // of `homes`
  uint64_t arenaBytes() const { return homes.arenaBytes; }
  bool isLaidOut() const { return !arena.transients.empty(); }
};

// As if there were no other placement. InvalidArgument where its residency cannot be played: a contradiction, a ring or
// slots that are too small or too few for what it starts with.
absl::StatusOr<PlacedCandidate> placeCandidate(const Iterations &iterations, const Candidate &candidate,
                                               const HostLayout &host);
// The same without addresses, all of which are 0, and of the iterations only those that are asked for: what playing
// them takes.
absl::StatusOr<PlacedCandidate> moveCandidate(const Iterations &iterations, const Candidate &candidate,
                                              const HostLayout &host,
                                              absl::FunctionRef<bool(const IterationOf &)> asked);

// The arena of all of them, homes in one place.
uint64_t placeHomesTogether(const std::vector<PlacedCandidate *> &placements);

// The homes of one of its iterations.
Homes homesOf(const PlacedCandidate &placed, const Target &target, const IterationOf &of);

} // namespace headrace::compiler
