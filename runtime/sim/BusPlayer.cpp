// SPDX-License-Identifier: Apache-2.0
#include "runtime/sim/BusPlayer.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace headrace::sim {
namespace {

constexpr size_t kCompute = static_cast<size_t>(plan::Lane::Compute);
constexpr size_t kH2D = static_cast<size_t>(plan::Lane::H2D);
constexpr size_t kD2H = static_cast<size_t>(plan::Lane::D2H);
constexpr size_t kCpu = static_cast<size_t>(plan::Lane::Cpu);
constexpr size_t kFirstQueue = 8;

core::PathLimits perNs(const core::PathLimits &limits) {
  return {limits.h2d * 1e-9, limits.d2h * 1e-9, limits.both * 1e-9};
}

} // namespace

BusPlayer::BusPlayer(size_t devices, const core::PathLimits &bus)
    : rates_(devices, perNs(bus)), cpu_(devices), devices_(devices), copies_(kRows * devices),
      eventNs_(kRows * devices, kNeverNs) {}

void BusPlayer::open(size_t index, size_t steps, bool trace, const cost::Sharing &sharing) {
  Device &device = devices_[index];
  assert(device.queued == 0 && device.beside.idle());
  rates_.open(index, sharing);
  device.beside.clear();
  device.besideFreeNs = {};
  device.endNs.reserve(steps);
  device.queue.resize(std::max(device.queue.size(), kFirstQueue));
  device.stallNs = 0;
  device.traced = trace;
  device.trace.clear();
  if (trace)
    device.trace.reserve(steps);
}

void BusPlayer::launch(size_t index, const TimedSchedule &schedule, LaunchTimes *times,
                       const core::LaunchInUse &inUse) {
  Device &device = devices_[index];
  if (device.queued == device.queue.size()) {
    std::rotate(device.queue.begin(), device.queue.begin() + static_cast<std::ptrdiff_t>(device.first),
                device.queue.end());
    device.first = 0;
    device.queue.resize(2 * device.queue.size());
  }
  if (times != nullptr)
    *times = {};
  ++device.made;
  device.queue[(device.first + device.queued++) % device.queue.size()] = {&schedule, times, now_, inUse};
  if (!device.playing)
    play(index);
}

uint64_t BusPlayer::copyBeside(size_t index, absl::Span<const core::BlockCopy> copies, const LinkRates &link) {
  Device &device = devices_[index];
  const int64_t readyNs = device.queued == 0 ? std::max(now_, device.lastEndNs) : kUnknownNs;
  const uint64_t ticket = device.beside.ask(copies, link, device.made, readyNs, now_);
  queueBeside(index);
  return ticket;
}

// The first copy of each row becomes an event, once it is known when it may start.
void BusPlayer::queueBeside(size_t index) {
  Device &device = devices_[index];
  for (size_t d = 0; d < 2; ++d) {
    Copy &next = copy(index, kBeside + d);
    if (next.state != CopyState::Idle || device.beside.empty(d) || device.beside.front(d).readyNs == kUnknownNs)
      continue;
    device.besideSteps[d] = device.beside.front(d).timed;
    next.state = CopyState::Pending;
    next.step = &device.besideSteps[d];
    next.ns = next.step->ns;
    next.startNs = next.sinceNs = std::max(device.beside.front(d).readyNs, device.besideFreeNs[d]);
    eventNs_[kRows * index + kBeside + d] = next.startNs;
  }
}

// The next launch, at the end of the one before.
void BusPlayer::begin(Device &device) {
  const Launch &launch = device.queue[device.first];
  const TimedSchedule &schedule = *launch.schedule;
  const int64_t startNs = std::max(launch.madeNs, device.lastEndNs);
  const int64_t computeFreeNs = device.lanes[kCompute].freeNs; // since then for copies of the launch before
  device.stallNs += std::max<int64_t>(0, device.lastEndNs - std::max(launch.madeNs, computeFreeNs));
  device.playing = true;
  device.lastEndNs = startNs;
  device.left = schedule.steps.size();
  device.endNs.assign(device.left, kUnknownNs);
  for (size_t l = 0; l < plan::kLanes; ++l) {
    LaneState &lane = device.lanes[l];
    lane.next = schedule.steps.data() + schedule.laneBegin[l];
    lane.end = schedule.steps.data() + schedule.laneBegin[l + 1];
    lane.edge = lane.next != lane.end ? lane.next->edgeBegin : 0;
    lane.readyNs = lane.othersReadyNs = lane.freeNs = startNs;
  }
  if (device.traced)
    device.trace.resize(device.left);
}

// Times all steps that depend on nothing unknown, and makes the copies that they lead to events.
void BusPlayer::play(size_t index) {
  Device &device = devices_[index];
  while (device.playing || device.queued != 0) {
    if (!device.playing)
      begin(device);
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t lane = 0; lane < plan::kLanes; ++lane) {
        if (device.lanes[lane].next == device.lanes[lane].end)
          continue;
        moved |= lane == kH2D || lane == kD2H ? queueCopy(index, lane - kH2D)
                 : lane == kCpu               ? queueOnCpu(index)
                                              : timeLane(device, lane);
      }
    }
    if (device.left != 0)
      return;
    if (LaunchTimes *times = device.queue[device.first].times; times != nullptr) {
      times->endNs = device.lastEndNs;
      if (times->visibleNs == kUnknownNs)
        times->visibleNs = device.lastEndNs;
    }
    device.first = (device.first + 1) % device.queue.size();
    --device.queued;
    device.playing = false;
    device.beside.launchEnded(++device.ended, device.lastEndNs);
    queueBeside(index);
  }
}

// Whether all that the lane's next step waits for has a known end.
inline bool BusPlayer::ready(const Device &device, const TimedSchedule &schedule, LaneState &lane) const {
  for (; lane.edge != lane.next->edgeEnd; ++lane.edge) {
    const uint32_t edge = schedule.edges[lane.edge];
    const int64_t endNs = device.endNs[edge & ~TimedSchedule::kMoves];
    if (endNs == kUnknownNs)
      return false;
    lane.readyNs = std::max(lane.readyNs, endNs);
    if ((edge & TimedSchedule::kMoves) == 0)
      lane.othersReadyNs = std::max(lane.othersReadyNs, endNs);
  }
  return true;
}

inline void BusPlayer::endStep(Device &device, const TimedStep &step, int64_t startNs, int64_t endNs) {
  const Launch &launch = device.queue[device.first];
  device.endNs[step.step] = endNs;
  device.lastEndNs = std::max(device.lastEndNs, endNs);
  --device.left;
  if (step.step == launch.schedule->publish && launch.times != nullptr)
    launch.times->visibleNs = endNs;
  if (device.traced)
    device.trace[step.step] = {startNs, endNs};
}

// A lane that shares nothing. True if it got anywhere.
bool BusPlayer::timeLane(Device &device, size_t index) {
  LaneState &lane = device.lanes[index];
  const TimedSchedule &schedule = *device.queue[device.first].schedule;
  const TimedStep *const before = lane.next;
  while (lane.next != lane.end && ready(device, schedule, lane)) {
    const int64_t startNs = std::max(lane.freeNs, lane.readyNs);
    if (index == kCompute && startNs > lane.freeNs) // idle: the part in which only movements were still missing
      device.stallNs += startNs - std::max(lane.freeNs, lane.othersReadyNs);
    const int64_t endNs = startNs + static_cast<int64_t>(lane.next->ns);
    endStep(device, *lane.next, startNs, endNs);
    lane.freeNs = lane.readyNs = lane.othersReadyNs = endNs;
    ++lane.next; // edges lie in the order of the schedule's steps, not of the lane's
    if (lane.next != lane.end)
      lane.edge = lane.next->edgeBegin;
  }
  return lane.next != before;
}

// The direction's next copy becomes an event. What waits for it cannot be timed before it has happened.
bool BusPlayer::queueCopy(size_t index, size_t direction) {
  Device &device = devices_[index];
  LaneState &lane = device.lanes[kH2D + direction];
  Copy &next = copy(index, direction);
  const Launch &launch = device.queue[device.first];
  if (next.state != CopyState::Idle || !ready(device, *launch.schedule, lane))
    return false;
  next.state = CopyState::Pending;
  next.step = lane.next;
  next.ns = lane.next->ns;
  if (lane.next->sized != plan::kNone) {
    const SizedTime &sized = launch.schedule->sized[lane.next->sized];
    next.ns = sized.nsOf(core::bytesInUse(sized.size, launch.inUse));
  }
  next.startNs = next.sinceNs = std::max(lane.freeNs, lane.readyNs);
  eventNs_[kRows * index + direction] = next.startNs;
  return false;
}

// Likewise the cpu lane's next step.
bool BusPlayer::queueOnCpu(size_t index) {
  Device &device = devices_[index];
  LaneState &lane = device.lanes[kCpu];
  if (!cpu_.has(index) && ready(device, *device.queue[device.first].schedule, lane))
    cpu_.ask(index, *lane.next, std::max(lane.freeNs, lane.readyNs));
  return false;
}

int64_t BusPlayer::nextEventNs() const {
  int64_t next = cpu_.nextNs();
  for (const int64_t ns : eventNs_)
    next = std::min(next, ns);
  return next;
}

void BusPlayer::playEventsAt(int64_t ns) {
  // A copy of no length ends where it starts and may let others start, so repeat until nothing is left of this moment.
  for (bool again = true; again;) {
    again = false;
    for (size_t i = 0; i < eventNs_.size(); ++i)
      if (eventNs_[i] == ns) {
        playCopy(i, ns);
        again = true;
      }
    again = again || playCpu(ns);
  }
  if (stale_)
    share(ns);
}

// The end of the CPU's step; else, once nothing else is left of this moment, the start of one.
bool BusPlayer::playCpu(int64_t ns) {
  const bool ended = cpu_.ended(ns);
  if (ended) {
    const size_t owner = cpu_.atWork();
    const TimedStep &step = cpu_.step(owner);
    cpu_.end();
    endEvent(owner, kCpu, step, cpu_.startNs(), ns);
  }
  const bool played = ended || cpu_.start(ns);
  stale_ |= played;
  return played;
}

void BusPlayer::playCopy(size_t index, int64_t ns) {
  Copy &copy = copies_[index];
  if (copy.state == CopyState::Pending) {
    copy.left = static_cast<unsigned __int128>(copy.ns) * kFullRate;
    copy.state = copy.step->latencyNs != 0 ? CopyState::Latency : CopyState::Flow;
    copy.rate = 0;
    stale_ = true;
    eventNs_[index] = kNeverNs; // until it has a rate
    if (copy.left != 0)
      return;
  } else {
    const auto moved = static_cast<unsigned __int128>(copy.rate) * static_cast<uint64_t>(ns - copy.sinceNs);
    copy.left -= std::min(copy.left, moved);
    copy.sinceNs = ns;
    if (copy.state == CopyState::Latency &&
        copy.left <= static_cast<unsigned __int128>(copy.ns - copy.step->latencyNs) * kFullRate) {
      copy.state = CopyState::Flow;
      stale_ = true;
    }
    if (copy.left != 0) {
      predict(index);
      return;
    }
  }
  const size_t owner = index / kRows;
  Device &device = devices_[owner];
  copy.state = CopyState::Idle;
  stale_ = true;
  eventNs_[index] = kNeverNs;
  if (index % kRows >= kBeside) {
    device.besideFreeNs[index % 2] = ns;
    device.beside.endFront(index % 2, ns);
    queueBeside(owner);
    return;
  }
  endEvent(owner, kH2D + index % 2, *copy.step, copy.startNs, ns);
}

// The lane goes on to its next step, and all to what waited for this one.
void BusPlayer::endEvent(size_t index, size_t lane, const TimedStep &step, int64_t startNs, int64_t endNs) {
  Device &device = devices_[index];
  LaneState &state = device.lanes[lane];
  endStep(device, step, startNs, endNs);
  state.freeNs = state.readyNs = state.othersReadyNs = endNs;
  if (++state.next != state.end)
    state.edge = state.next->edgeBegin;
  play(index);
}

// The event of a copy that runs at its present rate.
void BusPlayer::predict(size_t index) {
  Copy &copy = copies_[index];
  Progress left = copy.left;
  if (copy.state == CopyState::Latency)
    left -= Progress{copy.ns - copy.step->latencyNs} * kFullRate;
  const Progress wait = std::min<Progress>(nsLeft(left, copy.rate), kLongestWaitNs);
  eventNs_[index] = copy.sinceNs + static_cast<int64_t>(wait);
}

// Gives every copy that runs, and the CPU's step, its rate from `ns` on.
void BusPlayer::share(int64_t ns) {
  account(ns);
  stale_ = false;
  for (size_t i = 0; i < copies_.size(); ++i) {
    const Copy &copy = copies_[i];
    const bool flows = copy.state == CopyState::Flow, runs = flows || copy.state == CopyState::Latency;
    GroupRates::Flow &flow = rates_.flow(i);
    flow.step = runs ? copy.step : nullptr;
    flow.onBus = flows && copy.step->bytesPerNs > 0;
  }
  rates_.share(cpu_.atWork());
  if (cpu_.atWork() != CpuPool::kNobody)
    cpu_.setRate(rates_.cpuRate(), ns);
  for (size_t i = 0; i < copies_.size(); ++i) {
    Copy &copy = copies_[i];
    const GroupRates::Flow &flow = rates_.flow(i);
    if (flow.step == nullptr || flow.rate == copy.rate)
      continue;
    const auto moved = static_cast<unsigned __int128>(copy.rate) * static_cast<uint64_t>(ns - copy.sinceNs);
    copy.left -= std::min(copy.left, moved);
    copy.sinceNs = ns;
    copy.rate = flow.rate;
    predict(i);
  }
}

void BusPlayer::account(int64_t ns) {
  if (rates_.busSlows()) {
    const auto passed = static_cast<double>(ns - accountedNs_);
    slowedNs_ += passed;
    slowedBytes_ += rates_.h2dBytesPerNs() * passed;
  }
  accountedNs_ = ns;
}

void BusPlayer::setBusBandwidth(double bytesPerSecond) {
  rates_.setBusH2d(bytesPerSecond * 1e-9);
  share(now_);
}

double BusPlayer::sampleBusBandwidth() {
  account(now_);
  const double sample = slowedNs_ > 0 ? slowedBytes_ / slowedNs_ * 1e9 : 0;
  slowedNs_ = slowedBytes_ = 0;
  return sample;
}

void BusPlayer::passTo(int64_t ns) {
  for (int64_t event = nextEventNs(); event <= ns && event != kNeverNs; event = nextEventNs())
    playEventsAt(event);
  now_ = std::max(now_, ns);
}

bool BusPlayer::passUntil(const int64_t &moment) {
  while (moment == kUnknownNs) {
    const int64_t event = nextEventNs();
    if (event == kNeverNs)
      return false;
    playEventsAt(event);
  }
  passTo(moment);
  return true;
}

bool BusPlayer::passUntilIdle(size_t index) {
  const Device &device = devices_[index];
  while (device.queued != 0 || !device.beside.idle()) {
    const int64_t event = nextEventNs();
    if (event == kNeverNs)
      return false;
    playEventsAt(event);
  }
  passTo(std::max(device.lastEndNs, device.beside.lastEndNs()));
  return true;
}

size_t BusPlayer::passUntilAny(absl::Span<const int64_t *const> moments, int64_t untilNs) {
  untilNs = std::max(untilNs, now_); // what is there already comes before any time
  for (;;) {
    size_t first = moments.size();
    int64_t firstNs = untilNs;
    for (size_t i = 0; i < moments.size(); ++i)
      if (moments[i] != nullptr && *moments[i] != kUnknownNs &&
          (*moments[i] < firstNs || (*moments[i] == firstNs && first == moments.size()))) {
        first = i;
        firstNs = *moments[i];
      }
    // Until the clock is there, what happens before may still make an earlier one known.
    const int64_t event = nextEventNs();
    if (event <= firstNs && event != kNeverNs) {
      playEventsAt(event);
      continue;
    }
    if (firstNs != kNeverNs)
      now_ = std::max(now_, firstNs);
    return first;
  }
}

} // namespace headrace::sim
