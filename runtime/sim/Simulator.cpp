// SPDX-License-Identifier: Apache-2.0
#include "runtime/sim/Simulator.h"

#include <algorithm>
#include <cassert>

#include "runtime/sim/TimedSchedule.h"

namespace headrace::sim {
namespace {

constexpr size_t kCompute = static_cast<size_t>(plan::Lane::Compute);
constexpr size_t kH2D = static_cast<size_t>(plan::Lane::H2D);
constexpr size_t kD2H = static_cast<size_t>(plan::Lane::D2H);
static_assert(kD2H == kH2D + 1);
constexpr bool isCopy(size_t lane) { return lane == kH2D || lane == kD2H; }

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

Timeline Simulator::run(absl::Span<const uint64_t> durationsNs, double duplexShare) const {
  Timeline out;
  run(durationsNs, duplexShare, out);
  return out;
}

void Simulator::run(absl::Span<const uint64_t> durationsNs, double duplexShare, Timeline &out) const {
  BesideCopies none;
  run(durationsNs, duplexShare, none, 0, out);
}

// Only copies that may slow each other are events, and their starts; all other steps are timed as soon as what they
// wait for has ended, ahead of the events.
void Simulator::run(absl::Span<const uint64_t> durationsNs, double duplexShare, BesideCopies &beside, int64_t startNs,
                    Timeline &out) const {
  assert(durationsNs.size() == lane_.size());
  out.steps.resize(lane_.size());
  for (StepTime &t : out.steps)
    t.endNs = kNotYet;
  std::array<Lane, plan::kLanes> lanes;
  for (size_t lane = 0; lane < plan::kLanes; ++lane)
    lanes[lane].next = firstInLane_[lane];
  const uint64_t bothRate = sharedRate(duplexShare);
  const bool shares =
      !beside.idle() || (bothRate < kFullRate && lanes[kH2D].next != plan::kNone && lanes[kD2H].next != plan::kNone);
  Copy copies[2];
  uint64_t now = 0;
  for (;;) {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t lane = 0; lane < plan::kLanes; ++lane)
        moved |= shares && isCopy(lane) ? playCopy(durationsNs, now, lanes[lane], copies[lane - kH2D], out)
                                        : timeLane(durationsNs, lanes[lane], out);
    }
    if (!shares)
      break;
    beside.endDone(startNs + static_cast<int64_t>(now));
    const BesideCopies::Rates rates = beside.rates(bothRate, {copies[0].atWork(now), copies[1].atWork(now)});
    Progress wait = kNotYet;
    for (size_t d = 0; d < 2; ++d)
      if (copies[d].atWork(now))
        wait = std::min(wait, nsLeft(copies[d].left, rates[d]));
      else if (copies[d].known)
        wait = std::min<Progress>(wait, copies[d].startNs - now);
    if (wait == kNotYet)
      break;
    const auto passed = static_cast<uint64_t>(beside.leastWait(rates, wait));
    beside.pass(rates, passed);
    for (size_t d = 0; d < 2; ++d)
      if (copies[d].atWork(now))
        copies[d].left -= std::min(copies[d].left, Progress{rates[d]} * passed);
    now += passed;
  }
  account(out);
  if (shares)
    beside.playAlone(startNs + static_cast<int64_t>(now), startNs + static_cast<int64_t>(out.iterationNs), bothRate);
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

// The next copy of a lane: looks when it starts, and ends it where all of it has been moved. True if it ended.
inline bool Simulator::playCopy(absl::Span<const uint64_t> durationsNs, uint64_t now, Lane &lane, Copy &copy,
                                Timeline &out) const {
  if (lane.next == plan::kNone)
    return false;
  if (!copy.known) {
    copy.startNs = lane.freeNs;
    copy.known = ready(out.steps.data(), lane.next, copy.startNs);
    copy.left = Progress{durationsNs[lane.next]} * kFullRate;
  }
  if (!copy.atWork(now) || copy.left != 0)
    return false;
  out.steps[lane.next] = {copy.startNs, now};
  lane.freeNs = now;
  lane.next = nextInLane_[lane.next];
  copy.known = false;
  return true;
}

void Simulator::account(Timeline &out) const {
  uint64_t busy[plan::kLanes] = {};
  out.iterationNs = 0;
  out.stallNs = 0;
  uint64_t computeFree = 0;
  for (size_t i = 0, n = lane_.size(); i < n; ++i) {
    const StepTime &t = out.steps[i];
    busy[lane_[i]] += t.endNs - t.startNs;
    out.iterationNs = std::max(out.iterationNs, t.endNs);
    if (lane_[i] != kCompute)
      continue;
    if (t.startNs > computeFree) {
      // Idle: the part of it in which only copies were still missing is a stall.
      uint64_t others = computeFree;
      for (uint32_t e = edgeBegin_[i]; e != edgeBegin_[i + 1]; ++e) {
        if (!movesBytes(static_cast<plan::Lane>(lane_[edgeFrom_[e]])))
          others = std::max(others, out.steps[edgeFrom_[e]].endNs);
      }
      out.stallNs += t.startNs - others;
    }
    computeFree = t.endNs;
  }
  out.computeEndNs = computeFree;
  out.computeBusyNs = busy[kCompute];
  out.h2dBusyNs = busy[kH2D];
  out.d2hBusyNs = busy[kD2H];
  out.publishNs = publish_ == plan::kNone ? out.iterationNs : out.steps[publish_].endNs;
}

} // namespace headrace::sim
