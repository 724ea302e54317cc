// SPDX-License-Identifier: Apache-2.0
//
// The request path (Select-N, section 4.2): which instance a request goes to, when it starts, and what goes back to the
// caller.
#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/serve/fleet/FleetImpl.h"

namespace headrace::serve {

using model::cat;

namespace {

GenerateRequest workOf(const FleetRequest &asked, int64_t newTokens) {
  GenerateRequest work;
  work.prompts = asked.prompts;
  work.maxNewTokens = newTokens;
  work.sampling = asked.sampling;
  work.stopTokens = asked.stopTokens;
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
  const uint64_t all = ~uint64_t{0} >> (64 - instances.size()), own = uint64_t{1} << device;
  const Copying copying{all, stageBytes(stage).d2h != 0 ? all : all & ~own};
  return timeAtRate(stage, FairRates(coordinator.bus()).of(copying, device));
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

// What no instance could hold at any time; ok if one could.
absl::Status Fleet::Impl::fitsNowhere(const FleetRequest &a) const {
  absl::Status first;
  for (const auto &i : instances) {
    if (i->lost || i->plan.model->name != a.model || i->spec.role == Role::Decode)
      continue;
    absl::Status status = checkRequest(i->plan, workOf(a, i->spec.role == Role::Both ? a.maxNewTokens : 1));
    if (status.ok())
      return absl::OkStatus();
    if (first.ok())
      first = std::move(status);
  }
  return first;
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
  if (absl::Status status = fitsNowhere(a); !status.ok())
    return refuse(absl::Status(status.code(), cat(nameOf(request), ": ", std::string(status.message()))));
  bool tried = false;
  const auto attempt = [&](FleetInstance &prefill, FleetInstance *decode) {
    const absl::Status status = admitTo(request, prefill, decode);
    if (!tried && !status.ok()) // the first reason is told
      why = absl::Status(status.code(), cat(nameOf(request), ": ", std::string(status.message())));
    tried = true;
    return status.ok();
  };
  const auto serves = [&](const FleetInstance &i, Role role) {
    return i.spec.role == role && i.plan.model->name == a.model;
  };
  for (const auto &i : instances)
    if (i->free() && serves(*i, Role::Both) && attempt(*i, a.maxNewTokens > 1 ? i.get() : nullptr))
      return Admission::Admitted;
  for (const auto &p : instances) {
    if (!p->free() || !serves(*p, Role::Prefill))
      continue;
    if (a.maxNewTokens == 1 && attempt(*p, nullptr))
      return Admission::Admitted;
    for (const auto &d : instances)
      if (a.maxNewTokens > 1 && d->free() && serves(*d, Role::Decode) && attempt(*p, d.get()))
        return Admission::Admitted;
  }
  // Beside others: where that cannot be held now, it may be when some of them have ended.
  const bool alone = tried;
  for (const auto &i : instances)
    if (serves(*i, Role::Both) && (i->joinable() || (i->waveWaits() && coordinator.joining(i->index))) &&
        attempt(*i, i.get()))
      return Admission::Admitted;
  for (const auto &p : instances)
    for (const auto &d : instances)
      if (a.maxNewTokens > 1 && p->free() && serves(*p, Role::Prefill) && d->joinable() && serves(*d, Role::Decode) &&
          attempt(*p, d.get()))
        return Admission::Admitted;
  return alone ? Admission::Refused : Admission::NoneFree;
}

absl::Status Fleet::Impl::admitTo(uint32_t request, FleetInstance &prefill, FleetInstance *decode) {
  const FleetRequest &a = asked[request];
  const double waited = static_cast<double>(nowNs() - result.requests[request].arrivalNs);
  const bool apart = decode != nullptr && decode != &prefill;
  // What is checked of a request is the same for its prefill alone.
  RETURN_IF_ERROR(checkRequest(prefill.plan, workOf(a, apart ? 1 : a.maxNewTokens)));
  const BatchWork batch = loneWork(a);
  ServedRequest next;
  next.asked = &a;
  next.phase = RequestPhase::Waiting;
  next.prefill = prefill.index;
  next.decode = decode == nullptr ? kNoInstance : decode->index;
  next.admittedNs = nowNs();
  next.lastTokenNs.assign(a.prompts.size(), 0);
  next.unread = a.prompts.size();
  next.joined = decode != nullptr && !decode->requests.empty();
  next.kvBlocks = blocksFor(decode == nullptr ? prefill : *decode, a, a.maxNewTokens);
  if (next.joined && !apart) {
    served[request] = std::move(next);
    RETURN_IF_ERROR(joinTo(request, prefill));
    admitted(request);
    return absl::OkStatus();
  }

  BusRequest first{prefill.index, a.ttftNs(), waited, {}};
  first.name = nameOf(request);
  first.prompts = apart || decode == nullptr;
  const Role role = apart || decode == nullptr ? Role::Prefill : Role::Both;
  const uint64_t kvBytes = apart ? handoverBytes(decode->plan, handoverBlocks(decode->plan, batch.promptTokens)) : 0;
  absl::StatusOr<std::vector<BusPlacement>> placements =
      prefill.loads.placements(batch, role, prefill.spec.runtime->placement(), kvBytes);
  if (!placements.ok())
    return placements.status();
  first.placements = *std::move(placements);
  if (role == Role::Both) {
    first.sloNs = a.tpotNs();
    first.firstSloNs = a.ttftNs();
  }
  const bool joined = next.joined;
  if (apart) {
    RETURN_IF_ERROR(checkRequest(decode->plan, workOf(a, a.maxNewTokens)));
    next.kvBytes = kvBytes;
    RETURN_IF_ERROR(decodeFirst(request, std::move(next), *decode, first));
  } else {
    served[request] = std::move(next);
  }
  if (absl::Status status = coordinator.arrive(first); !status.ok()) {
    if (apart && joined) {
      std::erase(decode->requests, request);
      decode->wave.clear();
      coordinator.leaveOut(decode->index);
    } else if (apart) {
      (void)coordinator.finish(decode->index);
    }
    return status;
  }
  for (FleetInstance *on : {&prefill, apart && !joined ? decode : nullptr})
    if (on != nullptr) {
      on->requests = {request};
      on->wave = {request};
      on->waveStarted = on->batched = on->began = false;
      countBlocks(*on);
    }
  admitted(request);
  return absl::OkStatus();
}

// The instance that decodes a request which another one prefills is asked first; `first` is what the other one is asked
// then.
absl::Status Fleet::Impl::decodeFirst(uint32_t request, ServedRequest next, FleetInstance &decode, BusRequest &first) {
  const FleetRequest &a = asked[request];
  // One that decodes others goes on with that.
  double waits = 0;
  if (next.joined) {
    waits = a.tpotNs();
    for (const uint32_t other : decode.requests)
      waits = std::min(waits, served[other].asked->tpotNs());
  }
  const uint64_t blocks = next.kvBytes / handoverBytes(decode.plan, 1);
  first.handoverNs = next.handoverNs = handoverNs(blocks, instance(next.prefill), decode, waits);
  if (!(a.ttftNs() - first.waitedNs - first.handoverNs > 0))
    return absl::ResourceExhaustedError(cat("the first token cannot be had within ", ms(a.ttftNs() - first.waitedNs),
                                            " ms: the hand-over of ", next.kvBytes, " bytes of KV cache takes ",
                                            ms(first.handoverNs), " ms"));
  const bool joined = next.joined;
  const uint64_t kvBytes = next.kvBytes;
  served[request] = std::move(next);
  if (joined)
    return joinTo(request, decode);
  first.decodedBy = decode.index;
  BusRequest second{decode.index, a.tpotNs(), first.waitedNs, {}};
  second.firstSloNs = a.ttftNs();
  second.name = first.name;
  second.handoverBytes = kvBytes;
  ASSIGN_OR_RETURN(placements,
                   decode.loads.placements(loneWork(a), Role::Decode, decode.spec.runtime->placement(), kvBytes));
  // The transition runs while the prompts are prefilled, at worst before the hand-over.
  for (const BusPlacement &p : placements)
    if (fairNs(p.first, decode.index) <= a.ttftNs() - first.waitedNs)
      second.placements.push_back(p);
  if (second.placements.empty())
    return absl::ResourceExhaustedError(cat("the first token cannot be had within ", ms(a.ttftNs() - first.waitedNs),
                                            " ms: instance ", decode.spec.name,
                                            " takes longer to change its placement and receive the KV cache"));
  return coordinator.arrive(second);
}

void Fleet::Impl::admitted(uint32_t request) {
  const ServedRequest &of = served[request];
  RequestOutcome &outcome = result.requests[request];
  outcome.status = absl::OkStatus();
  outcome.admitted = true;
  outcome.prefillInstance = of.prefill;
  outcome.decodeInstance = of.asked->maxNewTokens > 1 ? of.decode : kNoInstance;
  outcome.tokens.resize(of.asked->prompts.size());
  for (std::vector<int32_t> &tokens : outcome.tokens)
    tokens.reserve(static_cast<size_t>(of.asked->maxNewTokens));
  alive.push_back(request);
}

void Fleet::Impl::serveQueue() {
  tryQueue = false;
  for (size_t at = 0; at < queue.size();) {
    const uint32_t request = queue[at];
    absl::Status why;
    const FleetRequest &a = asked[request];
    const double waited = static_cast<double>(nowNs() - result.requests[request].arrivalNs);
    const bool late = a.ttftNs() > 0 && waited >= a.ttftNs();
    Admission admission = Admission::NoneFree;
    if (!late || !options.queue)
      admission = admit(request, why);
    if (!why.ok() && served[request].beside.ok())
      served[request].beside = why;
    if (admission == Admission::NoneFree && (!options.queue || late)) {
      const absl::Status &last = served[request].beside;
      const std::string beside = last.ok() ? "; those of it were full, or busy with the prompts of others"
                                           : cat("; beside those that ran when it came: ", std::string(last.message()));
      const std::string free = cat("no instance of model '", a.model, "'");
      why = options.queue ? absl::ResourceExhaustedError(cat(nameOf(request), ": its TTFT of ", ms(a.ttftNs()),
                                                             " ms is spent: ", free, " could take it", beside))
                          : absl::UnavailableError(cat(nameOf(request), ": ", free, " is free", beside));
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

} // namespace headrace::serve
