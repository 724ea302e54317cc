// SPDX-License-Identifier: Apache-2.0
//
// What the threads of a host device share: the caller, a compute thread of its own, and the transfer thread
// (TransferThread.h), which it may have together with other devices.
//
// The caller puts launches into a ring; each lane takes them in order. A lane's counter grows by one with each step and
// by one more at the end of each launch, over all launches, so that "step i of lane l in this launch" is base[l] + i +
// 1 and nothing is ever reset. A lane begins a launch when all lanes have ended the one before.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <vector>

#include "runtime/core/LaunchChecks.h"
#include "runtime/host/BesideCopies.h"
#include "runtime/host/Bus.h"
#include "runtime/host/HostGraph.h"
#include "runtime/host/Signals.h"
#include "runtime/threads/ThreadPool.h"

namespace headrace::host {

inline constexpr size_t kRing = 8;                   // launches, transitions included
inline constexpr size_t kTokenSlots = 4;             // iterations whose tokens can be read
inline constexpr uint64_t kStop = uint64_t{1} << 63; // value of Counter::Launched that ends the threads
inline constexpr uint64_t kChunkBytes = 256 * 1024; // of a copy: what one direction does before the other gets its turn

struct Launch {
  HostGraph *graph = nullptr;
  const kernels::IterationMeta *staging = nullptr; // null: a transition
  std::array<uint64_t, kHostLanes> base{};         // counters once all launches before have ended
  std::array<uint64_t, kHostLanes> end{};          // ... once this one has
  int64_t launchedNs = 0;
  core::LaunchInUse inUse; // what says which part of its copies is made; it is found when they start
};

struct TokenSlot {
  uint64_t iteration = 0;
  std::vector<int32_t> tokens; // as many as the plan has request slots
  int32_t count = 0;
  int64_t visibleNs = 0;
};

// Copies that a lane waits for, as the lane sees them (CopyEngines.h).
class LateCopies {
public:
  // Does what is late of them, if no other thread is at it: a chunk of each. `sinceNs`: when the lane's wait began.
  // Returns when to look again (CLOCK_MONOTONIC, ns), which is not later than now if it did something.
  virtual int64_t takeOver(int64_t sinceNs) = 0;

protected:
  ~LateCopies() = default;
};

struct Shared {
  // What the transfer thread and the caller sleep on where they serve several devices; null: a bell of this one.
  explicit Shared(Bell *transfer = nullptr, Bell *caller = nullptr) : signals({nullptr, transfer, caller}) {}

  Signals signals;
  std::array<Launch, kRing> ring;
  std::array<TokenSlot, kTokenSlots> tokens;

  core::Bases bases;
  kernels::IterationMeta *meta = nullptr; // in the arena
  core::Metas metas;
  const int32_t *output = nullptr; // in the arena
  bool trace = false;
  double directWriteRate = 0; // bytes/ns that direct steps write to the host; 0: not paced
  // Set before the compute lane runs.
  LateCopies *copies = nullptr;
  threads::ThreadPool *pool = nullptr;
  size_t poolLane = 0; // which of the pool's it is

  // Of a device with such a link; null: its copies are not paced, and neither is this.
  static double directWriteRateOf(const LinkSpeed *speed) {
    return speed == nullptr ? 0 : std::min(speed->d2h, speed->both) * 1e-9;
  }
  // How long so many bytes take at directWriteRate, rounded up.
  int64_t directWriteNs(uint64_t bytes) const {
    return directWriteRate > 0 ? static_cast<int64_t>(std::ceil(static_cast<double>(bytes) / directWriteRate)) : 0;
  }

  std::array<BesideRow, 2> beside; // by direction
  std::byte *swap = nullptr;       // where they copy to and from on the host; changes while there are none

  std::atomic<uint64_t> h2dBytes{0}, d2hBytes{0};
  std::atomic<int64_t> stallNs{0};
  // When each lane last ended a launch.
  std::array<std::atomic<int64_t>, kHostLanes> endedNs{};
};

// Runs the compute lane until Counter::Launched is kStop.
void runComputeLane(Shared &shared);

} // namespace headrace::host
