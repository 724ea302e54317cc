// SPDX-License-Identifier: Apache-2.0
//
// Requests that were admitted to instances of their own: when they start, and when they go back.
#include <algorithm>
#include <cmath>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/serve/fleet/FleetImpl.h"

namespace headrace::serve {

using model::cat;

// Those that were admitted start when all their devices may: after the changes that make room for them.
void Fleet::Impl::startWaiting() {
  for (size_t at = 0; at < alive.size();) {
    const uint32_t request = alive[at];
    ServedRequest &of = served[request];
    if (of.phase != RequestPhase::Waiting || (of.joined && !of.apart())) { // those are startJoining()'s
      ++at;
      continue;
    }
    const auto waited = static_cast<double>(nowNs() - of.admittedNs);
    absl::Status failed;
    bool all = true;
    for (uint32_t device : {of.decode, of.prefill}) {
      if (device == kNoInstance || (coordinator.state(device) != DeviceState::Waiting && !coordinator.joining(device)))
        continue;
      const absl::StatusOr<bool> started = coordinator.start(device, waited);
      if (!started.ok()) {
        failed = started.status();
        break;
      }
      if (*started && of.joined && device == of.decode)
        instance(device).batched = instance(device).enters = true;
      // The prefill starts last, with what is left of its objective then; begin() looks at the decode instance again.
      all = *started;
      if (!all)
        break;
    }
    if (failed.ok() && all)
      failed = begin(request);
    if (!failed.ok()) {
      failed = absl::Status(failed.code(), cat(nameOf(request), ": ", std::string(failed.message())));
      giveBack(request, failed); // `at` is the next one
      continue;
    }
    if (of.phase != RequestPhase::Ended) // a device may have been lost
      ++at;
  }
}

// A request that was admitted and may not start. Where its neighbours only have no safe way to make room now, it waits
// with those that have no instance until one of them ends.
void Fleet::Impl::giveBack(uint32_t request, const absl::Status &why) {
  if (options.queue && why.code() == absl::StatusCode::kUnavailable && result.requests[request].startNs < 0)
    return putBack(request, why);
  end(request, why);
  result.requests[request].admitted = result.requests[request].startNs >= 0; // else it was refused
}

void Fleet::Impl::putBack(uint32_t request, const absl::Status &why) {
  RequestOutcome &outcome = result.requests[request];
  const bool again = tryQueue;
  end(request, why);
  outcome = RequestOutcome{.status = why, .arrivalNs = outcome.arrivalNs};
  served[request].phase = RequestPhase::Queued;
  queue.insert(std::upper_bound(queue.begin(), queue.end(), request), request);
  tryQueue = again; // trying at once again would be of no use
}

EngineRequest Fleet::Impl::engineRequest(const FleetRequest &a, uint32_t sequence, int64_t newTokens,
                                         bool keepBlocks) const {
  EngineRequest work;
  work.prompt = a.prompts[sequence];
  work.maxNewTokens = newTokens;
  work.sampling = a.sampling;
  work.sampling.seed += sequence;
  work.stopTokens = a.stopTokens;
  work.keepBlocks = keepBlocks;
  return work;
}

// What leads to the first iteration of decoding runs while the prompts are prefilled elsewhere.
absl::Status Fleet::Impl::enterAhead(uint32_t request, FleetInstance &decode) {
  const ServedRequest &of = served[request];
  ASSIGN_OR_RETURN(next, coordinator.nextIteration(decode.index));
  ASSIGN_OR_RETURN(placements,
                   decode.loads.placements(loneWork(*of.asked), Role::Decode, decode.spec.runtime->placement()));
  const auto chosen = std::find_if(placements.begin(), placements.end(),
                                   [&](const BusPlacement &p) { return p.placement == next.placement; });
  if (chosen == placements.end())
    return absl::InternalError(cat("instance ", decode.spec.name, ": placement ", next.placement, " is none"));
  const double changes = fairNs(chosen->first, decode.index);
  const double left = of.asked->ttftNs() - static_cast<double>(nowNs() - result.requests[request].arrivalNs);
  if (changes + of.handoverNs > left)
    return absl::ResourceExhaustedError(
        cat("waited for its neighbours to make room: the ", ms(left), " ms left of its TTFT are not enough"));
  if (absl::Status status = decode.enter(next.placement, of.asked->prompts); !status.ok()) {
    lose(decode, status); // the request ends with it
    return absl::OkStatus();
  }
  countFreed(decode, next.placement);
  decode.placement = next.placement;
  decode.readyNs = nowNs() + static_cast<int64_t>(std::ceil(changes));
  return absl::OkStatus();
}

absl::Status Fleet::Impl::begin(uint32_t request) {
  ServedRequest &of = served[request];
  FleetInstance &prefill = instance(of.prefill);
  if (of.apart()) {
    FleetInstance &decode = instance(of.decode);
    if (!of.joined)
      RETURN_IF_ERROR(enterAhead(request, decode));
    if (of.phase == RequestPhase::Ended)
      return absl::OkStatus();
    decode.waveStarted = true;
    decode.batched = of.joined;
    result.joined += of.joined;
    result.mostTogether = std::max<uint64_t>(result.mostTogether, decode.requests.size());
  }
  const bool apart = of.apart();
  for (uint32_t s = 0; s < of.asked->prompts.size(); ++s) {
    ASSIGN_OR_RETURN(id,
                     prefill.engine->submit(engineRequest(*of.asked, s, apart ? 1 : of.asked->maxNewTokens, apart)));
    prefill.members.push_back({id, request, s});
    ++prefill.unended;
    of.ids.push_back(id);
  }
  of.running = of.asked->prompts.size();
  prefill.waveStarted = true;
  result.mostTogether = std::max<uint64_t>(result.mostTogether, prefill.requests.size());
  RequestOutcome &outcome = result.requests[request];
  outcome.startNs = nowNs();
  of.dirty = busLost;
  of.losses = result.bandwidthLosses;
  of.phase = RequestPhase::Prefill;
  return absl::OkStatus();
}

} // namespace headrace::serve
