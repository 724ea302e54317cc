// SPDX-License-Identifier: Apache-2.0
//
// How long iterations of a choice take with as much of the caches in use as requests have: what a search compares
// choices by. Nothing is packed, so a choice is played in a fraction of what laying it out takes; times are those of
// the compiled plan all the same, as no time depends on an address.
//
//   caches of 100 blocks, 40 of them on the device, 2 sequences at a context of 320 tokens, 16 a block:
//   in use 2 x 20 + 1 = 41 blocks, so that one of the 60 that are away is brought, not all of them
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/evaluate/AddPlaced.h"
#include "runtime/core/InUse.h"

namespace headrace::compiler {

// An iteration of every mini-batch: its bucket, and how many tokens each sequence has.
struct PlayPoint {
  plan::IterationClass iterationClass = plan::IterationClass::Decode;
  cost::Bucket bucket;
  int64_t context = 0;   // at most the bucket's
  int64_t sequences = 0; // with rows, at most the bucket's; 0: all of them
  // Blocks of a cache that the whole batch has, the scratch block left out, and how many of them, the last, this writes
  // to; 0: those of the bucket's sequences at that context.
  int64_t blocks = 0, written = 0;
  bool whole = false; // copies bring all that they may, whatever is in use
  bool operator==(const PlayPoint &) const = default;
};

struct Played {
  uint64_t ns = 0;        // of a cycle of iterations the mean
  uint64_t slowestNs = 0; // of a cycle
  uint64_t headNs = 0;    // until its tokens are visible; behind them it may copy for the next
  uint64_t computeNs = 0; // the lane alone
  uint64_t layersNs = 0;  // of that what layers compute
  uint64_t linkNs = 0;    // the longer of both directions alone
  uint64_t cpuNs = 0;     // the cpu lane alone, beside a device
  uint64_t h2dBytes = 0, d2hBytes = 0;
};

class Player {
public:
  // All outlive it.
  explicit Player(Iterations &iterations);

  // By point. An error is a residency that cannot be played (placeCandidate).
  absl::StatusOr<std::vector<Played>> play(const Candidate &candidate, const std::vector<PlayPoint> &points);

  // What each mini-batch of an iteration has in use at a point; `written` blocks of decode are those that its rows go
  // to.
  core::InUse inUse(const PlayPoint &point) const;

private:
  Iterations &iterations_;
  plan::Plan plan_; // buffers; placements and schedules of one candidate at a time
  sim::Timeline timeline_;
};

} // namespace headrace::compiler
