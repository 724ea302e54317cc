// SPDX-License-Identifier: Apache-2.0
//
// The request path (Select-N, section 4.2): which instance a request goes to, when it starts, and what goes back to the
// caller.
#include <algorithm>
#include <cmath>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/serve/fleet/FleetImpl.h"

namespace headrace::serve {

using model::cat;

namespace {

double ms(double ns) { return ns * 1e-6; }

BatchWork batchOf(const FleetRequest &asked) {
  BatchWork batch;
  for (const std::vector<int32_t> &prompt : asked.prompts)
    batch.promptTokens.push_back(static_cast<int64_t>(prompt.size()));
  batch.newTokens = asked.maxNewTokens;
  batch.mayStopEarly = !asked.stopTokens.empty();
  return batch;
}

GenerateRequest workOf(const FleetRequest &asked, int64_t newTokens) {
  GenerateRequest work;
  work.prompts = asked.prompts;
  work.maxNewTokens = newTokens;
  work.sampling = asked.sampling;
  work.stopTokens = asked.stopTokens;
  work.separatePrefill = true;
  return work;
}

} // namespace

std::string Fleet::Impl::nameOf(uint32_t request) const { return cat("request ", request); }

absl::Status Fleet::Impl::checkAsked(uint32_t request) const {
  const FleetRequest &a = asked[request];
  const auto slo = [&](const char *what, std::chrono::nanoseconds time) {
    constexpr std::chrono::nanoseconds kMost(int64_t{1} << 60); // 36 years: sums with it stay in range
    return time.count() > 0 && time <= kMost
               ? absl::OkStatus()
               : absl::InvalidArgumentError(cat(nameOf(request), ": ", what, " = ", time.count(),
                                                " ns: expected a positive time of at most 36 years"));
  };
  RETURN_IF_ERROR(slo("TTFT", a.ttft));
  return slo("TPOT", a.tpot);
}

// Alone on its share of the bus while all devices copy.
double Fleet::Impl::fairNs(const BusStage &stage, uint32_t device) const {
  const uint64_t all = ~uint64_t{0} >> (64 - instances.size());
  return timeAtRate(stage, fairRate(coordinator.bus(), all, device));
}

double Fleet::Impl::handoverNs(uint64_t bytes, uint32_t device) const {
  return instances[device]->plan.hardware.copyLatency * 1e9 + fairNs({0, 0, 0, bytes}, device);
}

// Why there is no instance for it at all; ok if there is one, free or not.
absl::Status Fleet::Impl::missingInstance(const FleetRequest &a) const {
  bool known = false, prefills = false, decodes = false;
  std::string lost;
  for (const auto &i : instances) {
    if (i->plan.model->name != a.model)
      continue;
    known = true;
    if (i->lost) {
      lost += cat(lost.empty() ? "" : ", ", i->spec.name);
      continue;
    }
    prefills = prefills || i->spec.role != Role::Decode;
    decodes = decodes || i->spec.role != Role::Prefill;
  }
  if (!known)
    return absl::NotFoundError(cat("no instance of model '", a.model, "'"));
  const std::string also = lost.empty() ? "" : cat("; lost: ", lost);
  if (!prefills)
    return absl::UnavailableError(cat("no instance of model '", a.model, "' prefills", also));
  if (!decodes && a.maxNewTokens > 1)
    return absl::UnavailableError(cat("no instance of model '", a.model, "' decodes", also));
  return absl::OkStatus();
}

Fleet::Impl::Admission Fleet::Impl::admit(uint32_t request, absl::Status &why) {
  const FleetRequest &a = asked[request];
  const auto refuse = [&](absl::Status status) {
    why = std::move(status);
    return Admission::Refused;
  };
  if (absl::Status status = checkAsked(request); !status.ok())
    return refuse(status);
  if (absl::Status status = missingInstance(a); !status.ok())
    return refuse(absl::Status(status.code(), cat(nameOf(request), ": ", std::string(status.message()))));
  bool tried = false;
  const auto attempt = [&](FleetInstance &prefill, FleetInstance *decode) {
    const absl::Status status = admitTo(request, prefill, decode);
    if (!tried && !status.ok()) // the first reason is told
      why = absl::Status(status.code(), cat(nameOf(request), ": ", std::string(status.message())));
    tried = true;
    return status.ok();
  };
  const auto fits = [&](const FleetInstance &i, Role role) {
    return i.free() && i.spec.role == role && i.plan.model->name == a.model;
  };
  for (const auto &i : instances) {
    if (fits(*i, Role::Both) && attempt(*i, a.maxNewTokens > 1 ? i.get() : nullptr))
      return Admission::Admitted;
  }
  for (const auto &p : instances) {
    if (!fits(*p, Role::Prefill))
      continue;
    if (a.maxNewTokens == 1 && attempt(*p, nullptr))
      return Admission::Admitted;
    for (const auto &d : instances) {
      if (a.maxNewTokens > 1 && fits(*d, Role::Decode) && attempt(*p, d.get()))
        return Admission::Admitted;
    }
  }
  return tried ? Admission::Refused : Admission::NoneFree;
}

absl::Status Fleet::Impl::admitTo(uint32_t request, FleetInstance &prefill, FleetInstance *decode) {
  const FleetRequest &a = asked[request];
  const double waited = static_cast<double>(nowNs() - result.requests[request].arrivalNs);
  const bool apart = decode != nullptr && decode != &prefill;
  // What is checked of a request is the same for its prefill alone.
  GenerateRequest whole = workOf(a, a.maxNewTokens);
  RETURN_IF_ERROR(checkRequest(prefill.plan, apart ? workOf(a, 1) : whole));
  const BatchWork batch = batchOf(a);
  ServedRequest next;
  next.asked = &a;

  BusRequest first{prefill.index, a.ttftNs(), waited, {}};
  first.name = nameOf(request);
  first.prompts = apart || decode == nullptr;
  const Role role = apart || decode == nullptr ? Role::Prefill : Role::Both;
  absl::StatusOr<std::vector<BusPlacement>> placements =
      prefill.loads.placements(batch, role, prefill.spec.runtime->placement());
  if (!placements.ok())
    return placements.status();
  first.placements = *std::move(placements);
  if (role == Role::Both) {
    first.sloNs = a.tpotNs();
    first.firstSloNs = a.ttftNs();
  }
  if (apart) {
    RETURN_IF_ERROR(checkRequest(decode->plan, whole));
    next.kvBytes = handoverBytes(decode->plan, batch.promptTokens);
    const double moves = handoverNs(next.kvBytes, decode->index);
    first.decodedBy = decode->index;
    first.handoverNs = moves;
    if (!(a.ttftNs() - waited - moves > 0))
      return absl::ResourceExhaustedError(cat("the first token cannot be had within ", ms(a.ttftNs() - waited),
                                              " ms: the hand-over of ", next.kvBytes, " bytes of KV cache takes ",
                                              ms(moves), " ms"));
    BusRequest second{decode->index, a.tpotNs(), waited, {}};
    second.firstSloNs = a.ttftNs();
    second.name = first.name;
    second.handoverBytes = next.kvBytes;
    placements = decode->loads.placements(batch, Role::Decode, decode->spec.runtime->placement(), next.kvBytes);
    if (!placements.ok())
      return placements.status();
    // The transition runs while the prompts are prefilled, at worst before the hand-over.
    for (const BusPlacement &p : *placements)
      if (fairNs(p.first, decode->index) <= a.ttftNs() - waited)
        second.placements.push_back(p);
    if (second.placements.empty())
      return absl::ResourceExhaustedError(cat("the first token cannot be had within ", ms(a.ttftNs() - waited),
                                              " ms: instance ", decode->spec.name,
                                              " takes longer to change its placement and receive the KV cache"));
    RETURN_IF_ERROR(coordinator.arrive(second));
  }
  if (absl::Status status = coordinator.arrive(first); !status.ok()) {
    if (apart)
      (void)coordinator.finish(decode->index);
    return status;
  }

  next.phase = RequestPhase::Waiting;
  next.prefill = prefill.index;
  next.decode = decode == nullptr ? kNoInstance : decode->index;
  next.admittedNs = nowNs();
  next.lastTokenNs.assign(a.prompts.size(), 0);
  prefill.request = request;
  prefill.work = apart ? workOf(a, 1) : std::move(whole);
  if (apart) {
    decode->request = request;
    decode->work = workOf(a, a.maxNewTokens);
  }
  served[request] = std::move(next);
  RequestOutcome &outcome = result.requests[request];
  outcome.status = absl::OkStatus();
  outcome.admitted = true;
  outcome.prefillInstance = prefill.index;
  outcome.decodeInstance = decode == nullptr ? kNoInstance : decode->index;
  alive.push_back(request);
  return absl::OkStatus();
}

void Fleet::Impl::serveQueue() {
  tryQueue = false;
  for (size_t at = 0; at < queue.size();) {
    const uint32_t request = queue[at];
    absl::Status why;
    const FleetRequest &a = asked[request];
    const double waited = static_cast<double>(nowNs() - result.requests[request].arrivalNs);
    Admission admission = admit(request, why);
    if (admission == Admission::NoneFree && (!options.queue || waited >= a.ttftNs())) {
      why = options.queue
                ? absl::ResourceExhaustedError(cat(nameOf(request), ": its TTFT of ", ms(a.ttftNs()),
                                                   " ms is spent: no instance of model '", a.model, "' became free"))
                : absl::UnavailableError(cat(nameOf(request), ": no instance of model '", a.model, "' is free"));
      admission = Admission::Refused;
    }
    if (admission == Admission::NoneFree) {
      ++at;
      continue;
    }
    queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(at));
    if (admission == Admission::Refused) {
      result.requests[request].status = why;
      result.requests[request].endNs = nowNs();
      served[request].phase = RequestPhase::Ended;
    }
  }
}

// Those that were admitted start when all their devices may: after the changes that make room for them.
void Fleet::Impl::startWaiting() {
  for (size_t at = 0; at < alive.size();) {
    const uint32_t request = alive[at];
    ServedRequest &of = served[request];
    if (of.phase != RequestPhase::Waiting) {
      ++at;
      continue;
    }
    const auto waited = static_cast<double>(nowNs() - of.admittedNs);
    absl::Status failed;
    bool all = true;
    for (uint32_t device : {of.decode, of.prefill}) {
      if (device == kNoInstance || coordinator.state(device) != DeviceState::Waiting)
        continue;
      const absl::StatusOr<bool> started = coordinator.start(device, waited);
      if (!started.ok()) {
        failed = started.status();
        break;
      }
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
  RequestOutcome &outcome = result.requests[request];
  const bool again = tryQueue;
  end(request, why);
  outcome.admitted = outcome.startNs >= 0; // else it was refused
  if (!options.queue || why.code() != absl::StatusCode::kUnavailable || outcome.admitted)
    return;
  outcome = RequestOutcome{.status = why, .arrivalNs = outcome.arrivalNs};
  served[request].phase = RequestPhase::Queued;
  queue.insert(std::upper_bound(queue.begin(), queue.end(), request), request);
  tryQueue = again; // trying at once again would be of no use
}

absl::Status Fleet::Impl::begin(uint32_t request) {
  ServedRequest &of = served[request];
  FleetInstance &prefill = instance(of.prefill);
  RequestOutcome &outcome = result.requests[request];
  if (of.apart()) {
    FleetInstance &decode = instance(of.decode);
    ASSIGN_OR_RETURN(next, coordinator.nextIteration(decode.index));
    ASSIGN_OR_RETURN(placements,
                     decode.loads.placements(batchOf(*of.asked), Role::Decode, decode.spec.runtime->placement()));
    const auto chosen = std::find_if(placements.begin(), placements.end(),
                                     [&](const BusPlacement &p) { return p.placement == next.placement; });
    if (chosen == placements.end())
      return absl::InternalError(cat("instance ", decode.spec.name, ": placement ", next.placement, " is none"));
    const double changes = fairNs(chosen->first, decode.index);
    const double left = of.asked->ttftNs() - static_cast<double>(nowNs() - outcome.arrivalNs);
    if (changes + handoverNs(of.kvBytes, decode.index) > left)
      return absl::ResourceExhaustedError(
          cat("waited for its neighbours to make room: the ", ms(left), " ms left of its TTFT are not enough"));
    if (absl::Status status = decode.enter(next.placement); !status.ok()) {
      lose(decode, status);
      return absl::OkStatus(); // the request has ended with it
    }
    countFreed(decode, next.placement);
    decode.placement = next.placement;
    decode.readyNs = nowNs() + static_cast<int64_t>(std::ceil(changes));
  }
  prefill.run.keepBlocks(of.apart());
  RETURN_IF_ERROR(prefill.run.begin(prefill.work));
  prefill.began = false;
  outcome.startNs = nowNs();
  of.dirty = busLost;
  of.losses = result.bandwidthLosses;
  of.phase = RequestPhase::Prefill;
  return absl::OkStatus();
}

} // namespace headrace::serve
