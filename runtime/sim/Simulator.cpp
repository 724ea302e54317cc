// SPDX-License-Identifier: Apache-2.0
#include "runtime/sim/Simulator.h"

#include <algorithm>
#include <cassert>

#include "runtime/sim/LaneRates.h"
#include "runtime/sim/TimedSchedule.h"

namespace headrace::sim {
namespace {

constexpr size_t kCompute = static_cast<size_t>(plan::Lane::Compute);
constexpr size_t kH2D = static_cast<size_t>(plan::Lane::H2D);
constexpr size_t kD2H = static_cast<size_t>(plan::Lane::D2H);
constexpr size_t kCpu = static_cast<size_t>(plan::Lane::Cpu);
static_assert(kD2H == kH2D + LaneRates::kD2H && kCpu == kH2D + LaneRates::kCpu);

constexpr uint64_t kNotYet = ~uint64_t{0};

} // namespace

Simulator::Simulator(const plan::Schedule &schedule, bool isCpu) {
  const size_t n = schedule.steps.size();
  lane_.reserve(n);
  nextInLane_.assign(n, plan::kNone);
  firstInLane_.fill(plan::kNone);
  uint32_t last[plan::kLanes];
  std::fill(std::begin(last), std::end(last), plan::kNone);
  for (uint32_t i = 0; i < n; ++i) {
    const auto lane = static_cast<size_t>(playedIn(schedule.steps[i].lane, isCpu));
    assert(lane < plan::kLanes);
    lane_.push_back(static_cast<uint8_t>(lane));
    (last[lane] == plan::kNone ? firstInLane_[lane] : nextInLane_[last[lane]]) = i;
    last[lane] = i;
    if (schedule.steps[i].kind == plan::StepKind::Publish)
      publish_ = i;
  }
  edgeBegin_.reserve(n + 1);
  edgeFrom_.reserve(schedule.edges.size());
  size_t e = 0;
  for (uint32_t i = 0; i < n; ++i) {
    edgeBegin_.push_back(static_cast<uint32_t>(e));
    for (; e < schedule.edges.size() && schedule.edges[e].to == i; ++e) {
      assert(schedule.edges[e].from < i);
      edgeFrom_.push_back(schedule.edges[e].from);
    }
  }
  edgeBegin_.push_back(static_cast<uint32_t>(e));
  assert(e == schedule.edges.size());
}

Timeline Simulator::run(absl::Span<const uint64_t> durationsNs, const cost::Sharing &sharing) const {
  Timeline out;
  run(durationsNs, sharing, out);
  return out;
}

void Simulator::run(absl::Span<const uint64_t> durationsNs, const cost::Sharing &sharing, Timeline &out) const {
  BesideCopies none;
  run(durationsNs, sharing, none, 0, out);
}

// Only steps that may slow each other are events, and their starts; all other steps are timed as soon as what they
// wait for has ended, ahead of the events.
void Simulator::run(absl::Span<const uint64_t> durationsNs, const cost::Sharing &sharing, BesideCopies &beside,
                    int64_t startNs, Timeline &out) const {
  assert(durationsNs.size() == lane_.size());
  out.steps.resize(lane_.size());
  for (StepTime &t : out.steps)
    t.endNs = kNotYet;
  std::array<Lane, plan::kLanes> lanes;
  for (size_t lane = 0; lane < plan::kLanes; ++lane)
    lanes[lane].next = firstInLane_[lane];
  const LaneRates laneRates(sharing);
  const auto has = [&](size_t lane) { return lanes[lane].next != plan::kNone; };
  const bool shares = !beside.idle() || laneRates.slows({has(kH2D), has(kD2H), has(kCpu)});
  const auto isEvent = [&](size_t lane) {
    return shares && (lane == kCpu ? laneRates.cpuShares() : lane == kH2D || lane == kD2H);
  };
  std::array<Shared, 3> shared;
  uint64_t now = 0;
  for (;;) {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t lane = 0; lane < plan::kLanes; ++lane)
        moved |= isEvent(lane) ? playShared(durationsNs, now, lanes[lane], shared[lane - kH2D], out)
                               : timeLane(durationsNs, lanes[lane], out);
    }
    if (!shares)
      break;
    beside.endDone(startNs + static_cast<int64_t>(now));
    const LaneRates::AtWork atWork = {shared[0].atWork(now), shared[1].atWork(now), shared[2].atWork(now)};
    const BesideCopies::Rates ofCopies = beside.rates(laneRates, atWork);
    const std::array<uint64_t, 3> rates = {ofCopies[0], ofCopies[1],
                                           laneRates.of(LaneRates::kCpu, beside.atWork(atWork))};
    Progress wait = kNotYet;
    for (size_t i = 0; i < shared.size(); ++i)
      if (atWork[i])
        wait = std::min(wait, nsLeft(shared[i].left, rates[i]));
      else if (shared[i].known)
        wait = std::min<Progress>(wait, shared[i].startNs - now);
    if (wait == kNotYet)
      break;
    const auto passed = static_cast<uint64_t>(beside.leastWait(ofCopies, wait));
    beside.pass(ofCopies, passed);
    for (size_t i = 0; i < shared.size(); ++i)
      if (atWork[i])
        shared[i].left -= std::min(shared[i].left, Progress{rates[i]} * passed);
    now += passed;
  }
  account(out);
  if (shares)
    beside.playAlone(startNs + static_cast<int64_t>(now), startNs + static_cast<int64_t>(out.iterationNs), laneRates);
}

// Whether all that a step waits for has a known end: startNs becomes the latest of them, if it was earlier.
inline bool Simulator::ready(const StepTime *times, uint32_t step, uint64_t &startNs) const {
  for (uint32_t e = edgeBegin_[step]; e != edgeBegin_[step + 1]; ++e) {
    const uint64_t endNs = times[edgeFrom_[e]].endNs;
    if (endNs == kNotYet)
      return false;
    startNs = std::max(startNs, endNs);
  }
  return true;
}

// The steps of a lane that shares nothing, as far as they depend on nothing unknown. True if it got anywhere.
inline bool Simulator::timeLane(absl::Span<const uint64_t> durationsNs, Lane &lane, Timeline &out) const {
  Lane at = lane; // apart from what is written to `times`
  StepTime *const times = out.steps.data();
  while (at.next != plan::kNone) {
    uint64_t startNs = at.freeNs;
    if (!ready(times, at.next, startNs))
      break;
    at.freeNs = startNs + durationsNs[at.next];
    times[at.next] = {startNs, at.freeNs};
    at.next = nextInLane_[at.next];
  }
  const bool moved = at.next != lane.next;
  lane = at;
  return moved;
}

// The next step of a lane: looks when it starts, and ends it where all of it has been done. True if it ended.
inline bool Simulator::playShared(absl::Span<const uint64_t> durationsNs, uint64_t now, Lane &lane, Shared &shared,
                                  Timeline &out) const {
  if (lane.next == plan::kNone)
    return false;
  if (!shared.known) {
    shared.startNs = lane.freeNs;
    shared.known = ready(out.steps.data(), lane.next, shared.startNs);
    shared.left = Progress{durationsNs[lane.next]} * kFullRate;
  }
  if (!shared.atWork(now) || shared.left != 0)
    return false;
  out.steps[lane.next] = {shared.startNs, now};
  lane.freeNs = now;
  lane.next = nextInLane_[lane.next];
  shared.known = false;
  return true;
}

void Simulator::account(Timeline &out) const {
  uint64_t busy[plan::kLanes] = {};
  out.iterationNs = 0;
  out.stallNs = out.cpuWaitNs = 0;
  uint64_t computeFree = 0;
  for (size_t i = 0, n = lane_.size(); i < n; ++i) {
    const StepTime &t = out.steps[i];
    busy[lane_[i]] += t.endNs - t.startNs;
    out.iterationNs = std::max(out.iterationNs, t.endNs);
    if (lane_[i] != kCompute)
      continue;
    if (t.startNs > computeFree) {
      // Idle: the part of it in which only copies were still missing is a stall, and that before it in which only
      // those and the cpu lane were is a wait for that.
      uint64_t others = computeFree, cpu = computeFree;
      for (uint32_t e = edgeBegin_[i]; e != edgeBegin_[i + 1]; ++e) {
        const uint8_t lane = lane_[edgeFrom_[e]];
        if (!movesBytes(static_cast<plan::Lane>(lane)))
          (lane == kCpu ? cpu : others) = std::max(lane == kCpu ? cpu : others, out.steps[edgeFrom_[e]].endNs);
      }
      cpu = std::max(cpu, others);
      out.cpuWaitNs += cpu - others;
      out.stallNs += t.startNs - cpu;
    }
    computeFree = t.endNs;
  }
  out.computeEndNs = computeFree;
  out.computeBusyNs = busy[kCompute];
  out.h2dBusyNs = busy[kH2D];
  out.d2hBusyNs = busy[kD2H];
  out.cpuBusyNs = busy[kCpu];
  out.publishNs = publish_ == plan::kNone ? out.iterationNs : out.steps[publish_].endNs;
}

} // namespace headrace::sim
