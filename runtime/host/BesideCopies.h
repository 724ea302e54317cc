// SPDX-License-Identifier: Apache-2.0
//
// Copies beside launches (core/BesideCopies.h) on the transfer thread: of each direction one row of them, in the order
// asked for, a chunk in turn with the copies of launches.
//
//   caller            ask() -> row of each direction -> Counter::BesideH2D, BesideD2H: asked for so far
//   transfer thread   BesideEngine takes the first once the launches made before it have ended
//                     -> Counter::BesideH2DEnded, BesideD2HEnded: ended so far
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "runtime/core/BesideCopies.h"
#include "runtime/core/GraphSteps.h"
#include "runtime/host/Bus.h"
#include "runtime/host/Signals.h"

namespace headrace::host {

struct Shared;

// A copy that was asked for.
struct BesideCopy {
  core::BlockCopy copy;
  std::array<uint64_t, kHostLanes> after{}; // the lanes' counters once all launches before it have ended
  int64_t askedNs = 0;
};

// Those of one direction that have not ended; one thread adds, another takes.
class BesideRow {
public:
  void add(const BesideCopy &copy);
  BesideCopy at(uint64_t number) const; // one that was added and not given up
  void giveUpBefore(uint64_t number);

private:
  mutable std::mutex mutex_;
  core::Ring<BesideCopy, 1024> copies_;
};

constexpr Counter besideAsked(Direction direction) {
  return direction == Direction::HostToDevice ? Counter::BesideH2D : Counter::BesideD2H;
}
constexpr Counter besideEnded(Direction direction) {
  return direction == Direction::HostToDevice ? Counter::BesideH2DEnded : Counter::BesideD2HEnded;
}

// One direction's copies beside launches; stepped as CopyEngine is.
class BesideEngine {
public:
  // `bus` paces the copies, over `link`; null: as fast as memcpy.
  BesideEngine(Shared &shared, Direction direction, Bus *bus, uint32_t link);

  // Goes as far as it can without waiting, but copies at most one chunk. False if it did nothing.
  bool advance();
  // What it waits for when advance() has done nothing.
  void addWaits(std::array<uint64_t, kCounters> &wanted, int64_t &deadlineNs) const;

private:
  bool reached(const Want &want); // if not, that is what it is blocked on
  bool begin();
  bool copyChunk();
  bool ended();
  void end();

  Shared &s_;
  const Direction direction_;
  Bus *bus_;
  const uint32_t link_;

  uint64_t ended_ = 0;
  bool copying_ = false;
  BesideCopy now_; // while copying
  uint64_t copied_ = 0;
  int64_t readyNs_ = 0; // when the one before it had ended
  Want blockedOn_{Counter::BesideH2D, 0};
};

} // namespace headrace::host
