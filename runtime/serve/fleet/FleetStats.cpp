// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "runtime/serve/fleet/FleetImpl.h"

namespace headrace::serve {

void MissCounts::count(MissCause cause) {
  busLost += cause == MissCause::BusLost;
  kvBlocks += cause == MissCause::KvBlocks;
  other += cause == MissCause::Other;
}

// What the bus gave since the last token that was read, before anything is said about that token's iteration.
void Fleet::Impl::measure() {
  const double sampled = group.sampleBusBandwidth();
  if (!(sampled > 0)) {
    coordinator.unmeasured();
    return;
  }
  const double before = coordinator.plannedBandwidth();
  if (!coordinator.measured(sampled).ok() || coordinator.plannedBandwidth() >= before)
    return;
  busLost = true;
  ++result.bandwidthLosses;
}

void Fleet::Impl::countFreed(const FleetInstance &on, uint32_t to) {
  const int64_t now = nowNs();
  result.freedByteSeconds += static_cast<double>(freedBytes) * static_cast<double>(now - freedSinceNs) * 1e-9;
  freedSinceNs = now;
  freedBytes += on.loads.freedBytes(to);
  freedBytes -= on.loads.freedBytes(on.placement);
}

// A miss is the bus's if it began, or ended, between a measured loss and the moment when every device had taken what
// was decided then.
bool Fleet::Impl::lostSince(bool dirty, uint64_t losses) const {
  return busLost || dirty || losses != result.bandwidthLosses || coordinator.overloaded();
}

MissCause Fleet::Impl::causeFor(const FleetInstance &on) const {
  if (lostSince(on.dirty, on.losses))
    return MissCause::BusLost;
  return on.kvWaited ? MissCause::KvBlocks : MissCause::Other;
}

void Fleet::Impl::deliverFirst(uint32_t request, int64_t atNs) {
  RequestOutcome &outcome = result.requests[request];
  ServedRequest &of = served[request];
  outcome.firstTokensNs = atNs;
  if (static_cast<double>(outcome.ttftNs()) > of.asked->ttftNs())
    outcome.ttftMissed = lostSince(of.dirty, of.losses) ? MissCause::BusLost : MissCause::Other;
  std::fill(of.lastTokenNs.begin(), of.lastTokenNs.end(), atNs);
}

void Fleet::Impl::countRead(FleetInstance &on) {
  const ReadIteration &read = on.run.lastRead();
  const LaunchedIteration &launched = on.run.lastLaunched();
  ServedRequest &of = served[on.request];
  RequestOutcome &outcome = result.requests[on.request];
  FleetIteration iteration{on.index,         on.request, launched.placement, read.variant,
                           launched.prefill, on.changed, launched.launchNs,  read.visibleNs};
  if (!launched.prefill) {
    for (const ReadToken &token : read.tokens) {
      const int64_t gap = read.visibleNs - of.lastTokenNs[token.sequence];
      of.lastTokenNs[token.sequence] = read.visibleNs;
      iteration.longestGapNs = std::max(iteration.longestGapNs, gap);
      ++outcome.gaps;
      outcome.gapsNs += gap;
    }
    outcome.longestGapNs = std::max(outcome.longestGapNs, iteration.longestGapNs);
    if (static_cast<double>(iteration.longestGapNs) > of.asked->tpotNs())
      iteration.missed = causeFor(on);
  }
  outcome.misses.count(iteration.missed);
  result.misses.count(iteration.missed);
  ++outcome.iterations;
  ++result.iterations;
  result.changes += on.changed;
  iteration.rows = launched.rows;
  if (options.onIteration)
    options.onIteration(iteration);
}

void Fleet::Impl::summarise() {
  result.endNs = nowNs();
  result.freedByteSeconds += static_cast<double>(freedBytes) * static_cast<double>(result.endNs - freedSinceNs) * 1e-9;
  for (const RequestOutcome &outcome : result.requests) {
    result.admitted += outcome.admitted;
    result.refused += !outcome.admitted;
    result.lost += outcome.admitted && !outcome.status.ok();
    result.held += outcome.held();
    result.ttftMisses.count(outcome.ttftMissed);
  }
}

} // namespace headrace::serve
