// SPDX-License-Identifier: Apache-2.0
//
// Requests that end, and devices that end with them or are free again.
#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/base/Text.h"
#include "runtime/serve/fleet/FleetImpl.h"

namespace headrace::serve {

using model::cat;

// The device launches no more; `last` is the variant of its last iteration, whose tokens are read. What
// it copies behind these, its neighbours still share the bus with: it counts until that has ended at its fair share.
// (One that ends with the transition to its first iteration under way, as another device failed, is not waited for.)
//
// `handedOver`: of a KV cache that leaves it meanwhile; whoever hands it over says when it is through.
void Fleet::Impl::drain(FleetInstance &on, std::optional<uint32_t> last, uint64_t handedOver) {
  const DeviceState state = coordinator.state(on.index);
  if ((state != DeviceState::Waiting && state != DeviceState::Running) || on.drainedNs != FleetInstance::kNothing)
    return;
  plan::LinkBytes bytes = last && state == DeviceState::Running ? on.loads.tail(*last) : plan::LinkBytes{};
  bytes.d2h += handedOver;
  if (bytes.h2d + bytes.d2h == 0) {
    (void)coordinator.finish(on.index);
    return;
  }
  (void)coordinator.drain(on.index, bytes);
  BusStage left;
  left.exposedBytes = bytes.h2d;
  left.exposedD2hBytes = bytes.d2h;
  on.drainedNs = handedOver > 0 ? core::kForeverNs : nowNs() + static_cast<int64_t>(std::ceil(fairNs(left, on.index)));
}

void Fleet::Impl::drained(FleetInstance &on) {
  on.drainedNs = FleetInstance::kNothing;
  (void)coordinator.finish(on.index);
  tryQueue = tryQueue || !queue.empty();
}

void Fleet::Impl::finishDraining(int64_t now) {
  for (const auto &on : instances)
    if (on->drainedNs != FleetInstance::kNothing && on->drainedNs <= now)
      drained(*on);
}

// The request is gone from the instance.
void Fleet::Impl::release(uint32_t request, FleetInstance &on) {
  for (const FleetInstance::Member &member : on.members)
    if (member.request == request) {
      on.unended -= on.engine->cancel(member.id).ok(); // else it has ended
      on.engine->releaseBlocks(member.id);
    }
  std::erase_if(on.members, [&](const FleetInstance::Member &m) { return m.request == request; });
  std::erase(on.requests, request);
  const bool ofWave = std::erase(on.wave, request) > 0;
  const bool waited = ofWave && !on.waveStarted;
  tryQueue = tryQueue || !queue.empty();
  if (on.lost)
    return;
  on.engine->takeIn(); // what was cancelled gives its blocks back
  if (on.requests.empty()) {
    on.began = on.batched = on.arrived = on.enters = false;
    return drain(on, std::exchange(on.lastVariant, std::nullopt));
  }
  if (waited && on.wave.empty())
    coordinator.leaveOut(on.index);
  if (on.unended == 0 && on.waveWaits()) {
    // What they were to join has ended: they begin anew. Also where the coordinator lets them in already and only their
    // prefill waits, for it may wait for an edge of this instance, which has nothing more to launch.
    const std::vector<uint32_t> wave = on.wave;
    for (const uint32_t one : wave)
      if (served[one].phase == RequestPhase::Waiting)
        putBack(one, absl::OkStatus());
    tryQueue = true;
    return;
  }
  shrink(on);
}

void Fleet::Impl::end(uint32_t request, const absl::Status &status) {
  ServedRequest &of = served[request];
  RequestOutcome &outcome = result.requests[request];
  if (of.phase == RequestPhase::Handover)
    giveUpHandover(of);
  of.phase = RequestPhase::Ended;
  outcome.status = status;
  outcome.endNs = nowNs();
  alive.erase(std::find(alive.begin(), alive.end(), request));
  for (const auto &on : instances)
    if (std::find(on->requests.begin(), on->requests.end(), request) != on->requests.end())
      release(request, *on);
}

void Fleet::Impl::lose(FleetInstance &on, const absl::Status &why) {
  on.lost = true;
  on.why = why;
  on.drainedNs = FleetInstance::kNothing;
  (void)coordinator.lose(on.index);
  while (!on.requests.empty()) {
    const uint32_t request = on.requests.front();
    end(request, absl::UnavailableError(cat("request ", request, ": device ", on.index, " (", on.spec.name,
                                            ") was lost while it served it: ", std::string(why.message()))));
  }
  tryQueue = tryQueue || !queue.empty();
}

} // namespace headrace::serve
