// SPDX-License-Identifier: Apache-2.0
//
// The KV cache of a request that one instance prefilled, on its way to the one that decodes it.
#include <algorithm>
#include <cmath>

#include "runtime/base/StatusMacros.h"
#include "runtime/serve/fleet/FleetImpl.h"

namespace headrace::serve {

// The prompts are through; its KV cache stays where it is until it has moved.
void Fleet::Impl::beginHandover(uint32_t request, FleetInstance &from, int64_t visibleNs) {
  ServedRequest &of = served[request];
  const FleetInstance &decode = instance(of.decode);
  const uint32_t last = *from.lastVariant;
  drain(from, last);
  of.phase = RequestPhase::Handover;
  if (of.joined) { // at an edge of those that it decodes beside
    of.handoverEndNs = FleetInstance::kNothing;
    return;
  }
  const auto moves = static_cast<int64_t>(std::ceil(handoverNs(of.kvBytes, of.decode)));
  // Nothing of the prefill is counted beside what decodes: what it copies behind its tokens ends before that begins.
  // Its objective had time for that.
  const auto tail = static_cast<int64_t>(std::ceil(fairNs({0, 0, 0, from.loads.tailBytes(last)}, from.index)));
  const int64_t ttftEnds = result.requests[request].arrivalNs + of.asked->ttft.count();
  of.handoverEndNs =
      std::max(std::max(visibleNs, decode.readyNs) + moves, std::min(visibleNs + tail, std::max(visibleNs, ttftEnds)));
  result.requests[request].handoverNs = of.handoverEndNs - visibleNs;
}

void Fleet::Impl::startArrivals() {
  for (const uint32_t request : alive) {
    ServedRequest &of = served[request];
    if (of.phase != RequestPhase::Handover || of.handoverEndNs != FleetInstance::kNothing)
      continue;
    FleetInstance &to = instance(of.decode);
    if (to.engine->inFlight() != 0)
      continue;
    const auto moves = static_cast<int64_t>(std::ceil(handoverNs(of.kvBytes, of.decode)));
    of.handoverEndNs = to.arrivesNs = nowNs() + moves;
    to.arrivedLate = lostSince(of.dirty, of.losses);
    result.requests[request].handoverNs = moves;
  }
}

void Fleet::Impl::finishHandovers() {
  for (size_t at = 0; at < alive.size();) {
    const uint32_t request = alive[at];
    const ServedRequest &of = served[request];
    if (of.phase == RequestPhase::Handover && of.handoverEndNs != FleetInstance::kNothing &&
        of.handoverEndNs <= nowNs())
      if (absl::Status status = finishHandover(request); !status.ok())
        end(request, status);
    if (of.phase != RequestPhase::Ended)
      ++at;
  }
}

absl::Status Fleet::Impl::finishHandover(uint32_t request) {
  ServedRequest &of = served[request];
  FleetInstance &from = instance(of.prefill), &to = instance(of.decode);
  const FleetRequest &a = *of.asked;
  const auto stops = [&](int32_t token) {
    return std::find(a.stopTokens.begin(), a.stopTokens.end(), token) != a.stopTokens.end();
  };
  of.running = 0;
  for (uint32_t s = 0; s < a.prompts.size(); ++s) {
    const int32_t first = result.requests[request].tokens[s].at(0);
    if (stops(first))
      continue;
    ASSIGN_OR_RETURN(id, to.engine->submitPrefilled(engineRequest(a, s, a.maxNewTokens, false), first));
    to.members.push_back({id, request, s});
    ++to.unended;
    ++of.running;
    const absl::Span<const int32_t> into = to.engine->blocksOf(id);
    RETURN_IF_ERROR(handover.move(*from.spec.runtime, from.engine->blocksOf(of.ids[s]).subspan(0, into.size()),
                                  *to.spec.runtime, into));
  }
  // By now its tail has ended, or its objective had no more time for that: it is no neighbour of what decodes.
  if (!of.joined && from.drainedNs != FleetInstance::kNothing)
    drained(from);
  release(request, from);
  of.prefill = of.decode;
  of.phase = RequestPhase::Decode;
  to.arrivesNs = FleetInstance::kNothing;
  std::erase(to.wave, request);
  deliverFirst(request, std::max(of.handoverEndNs, nowNs()));
  tryQueue = tryQueue || !queue.empty();
  if (of.running == 0) {
    end(request, absl::OkStatus());
    return absl::OkStatus();
  }
  if (of.joined) {
    to.arrived = true;
    return absl::OkStatus();
  }
  return coordinator.firstDone(to.index);
}

} // namespace headrace::serve
