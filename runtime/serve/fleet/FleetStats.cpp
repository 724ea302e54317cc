// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
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

EngineOptions Fleet::Impl::engineOptions(FleetInstance &on) {
  EngineOptions engine;
  engine.watermark = 0; // what a request takes is set aside when it is admitted
  engine.depth = 1;
  engine.adaptsExpansion = false; // objectives say what may be in use
  engine.tellRows = true;
  engine.onToken = [this, &on](const EngineToken &token) { tellToken(on, token); };
  engine.onEnd = [this, &on](const EngineEnd &end) { tellEnd(on, end); };
  engine.onIteration = [this, &on](const EngineIteration &told) { tellIteration(on, told); };
  return engine;
}

void Fleet::Impl::tellToken(FleetInstance &on, const EngineToken &token) {
  const FleetInstance::Member *member = on.member(token.request);
  if (member == nullptr)
    return;
  ServedRequest &of = served[member->request];
  std::vector<int32_t> &tokens = result.requests[member->request].tokens[member->sequence];
  tokens.push_back(token.token);
  if (tokens.size() == 1 && --of.unread == 0)
    delivered.push_back(member->request);
  if (result.requests[member->request].firstTokensNs < 0)
    return;
  int64_t &last = of.lastTokenNs[member->sequence];
  const int64_t gap = token.visibleNs - std::exchange(last, token.visibleNs);
  RequestOutcome &outcome = result.requests[member->request];
  ++outcome.gaps;
  outcome.gapsNs += gap;
  outcome.longestGapNs = std::max(outcome.longestGapNs, gap);
  const auto seen =
      std::find_if(gaps.begin(), gaps.end(), [&](const FleetGap &g) { return g.request == member->request; });
  if (seen == gaps.end())
    gaps.push_back({member->request, gap});
  else
    seen->longestNs = std::max(seen->longestNs, gap);
}

void Fleet::Impl::tellEnd(FleetInstance &on, const EngineEnd &end) {
  const FleetInstance::Member *member = on.member(end.request);
  if (member == nullptr || end.reason == EndReason::Cancelled)
    return;
  ServedRequest &of = served[member->request];
  --of.running;
  --on.unended;
  const bool failed = end.reason == EndReason::Failed && of.failed.ok();
  if (failed)
    of.failed =
        absl::Status(end.why.code(), absl::StrCat("prompt ", member->sequence, ", ", std::string(end.why.message())));
  if (failed || (of.running == 0 && of.failed.ok()))
    done.push_back(member->request);
}

void Fleet::Impl::tellIteration(FleetInstance &on, const EngineIteration &told) {
  iteration = told;
  for (const EngineRows &part : told.rows)
    if (const FleetInstance::Member *member = on.member(part.request))
      rows.push_back({member->request, member->sequence, part.firstPosition, part.count, part.sample});
  iteration.rows = {};
}

// Once more is known of the bus.
void Fleet::Impl::countRead(FleetInstance &on) {
  on.lastVariant = iteration.variant;
  for (FleetGap &gap : gaps) {
    if (static_cast<double>(gap.longestNs) > served[gap.request].asked->tpotNs())
      gap.missed = causeFor(on);
    result.requests[gap.request].misses.count(gap.missed);
    result.misses.count(gap.missed);
    ++result.gaps;
  }
  for (size_t i = 0; i < rows.size(); ++i) // a request's rows may stand apart
    if (std::none_of(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(i),
                     [&](const FleetRows &before) { return before.request == rows[i].request; }))
      ++result.requests[rows[i].request].iterations;
  ++result.iterations;
  result.changes += on.changed;
  if (options.onIteration)
    options.onIteration({on.index, iteration.placement, iteration.variant, iteration.prefill, on.changed,
                         iteration.launchNs, iteration.visibleNs, rows, gaps});
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
