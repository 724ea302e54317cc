// SPDX-License-Identifier: Apache-2.0
//
// Virtual time: when each step of a schedule starts and ends, given how long each takes alone. The same code predicts a
// plan's time at compile time and plays it in SimDevice.
//
// Rules: the steps of a lane run one after another in their order; a step starts when its lane is free and every edge's
// source has ended. Copies share their link: h2d and d2h running together are slowed so that their rates add up to at
// most the duplex bandwidth; both share host memory with the cpu lane (LaneRates.h). Links that share a bus:
// core/BusShare.h.
//
//   lane      0    10    20    30    40   ns
//   compute   [ L0 ][ L1 ].....[ L2 ]         L2 waits for its weights: 10 ns of stall
//   h2d       [   L2's weights  ]
//
//   Simulator simulator(schedule);
//   Timeline t = simulator.run(variant.durationsNs, costs.sharing());
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "runtime/cost/CostModel.h"
#include "runtime/plan/value/Plan.h"
#include "runtime/sim/BesideCopies.h"

namespace headrace::sim {

struct StepTime {
  uint64_t startNs = 0;
  uint64_t endNs = 0;
};

struct Timeline {
  std::vector<StepTime> steps; // one a step of the schedule
  uint64_t iterationNs = 0;    // the end of the last step
  uint64_t computeEndNs = 0;   // of the compute lane's last step
  uint64_t publishNs = 0;      // when the tokens are visible; iterationNs without a Publish step
  uint64_t computeBusyNs = 0;
  uint64_t h2dBusyNs = 0, d2hBusyNs = 0; // of the lane's copies, slowed by each other where they share the link
  uint64_t cpuBusyNs = 0;                // of the cpu lane, slowed by copies where they share host memory
  uint64_t stallNs = 0;                  // compute lane idle before its last step, waiting for a copy
  uint64_t cpuWaitNs = 0;                // ... waiting for the cpu lane before that
};

// What of a schedule the simulator needs, prepared once. The schedule is one that holds Plan.h's rules: edges sorted by
// (to, from) with from < to < steps.size(), steps in an order in which they could run one by one.
class Simulator {
public:
  // Where the device is the CPU, as a host is, steps of the cpu lane take turns with the compute lane's, in the order
  // of the schedule; else they are beside them.
  explicit Simulator(const plan::Schedule &schedule, bool isCpu = false);
  Simulator(const plan::Plan &plan, const plan::Schedule &schedule)
      : Simulator(schedule, plan.hardware.kind == model::DeviceKind::Host) {}
  // One device alone on its link. A duplexShare of 2 means that directions do not disturb each other, 1 that together
  // they get what one gets alone; while both directions copy, each goes at duplexShare / 2 of its own rate (at most 1).
  // All times are whole nanoseconds: exact wherever nothing is shared, a copy that was slowed ends at the first
  // nanosecond at which all of it has been moved, and so does a step of the cpu lane.
  // durationsNs has one entry a step.
  Timeline run(absl::Span<const uint64_t> durationsNs, const cost::Sharing &sharing) const;
  // As run, writing into `out` without allocating once its vector has grown.
  void run(absl::Span<const uint64_t> durationsNs, const cost::Sharing &sharing, Timeline &out) const;
  // With copies beside it, all of which are ready as it starts, at startNs of their clock: they are played up to the
  // end of its last step.
  void run(absl::Span<const uint64_t> durationsNs, const cost::Sharing &sharing, BesideCopies &beside, int64_t startNs,
           Timeline &out) const;

private:
  struct Lane {
    uint32_t next = plan::kNone; // step; kNone: all have been played
    uint64_t freeNs = 0;
  };
  // The next of a lane whose steps may be slowed: a copy, or one of the cpu lane.
  struct Shared {
    bool known = false; // when it starts
    uint64_t startNs = 0;
    Progress left = 0;
    bool atWork(uint64_t now) const { return known && startNs <= now; }
  };
  bool ready(const StepTime *times, uint32_t step, uint64_t &startNs) const;
  bool timeLane(absl::Span<const uint64_t> durationsNs, Lane &lane, Timeline &out) const;
  bool playShared(absl::Span<const uint64_t> durationsNs, uint64_t now, Lane &lane, Shared &shared,
                  Timeline &out) const;
  void account(Timeline &out) const;

  std::vector<uint8_t> lane_;
  std::vector<uint32_t> edgeBegin_; // into edgeFrom_, size steps + 1
  std::vector<uint32_t> edgeFrom_;
  std::vector<uint32_t> nextInLane_; // plan::kNone at a lane's end
  std::array<uint32_t, plan::kLanes> firstInLane_;
  uint32_t publish_ = plan::kNone; // the last Publish step
};

} // namespace headrace::sim
