// SPDX-License-Identifier: Apache-2.0
//
// One direction of a device's link: its copies of all launches in order, a chunk at a time while they cross the link.
// One thread at a time runs it (CopyEngines.h).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "runtime/host/Bus.h"
#include "runtime/host/Lanes.h"

namespace headrace::host {

class CopyEngine {
public:
  // `bus` paces the copies, over `link`; null: as fast as memcpy.
  CopyEngine(Shared &shared, Direction direction, Bus *bus, uint32_t link);

  // Goes as far as it can without waiting, but copies at most one chunk. False if it did nothing.
  bool advance();

  // What it waits for when advance() has done nothing: a counter, or the time of the next bytes. For the end of a copy
  // it wakes early enough to announce it, and to spin at the end.
  void addWaits(std::array<uint64_t, kCounters> &wanted, int64_t &deadlineNs) const;

private:
  const Launch &launch() const { return s_.ring[launches_ % kRing]; }
  std::vector<LaneStep> &steps() const { return launch().graph->lanes[lane_]; }
  LaneStep &step() const { return steps()[next_]; }
  bool reached(const Want &want); // if not, that is what it is blocked on
  bool begin();
  bool copyChunk();
  bool ended();
  void announceEnd();
  void endStep(int64_t endNs);

  Shared &s_;
  const Direction direction_;
  const size_t lane_;
  const Counter counter_;
  std::atomic<uint64_t> &bytes_;
  Bus *bus_;
  const uint32_t link_;

  uint64_t launches_ = 0; // ended
  bool inLaunch_ = false;
  size_t next_ = 0; // step
  bool copying_ = false;
  bool announced_ = false;       // that it will soon have ended
  uint64_t from_ = 0, size_ = 0; // of the copy, in this launch
  uint64_t copied_ = 0;
  int64_t startNs_ = 0;
  int64_t readyNs_ = 0; // when the last of what the next copy waits for had happened, however late it was looked at
  int64_t previousSeenNs_ = 0;
  Want blockedOn_{Counter::Launched, 0};
};

} // namespace headrace::host
