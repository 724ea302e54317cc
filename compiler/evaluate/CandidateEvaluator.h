// SPDX-License-Identifier: Apache-2.0
//
// One candidate from the list of steps to its place in a plan, as plain values: addresses, copies, edges, and the time
// of every bucket are those of the compiled plan. What is not there is what compute steps use.
//
//   steps -> what is moved -> cut -> copies -> program -> edges, lives -> arena (Placed)
//         -> homes moved to where other placements have them (HomesTogether.h) -> schedules and variants
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/evaluate/HomesTogether.h"
#include "compiler/evaluate/IterationProgram.h"
#include "compiler/evaluate/Iterations.h"
#include "compiler/evaluate/LayOutHost.h"
#include "compiler/evaluate/PlanWriter.h"
#include "passes/algorithms/LayOutArena.h"

namespace headrace::compiler {

class CandidateEvaluator {
public:
  // Outlives it.
  explicit CandidateEvaluator(Iterations &iterations) : iterations_(iterations) {}

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
  struct Placed {
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
  };

  // As if there were no other placement.
  absl::StatusOr<Placed> place(const Candidate &candidate, const HostLayout &host) const;
  // The arena of all of them, homes in one place.
  static uint64_t placeHomes(const std::vector<Placed *> &placements);
  // The placement, its schedules and variants.
  void addTo(PlanWriter &writer, const Placed &placed) const;

  Iterations &iterations() const { return iterations_; }

private:
  absl::StatusOr<PlacedIteration> iteration(const Candidate &candidate, const HostLayout &host, const IterationOf &of,
                                            algorithms::Residency &residency) const;
  void layOut(Placed &placed) const;

  Iterations &iterations_;
};

} // namespace headrace::compiler
