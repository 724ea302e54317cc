// SPDX-License-Identifier: Apache-2.0
#include "runtime/sim/TimedSchedule.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <utility>

#include "runtime/base/StatusMacros.h"
#include "runtime/core/GraphSteps.h"

namespace headrace::sim {
namespace {

// What a copy at `rate` asks of the bus. Durations are whole nanoseconds: where one is the link's to within that, the
// copy asks for the link's rate, so that a bus of that rate slows nothing down.
double asked(double rate, uint64_t bytes, uint64_t ns, double linkRate) {
  return std::abs(static_cast<double>(ns) - static_cast<double>(bytes) / linkRate) <= 1 ? linkRate : rate;
}

uint64_t latencyOf(const LinkRates &link, uint64_t ns) { return link.latencyNs < ns ? link.latencyNs : 0; }

} // namespace

uint64_t SizedTime::nsOf(uint64_t bytes) const {
  const double share = static_cast<double>(bytes) / static_cast<double>(size.bytes);
  return bytes == size.bytes
             ? ns
             : latencyNs + static_cast<uint64_t>(std::llround(share * static_cast<double>(ns - latencyNs)));
}

absl::StatusOr<std::vector<SizedTime>> sizedTimes(const plan::Plan &plan, const plan::Schedule &schedule,
                                                  absl::Span<const uint64_t> durationsNs, int64_t newTokens,
                                                  const LinkRates &link) {
  std::vector<SizedTime> sized;
  for (uint32_t i = 0; i < schedule.steps.size(); ++i) {
    const plan::Step &step = schedule.steps[i];
    if (!step.resizable)
      continue;
    ASSIGN_OR_RETURN(size, core::sizedCopy(plan, schedule, i));
    SizedTime time{.step = i,
                   .toDevice = plan::toDevice(step.lane),
                   .size = size,
                   .ns = durationsNs[i],
                   .latencyNs = latencyOf(link, durationsNs[i])};
    if (size.ofRows) { // priced for the variant's rows
      const uint64_t priced = core::bytesInUse(size, core::InUse{.rows = newTokens});
      time.ns = time.latencyNs +
                static_cast<uint64_t>(std::llround(static_cast<double>(time.ns - time.latencyNs) *
                                                   static_cast<double>(size.bytes) / static_cast<double>(priced)));
    }
    sized.push_back(time);
  }
  return sized;
}

TimedStep timedCopy(uint64_t bytes, bool toDevice, const LinkRates &link) {
  const double rate = toDevice ? link.h2d : link.d2h; // bytes/s
  const auto flowNs = static_cast<uint64_t>(std::llround(static_cast<double>(bytes) / rate * 1e9));
  TimedStep timed;
  timed.ns = link.latencyNs + flowNs;
  timed.latencyNs = link.latencyNs;
  if (flowNs != 0) {
    timed.bytesPerNs = static_cast<double>(bytes) / static_cast<double>(flowNs);
    timed.askedBytesPerNs = asked(timed.bytesPerNs, bytes, flowNs, rate * 1e-9);
  }
  return timed;
}

uint64_t sharedRate(double duplexShare) {
  const double share = std::clamp(duplexShare / 2, 1e-6, 1.0); // a link that carries nothing would never end
  return static_cast<uint64_t>(std::llround(share * static_cast<double>(kFullRate)));
}

LinkRates linkRates(const model::Hardware &hardware, double linkBandwidth) {
  LinkRates rates;
  rates.h2d = linkBandwidth > 0 ? linkBandwidth : hardware.h2dBandwidth * hardware.linkEfficiency;
  rates.d2h = linkBandwidth > 0 ? linkBandwidth : hardware.d2hBandwidth * hardware.linkEfficiency;
  rates.latencyNs = static_cast<uint64_t>(std::llround(std::max(hardware.copyLatency, 0.0) * 1e9));
  return rates;
}

TimedSchedule::TimedSchedule(const plan::Schedule &schedule, absl::Span<const uint64_t> durationsNs,
                             const LinkRates &link, std::vector<SizedTime> sizedCopies, bool isCpu)
    : sized(std::move(sizedCopies)) {
  const size_t n = schedule.steps.size();
  assert(durationsNs.size() == n);
  const auto laneOf = [isCpu](const plan::Step &step) { return static_cast<size_t>(playedIn(step.lane, isCpu)); };
  for (const plan::Step &step : schedule.steps)
    ++laneBegin[laneOf(step) + 1];
  for (size_t lane = 0; lane < plan::kLanes; ++lane)
    laneBegin[lane + 1] += laneBegin[lane];
  std::array<uint32_t, plan::kLanes> next;
  std::copy_n(laneBegin.begin(), next.size(), next.begin());
  steps.resize(n);
  edges.reserve(schedule.edges.size());
  size_t e = 0;
  uint32_t nextSized = 0;
  for (uint32_t i = 0; i < n; ++i) {
    const plan::Step &step = schedule.steps[i];
    TimedStep &timed = steps[next[laneOf(step)]++];
    timed.ns = durationsNs[i];
    timed.step = i;
    timed.edgeBegin = static_cast<uint32_t>(e);
    for (; e < schedule.edges.size() && schedule.edges[e].to == i; ++e) {
      const uint32_t from = schedule.edges[e].from;
      assert(from < i);
      edges.push_back(from | (movesBytes(schedule.steps[from].lane) ? kMoves : 0));
    }
    timed.edgeEnd = static_cast<uint32_t>(e);
    if (nextSized < sized.size() && sized[nextSized].step == i)
      timed.sized = nextSized++;
    const uint64_t allNs = timed.sized == plan::kNone ? timed.ns : sized[timed.sized].ns; // of all its bytes
    const bool toDevice = plan::toDevice(step.lane);
    if ((toDevice || plan::toHost(step.lane)) && step.linkBytes != 0 && timed.ns != 0) {
      timed.latencyNs = latencyOf(link, timed.ns);
      const uint64_t flowNs = allNs - timed.latencyNs;
      timed.bytesPerNs = static_cast<double>(step.linkBytes) / static_cast<double>(flowNs);
      timed.askedBytesPerNs = asked(timed.bytesPerNs, step.linkBytes, flowNs, (toDevice ? link.h2d : link.d2h) * 1e-9);
    }
    if (step.kind == plan::StepKind::Publish)
      publish = i;
  }
  assert(e == schedule.edges.size());
}

} // namespace headrace::sim
