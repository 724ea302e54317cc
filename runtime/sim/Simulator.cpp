// SPDX-License-Identifier: Apache-2.0
#include "runtime/sim/Simulator.h"

#include <algorithm>
#include <cassert>

#include "runtime/sim/TimedSchedule.h"

namespace headrace::sim {
namespace {

constexpr int kCompute = static_cast<int>(plan::Lane::Compute);
constexpr int kH2D = static_cast<int>(plan::Lane::H2D);
constexpr int kD2H = static_cast<int>(plan::Lane::D2H);

constexpr uint64_t kNotYet = ~uint64_t{0};

} // namespace

Simulator::Simulator(const plan::Schedule &schedule) {
  const size_t n = schedule.steps.size();
  lane_.reserve(n);
  nextInLane_.assign(n, plan::kNone);
  std::fill(std::begin(firstInLane_), std::end(firstInLane_), plan::kNone);
  uint32_t last[plan::kLanes];
  std::fill(std::begin(last), std::end(last), plan::kNone);
  bool copies[plan::kLanes] = {};
  for (uint32_t i = 0; i < n; ++i) {
    const int lane = static_cast<int>(schedule.steps[i].lane);
    assert(lane < plan::kLanes);
    lane_.push_back(static_cast<uint8_t>(lane));
    (last[lane] == plan::kNone ? firstInLane_[lane] : nextInLane_[last[lane]]) = i;
    last[lane] = i;
    copies[lane] = true;
    if (schedule.steps[i].kind == plan::StepKind::Publish)
      publish_ = i;
  }
  bothDirections_ = copies[kH2D] && copies[kD2H];
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
  assert(durationsNs.size() == lane_.size());
  out.steps.resize(lane_.size());
  if (bothDirections_ && duplexShare < 2.0) {
    BesideCopies none;
    runShared(durationsNs, sharedRate(duplexShare), none, 0, out);
  } else {
    runAlone(durationsNs, out);
  }
  account(out);
}

void Simulator::run(absl::Span<const uint64_t> durationsNs, double duplexShare, BesideCopies &beside, int64_t startNs,
                    Timeline &out) const {
  assert(durationsNs.size() == lane_.size());
  out.steps.resize(lane_.size());
  runShared(durationsNs, sharedRate(duplexShare), beside, startNs, out);
  account(out);
}

// Nothing is shared: a step's end depends only on steps before it, so one pass in plan order is enough.
void Simulator::runAlone(absl::Span<const uint64_t> durationsNs, Timeline &out) const {
  uint64_t free[plan::kLanes] = {};
  StepTime *times = out.steps.data();
  for (size_t i = 0, n = lane_.size(); i < n; ++i) {
    uint64_t start = free[lane_[i]];
    for (uint32_t e = edgeBegin_[i]; e != edgeBegin_[i + 1]; ++e)
      start = std::max(start, times[edgeFrom_[e]].endNs);
    const uint64_t end = start + durationsNs[i];
    times[i] = {start, end};
    free[lane_[i]] = end;
  }
}

// Lanes advance together from event to event. `left` is what remains of each lane's running step; between events it
// falls by the lane's rate a nanosecond. Copies beside the launch have what is left of theirs.
void Simulator::runShared(absl::Span<const uint64_t> durationsNs, uint64_t sharedRate, BesideCopies &beside,
                          int64_t startNs, Timeline &out) const {
  using Wide = Progress;
  for (StepTime &t : out.steps)
    t.endNs = kNotYet;
  uint32_t head[plan::kLanes];
  std::copy(std::begin(firstInLane_), std::end(firstInLane_), head);
  bool running[plan::kLanes] = {};
  Wide left[plan::kLanes] = {};
  uint64_t now = 0;
  for (;;) {
    // A step of no length ends where it starts and may let others start, so repeat until nothing moves.
    for (bool moved = true; moved;) {
      moved = false;
      for (int lane = 0; lane < plan::kLanes; ++lane) {
        const uint32_t step = head[lane];
        if (step == plan::kNone)
          continue;
        if (!running[lane]) {
          bool ready = true;
          for (uint32_t e = edgeBegin_[step]; ready && e != edgeBegin_[step + 1]; ++e)
            ready = out.steps[edgeFrom_[e]].endNs != kNotYet;
          if (!ready)
            continue;
          running[lane] = true;
          left[lane] = static_cast<Wide>(durationsNs[step]) * kFullRate;
          out.steps[step].startNs = now;
        }
        if (left[lane] == 0) {
          out.steps[step].endNs = now;
          running[lane] = false;
          head[lane] = nextInLane_[step];
          moved = true;
        }
      }
    }
    for (size_t d = 0; d < 2; ++d)
      while (!beside.empty(d) && beside.left(d) == 0)
        beside.endFront(d, startNs + static_cast<int64_t>(now));
    const bool toDevice = running[kH2D] || !beside.empty(0), toHost = running[kD2H] || !beside.empty(1);
    const auto rowRate = [&](bool others, size_t d, int lane) {
      return rateBeside(sharedRate, others, running[lane] && !beside.empty(d));
    };
    const uint64_t copyRate[2] = {rowRate(toHost, 0, kH2D), rowRate(toDevice, 1, kD2H)};
    uint64_t rate[plan::kLanes];
    uint64_t wait = kNotYet;
    for (int lane = 0; lane < plan::kLanes; ++lane) {
      rate[lane] = lane == kH2D ? copyRate[0] : lane == kD2H ? copyRate[1] : kFullRate;
      if (running[lane])
        wait = std::min(wait, static_cast<uint64_t>((left[lane] + rate[lane] - 1) / rate[lane]));
    }
    if (wait == kNotYet)
      return;
    for (size_t d = 0; d < 2; ++d)
      if (!beside.empty(d))
        wait = static_cast<uint64_t>(std::min<Wide>(wait, (beside.left(d) + copyRate[d] - 1) / copyRate[d]));
    now += wait;
    for (size_t d = 0; d < 2; ++d)
      if (!beside.empty(d))
        beside.left(d) -= std::min(beside.left(d), static_cast<Wide>(copyRate[d]) * wait);
    for (int lane = 0; lane < plan::kLanes; ++lane) {
      const Wide done = static_cast<Wide>(rate[lane]) * wait;
      left[lane] = running[lane] && left[lane] > done ? left[lane] - done : 0;
    }
  }
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
