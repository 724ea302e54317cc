// SPDX-License-Identifier: Apache-2.0
//
// Which copies an iteration makes, where they stand and what waits for them: planners, as functions of plain values.
// What they return is written down by the pass of movement, and played by who wants to know what it takes.
//
//   paper, interval 2    embed | layer 0       | layer 1       | layer 2       | layer 3
//                              ^ copies of 1   ^ wait          ^ release 1, copies of 3
//
//   ahead 1              embed | layer 0       | layer 1       | layer 2       | layer 3
//                              1 is there              ^ release 1, copies of 3        ^ copies of 1 for the next
//
//   eager, two slots     a step's movable is released behind it; behind the releases that free its range stands the
//                        copy of what lies there next. Copies keep the order of use, so a copy stands behind the one
//                        before it even where its own range has long been free. The same in a ring.
//
//   tails, two slots     of caches that are written back: an evict in place of the release
//                        h2d   [ 2 ][ 3 ][ 4 ][ 5 ]
//                        d2h   [ 1 ][ 2 ][ 3 ][ 4 ]     4 goes where 2 was, while 3 is written back
//
//   activations          of layers that have theirs on the host: two slots, brought as any other, and given up behind
//                        the step that rebuilds keys and values. None of it is there on entry: the rows of the
//                        iteration before are among what is brought.
//
//   residual streams     three slots. An evict behind each layer of a mini-batch, a copy for its next as soon as that
//   is
//                        home, before others that may not start earlier. What embed writes claims its range. None of it
//                        is there on entry.
//
//   tails, four places   of five layers, phase 0 of a cycle (CyclePlaces.h):
//
//   entry     embed | layer 0 | layer 1          | layer 2 | layer 3          | layer 4 | head
//   0 1 3 4                   ^ 2 into 0's place ^ wait              ^ 0 into 3's, for the next iteration    exit 2 1 0
//   4
//
//                        Where tails are written back, what an iteration writes of one goes home behind its layer
//                        (dirty), or all of it once its place is given up (all); until then it is carried on as dirty.
//                        Weights move as under the rule eager. Copies stand in the order of the steps that they are
//                        for: one that has been possible for long stands behind one that is needed before it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "passes/algorithms/CyclePlaces.h"
#include "passes/algorithms/Movables.h"

namespace headrace::algorithms {

// One of a plan, in the order in which they stand. What lies in a range is a holding: it begins when it is carried in,
// claimed or brought, and may be brought in two parts.
struct Movement {
  enum class Kind : uint8_t {
    Carry,  // there on entry: the first `bytes`
    Claim,  // a range that the next step writes
    Pace,   // copies behind it wait for step `after`
    Bring,  // bytes [from, from + bytes), to the device
    GiveUp, // the range; or, `keeping`, written back and kept
  };
  Kind kind = Kind::Bring;
  int64_t behind = -1; // the compute step; -1: the start
  size_t moved = 0;
  uint32_t holding = 0;
  uint32_t slot = 0; // of Carry, Claim and Bring, with `offset` in it
  uint64_t offset = 0;
  uint64_t from = 0, bytes = 0;
  bool forNext = false;          // of Bring: not for this iteration
  bool homeAsWritten = false;    // of Bring: with what this iteration has written there
  bool dirty = false;            // of Carry: ahead of its home
  bool used = true;              // of GiveUp: as its steps have left it; else as it was brought
  std::optional<WriteBack> back; // of GiveUp: All or Dirty, in place of a release
  bool keeping = false;
  int64_t after = -1; // of Pace
};

struct CarriedOut {
  size_t moved = 0;
  uint32_t holding = 0;
  bool used = false; // as its steps have left it
  bool dirty = false;
};

struct MovementPlan {
  std::vector<Movement> movements;
  std::vector<CarriedOut> out;
  std::vector<int64_t> awaitedBefore; // by movable: the compute step that waits for what was brought; -1: none
  uint32_t holdings = 0;
  std::string error; // "'name' is used before its range is free", what of a cycle does not fit; else empty
};

// `carried`: what is there on entry, whole movables and bytes of the one after them; `back`: how tails get home.
MovementPlan planMovement(const Movables &movables, const Residency &residency, const Cut &carried, WriteBack back);
// Of phase `phase` of a cycle; `carried`: of weights.
MovementPlan planCycle(const Movables &movables, const Cycle &cycle, uint64_t phase, const Cut &carried,
                       WriteBack back);
// Which of these an iteration has, and what is there on entry.
struct PlannedIteration {
  std::optional<Cut> cut; // of its class, where that is decided
  WriteBack back = WriteBack::Mirror;
  bool bringsTails = true;
  uint64_t phase = 0, period = 1; // of the cycle of what is in places
};
MovementPlan planIteration(const Movables &movables, const Residency &residency, const PlannedIteration &iteration);
// What is there on entry by the start alone, or by the cut that is stated.
Cut carriedOnEntry(const Residency &residency, const Movables &movables, const std::optional<Cut> &cut);

} // namespace headrace::algorithms
