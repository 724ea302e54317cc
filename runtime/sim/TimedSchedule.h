// SPDX-License-Identifier: Apache-2.0
//
// A schedule with its durations, laid out for being played step by step beside others (BusPlayer.h): the steps by lane
// in their order, edges as the steps they come from.
//
// What a copy asks of the bus: nothing during its latency, then its bytes at the link's rate.
//
//   duration  [ latency | bytes at the link's rate ]
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/core/InUse.h"
#include "runtime/cost/CostModel.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::sim {

// Progress of a copy is counted in 2^-32 of a nanosecond's worth of its own rate.
inline constexpr uint64_t kFullRate = uint64_t{1} << 32;

// The rate of both copies while both directions are at work: duplexShare / 2 of their own, at most all of it.
uint64_t sharedRate(double duplexShare);

// Whether a lane's steps are movements: what the compute lane stalls for.
constexpr bool movesBytes(plan::Lane lane) { return !plan::computes(lane); }
// Where a device plays the steps of a lane: one that is the CPU has no cpu lane beside its compute lane.
constexpr plan::Lane playedIn(plan::Lane lane, bool isCpu) {
  return isCpu && lane == plan::Lane::Cpu ? plan::Lane::Compute : lane;
}

// How a compute step is priced.
constexpr cost::How howOf(const plan::Step &step) {
  return step.lane == plan::Lane::Cpu ? cost::How::OnCpu : step.direct ? cost::How::Direct : cost::How::OnDevice;
}

// Bytes/s of the link alone, and the part of a copy's duration in which nothing flows.
struct LinkRates {
  double h2d = 0, d2h = 0;
  uint64_t latencyNs = 0;
};
// The profile's, or `linkBandwidth` bytes/s a direction where it is not 0.
LinkRates linkRates(const model::Hardware &hardware, double linkBandwidth);

// A copy of which a launch may do only what is in use.
struct SizedTime {
  uint32_t step = 0; // in the schedule
  bool toDevice = true;
  core::SizedCopy size;
  uint64_t ns = 0;        // of all its bytes, alone on its lane
  uint64_t latencyNs = 0; // the beginning of ns, whatever the size

  // The flowing part is as long as the bytes are many.
  uint64_t nsOf(uint64_t bytes) const;
};
// The resizable copies of a schedule, in the order of its steps. `newTokens`: of the variant that the durations are of,
// which price its rows of a residual stream. Refuses what core::sizedCopy() does.
absl::StatusOr<std::vector<SizedTime>> sizedTimes(const plan::Plan &plan, const plan::Schedule &schedule,
                                                  absl::Span<const uint64_t> durationsNs, int64_t newTokens,
                                                  const LinkRates &link);

struct TimedStep {
  uint64_t ns = 0;                     // alone on its lane
  uint32_t step = 0;                   // in the schedule
  uint32_t edgeBegin = 0, edgeEnd = 0; // into edges
  uint32_t sized = plan::kNone;        // into sized: of a resizable copy
  // Of copies that take of the bus:
  uint64_t latencyNs = 0;     // the beginning of ns
  double bytesPerNs = 0;      // over the rest of ns; 0: takes nothing
  double askedBytesPerNs = 0; // of the bus: the same, or the link's rate where the difference is rounding
};

// A copy of no schedule, over the link alone.
TimedStep timedCopy(uint64_t bytes, bool toDevice, const LinkRates &link);

struct TimedSchedule {
  static constexpr uint32_t kMoves = uint32_t{1} << 31; // flag of an edge: it comes from a movement

  // One duration a step; `sized`: as sizedTimes() has them. Direct reads of compute steps ask nothing of the bus: as in
  // Simulator, their price is all there is to them.
  // `isCpu`: as Simulator has it.
  TimedSchedule(const plan::Schedule &schedule, absl::Span<const uint64_t> durationsNs, const LinkRates &link,
                std::vector<SizedTime> sized = {}, bool isCpu = false);

  std::vector<TimedStep> steps;                       // by lane
  std::array<uint32_t, plan::kLanes + 1> laneBegin{}; // into steps
  std::vector<uint32_t> edges;                        // step in the schedule | kMoves
  std::vector<SizedTime> sized;
  uint32_t publish = plan::kNone; // the last Publish step
};

} // namespace headrace::sim
