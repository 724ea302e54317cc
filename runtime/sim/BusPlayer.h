// SPDX-License-Identifier: Apache-2.0
//
// Virtual time of devices that share a bus, host memory and a CPU: plays their launches event by event, as what a copy
// takes depends on what the others copy meanwhile, and a step of a cpu lane on what the CPU does for others.
//
//   bus       =========== B ==========
//   device 0  h2d [ at B ][ at B/2  ]          two copies at once get half each (core/BusShare.h)
//   device 1  h2d          [ at B/2 ][ at B ]
//   device 0  cpu    [ step ]                  one at a time (CpuPool.h)
//   device 1  cpu    ........[ step ]
//
// Per device: launches one after another, lanes in order, edges, both directions of a link at work, all as in
// Simulator.h; a device alone on a bus that does not limit it has exactly the Simulator's times. Rates are GroupRates'.
//
// Only starts and ends of copies (and the ends of their latencies) and of the CPU's steps are events. What other steps
// take does not depend on anybody else, so they are timed as soon as what they wait for has ended, ahead of the clock.
// What was slowed ends at the first nanosecond at which all of it has been done, to 2^-32 of its rate.
//
// Allocates where a device is opened, and while a queue of launches grows beyond its longest so far.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "runtime/core/BusShare.h"
#include "runtime/core/Device.h"
#include "runtime/sim/BesideCopies.h"
#include "runtime/sim/CpuPool.h"
#include "runtime/sim/GroupRates.h"
#include "runtime/sim/TimedSchedule.h"

namespace headrace::sim {

// Of one launch; each is known once nothing that happens later can change it, at the latest when the clock is there.
struct LaunchTimes {
  int64_t visibleNs = kUnknownNs; // when its tokens are: the end of its Publish step, or of the launch
  int64_t endNs = kUnknownNs;
};

class BusPlayer {
public:
  BusPlayer(size_t devices, const core::PathLimits &bus);
  int64_t nowNs() const { return now_; }

  // Makes room for launches of up to `steps` steps; with `trace`, their times are kept. No launch may be under way.
  void open(size_t device, size_t steps, bool trace, const cost::Sharing &sharing);
  // Appends a launch at this moment, whose resizable copies copy what is in use. Schedule and times (null: not asked
  // for) stay until it has ended.
  void launch(size_t device, const TimedSchedule &schedule, LaunchTimes *times, const core::LaunchInUse &inUse = {});
  // Copies beside launches (BesideCopies.h), behind all launches made so far. Returns their ticket.
  uint64_t copyBeside(size_t device, absl::Span<const core::BlockCopy> copies, const LinkRates &link);
  const BesideCopies &beside(size_t device) const { return devices_[device].beside; }

  // Plays until `moment`, a time of a launch made, is known, and lets time pass to it. False if it never comes: the
  // schedule's steps wait for each other.
  bool passUntil(const int64_t &moment);
  // All launches of a device have ended, and all copies beside them.
  bool passUntilIdle(size_t device);
  // Plays until one of `moments` (null: not waited for) has come or `untilNs` is reached, and lets time pass to
  // whichever is earlier. The index of the earliest moment, the lowest of equal ones; moments.size() if none came.
  size_t passUntilAny(absl::Span<const int64_t *const> moments, int64_t untilNs);

  // Bytes/s, host to device, from now on.
  void setBusBandwidth(double bytesPerSecond);
  // Of core::DeviceGroup.
  double sampleBusBandwidth();

  int64_t stallNs(size_t device) const { return devices_[device].stallNs; } // of the launches timed so far
  absl::Span<const core::StepTime> trace(size_t device) const { return devices_[device].trace; } // of the last launch
  bool traces(size_t device) const { return devices_[device].traced; }

private:
  enum class CopyState : uint8_t { Idle, Pending, Latency, Flow };
  struct Copy { // of one direction of one device
    CopyState state = CopyState::Idle;
    const TimedStep *step = nullptr;
    uint64_t ns = 0; // the step's, of the size that it has in its launch
    int64_t startNs = 0;
    unsigned __int128 left = 0; // at sinceNs, in 2^-32 ns of its own rate
    uint64_t rate = 0;          // 2^32: its own
    int64_t sinceNs = 0;
  };
  struct LaneState {
    const TimedStep *next = nullptr, *end = nullptr;
    uint32_t edge = 0;         // the first of next's that has not been looked at
    int64_t readyNs = 0;       // when those looked at were there,
    int64_t othersReadyNs = 0; // those of them that are no movements
    int64_t freeNs = 0;
  };
  struct Launch {
    const TimedSchedule *schedule = nullptr;
    LaunchTimes *times = nullptr;
    int64_t madeNs = 0;
    core::LaunchInUse inUse;
  };
  struct Device {
    std::vector<Launch> queue; // a ring; [first] is the one being played
    size_t first = 0, queued = 0;
    bool playing = false;
    uint64_t made = 0, ended = 0; // launches
    BesideCopies beside;
    std::array<TimedStep, 2> besideSteps; // of its copies under way
    std::array<int64_t, 2> besideFreeNs{};
    std::array<LaneState, plan::kLanes> lanes;
    size_t left = 0;            // steps without an end
    std::vector<int64_t> endNs; // one a step of the launch, kUnknownNs
    int64_t lastEndNs = 0;      // of the steps so far, over all launches
    int64_t stallNs = 0;
    bool traced = false;
    std::vector<core::StepTime> trace;
  };

  Copy &copy(size_t device, size_t direction) { return copies_[kRows * device + direction]; }
  void play(size_t device);
  void begin(Device &device);
  bool timeLane(Device &device, size_t lane);
  bool queueCopy(size_t device, size_t direction);
  bool queueOnCpu(size_t device);
  void queueBeside(size_t device);
  bool ready(const Device &device, const TimedSchedule &schedule, LaneState &lane) const;
  void endStep(Device &device, const TimedStep &step, int64_t startNs, int64_t endNs);
  void endEvent(size_t device, size_t lane, const TimedStep &step, int64_t startNs, int64_t endNs);
  int64_t nextEventNs() const;
  void passTo(int64_t ns);
  void playEventsAt(int64_t ns);
  void playCopy(size_t index, int64_t ns);
  bool playCpu(int64_t ns);
  void share(int64_t ns);
  void predict(size_t index);
  void account(int64_t ns);

  GroupRates rates_;
  CpuPool cpu_;
  std::vector<Device> devices_;
  static constexpr size_t kRows = GroupRates::kRows, kBeside = GroupRates::kBeside;
  std::vector<Copy> copies_;     // kRows a device
  std::vector<int64_t> eventNs_; // of each copy: its start, the end of its latency or its own
  bool stale_ = false;           // the rates
  int64_t now_ = 0;

  // Since the last sample.
  int64_t accountedNs_ = 0;
  double slowedNs_ = 0, slowedBytes_ = 0;
};

} // namespace headrace::sim
