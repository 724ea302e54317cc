// SPDX-License-Identifier: Apache-2.0
//
// The loop: at one moment everything that is due is done (arrivals, admissions, starts, launches at the edges of
// iterations), then whoever is ready first is waited for.
#include "runtime/serve/fleet/Fleet.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/serve/fleet/FleetImpl.h"

namespace headrace::serve {

using model::cat;

absl::Status FleetInstance::enter(uint32_t to) {
  const auto sequences = static_cast<int64_t>(work.prompts.size());
  size_t longest = 0;
  for (const std::vector<int32_t> &prompt : work.prompts)
    longest = std::max(longest, prompt.size());
  // What is the fastest then, not with the transition: that has ended when decoding begins.
  const std::optional<uint32_t> variant = loads.cheapest(to, {sequences, sequences, static_cast<int64_t>(longest) + 1});
  if (!variant)
    return absl::InternalError(cat("instance ", spec.name, ": placement ", to, " has no variant for its request"));
  return spec.runtime->enter(*variant);
}

absl::Status FleetInstance::changeTo(uint32_t to) {
  while (spec.runtime->placement() != to)
    RETURN_IF_ERROR(spec.runtime->takeHop(to).status());
  return absl::OkStatus();
}

Fleet::Fleet() = default;
Fleet::~Fleet() = default;
const Coordinator &Fleet::coordinator() const { return impl_->coordinator; }

absl::StatusOr<std::unique_ptr<Fleet>> Fleet::create(core::DeviceGroup &group, std::vector<InstanceSpec> instances,
                                                     FleetOptions options) {
  if (group.size() == 0)
    return absl::InvalidArgumentError("a bus with no devices: expected at least one");
  if (instances.size() != group.size())
    return absl::InvalidArgumentError(
        cat(instances.size(), " instances on ", group.size(), " devices: expected one a device"));
  for (size_t i = 1; i < options.busChanges.size(); ++i)
    if (options.busChanges[i].atNs < options.busChanges[i - 1].atNs)
      return absl::InvalidArgumentError(cat("bus change ", i, ": its time is before the one before it"));
  for (const BusChange &change : options.busChanges)
    if (!(change.bytesPerSecond > 0) || !std::isfinite(change.bytesPerSecond))
      return absl::InvalidArgumentError(
          cat("bus change: ", change.bytesPerSecond, " bytes/s: expected a positive finite number"));
  for (size_t i = 0; i < instances.size(); ++i) {
    if (instances[i].runtime == nullptr)
      return absl::InvalidArgumentError(cat("instance ", i, " (", instances[i].name, ") has no runtime"));
    if (&instances[i].runtime->device() != &group.device(i))
      return absl::FailedPreconditionError(
          cat("instance ", i, " (", instances[i].name, "): its runtime is not on device ", i, " of the group"));
  }

  std::vector<std::unique_ptr<FleetInstance>> made;
  std::vector<BusDevice> devices;
  for (size_t i = 0; i < instances.size(); ++i) {
    made.push_back(std::make_unique<FleetInstance>(static_cast<uint32_t>(i), std::move(instances[i])));
    const InstanceSpec &spec = made.back()->spec;
    made.back()->placement = spec.runtime->placement();
    devices.push_back(
        {spec.name, made.back()->loads.linkBandwidth(), spec.memoryBytes == 0 ? ~uint64_t{0} : spec.memoryBytes});
  }
  for (const auto &p : made)
    for (const auto &d : made)
      if (p->spec.role == Role::Prefill && d->spec.role == Role::Decode && p->plan.model->name == d->plan.model->name)
        if (absl::Status status = checkHandover(p->plan, d->plan); !status.ok())
          return absl::Status(status.code(), cat("instances ", p->spec.name, " and ", d->spec.name, ": ",
                                                 std::string(status.message())));
  CoordinatorOptions coordinatorOptions;
  coordinatorOptions.objective = options.objective;
  coordinatorOptions.limits = options.limits;
  coordinatorOptions.lowerBy = options.lowerBy;
  coordinatorOptions.raiseBy = options.raiseBy;
  coordinatorOptions.raiseAfter = options.raiseAfter;
  coordinatorOptions.keepRetreat = options.keepRetreat;
  std::vector<const PlanLoads *> loads;
  loads.reserve(made.size());
  for (const auto &i : made)
    loads.push_back(&i->loads);
  coordinatorOptions.transition = [loads](uint32_t device, uint32_t from, uint32_t to) {
    return loads[device]->change(from, to);
  };
  ASSIGN_OR_RETURN(coordinator,
                   Coordinator::create(options.busBandwidth, std::move(devices), std::move(coordinatorOptions)));
  std::unique_ptr<Fleet> fleet(new Fleet());
  fleet->impl_ = std::make_unique<Impl>(group, std::move(options), std::move(coordinator));
  fleet->impl_->instances = std::move(made);
  return fleet;
}

absl::StatusOr<FleetResult> Fleet::run(absl::Span<const FleetRequest> requests) {
  Impl &i = *impl_;
  for (size_t r = 0; r < requests.size(); ++r)
    if (requests[r].arrivalNs < (r == 0 ? 0 : requests[r - 1].arrivalNs))
      return absl::InvalidArgumentError(cat("request ", r, ": arrives at ", requests[r].arrivalNs,
                                            " ns: expected 0 or more, and requests in order of arrival"));
  i.asked = requests;
  i.served.assign(requests.size(), {});
  i.result = FleetResult{};
  i.result.requests.resize(requests.size());
  i.result.startNs = i.freedSinceNs = i.nowNs();
  for (size_t r = 0; r < requests.size(); ++r)
    i.result.requests[r].arrivalNs = i.result.startNs + requests[r].arrivalNs;
  i.arrived = i.busChanged = 0;
  i.queue.clear();
  i.alive.clear();
  i.alive.reserve(i.instances.size());
  i.awaited.assign(i.instances.size(), 0);
  i.busLost = false;
  i.freedBytes = 0;
  for (const auto &on : i.instances)
    i.freedBytes += on->loads.freedBytes(on->placement);
  const absl::Status status = i.loop();
  while (!i.alive.empty()) // after a failure
    i.end(i.alive.front(), status);
  i.finishDraining(core::kForeverNs);
  i.summarise();
  i.asked = {};
  if (!status.ok())
    return status;
  return std::move(i.result);
}

absl::Status Fleet::lose(uint32_t index, const absl::Status &why) {
  if (index >= impl_->instances.size())
    return absl::InvalidArgumentError(cat("instance ", index, ": the fleet has ", impl_->instances.size()));
  if (impl_->instance(index).lost)
    return absl::FailedPreconditionError(cat("instance ", impl_->instance(index).spec.name, " is lost"));
  impl_->lose(impl_->instance(index), why);
  return absl::OkStatus();
}

absl::Status Fleet::Impl::loop() {
  for (;;) {
    const int64_t now = nowNs() - result.startNs;
    changeBus();
    for (; arrived < asked.size() && asked[arrived].arrivalNs <= now; ++arrived) {
      queue.push_back(static_cast<uint32_t>(arrived));
      tryQueue = true;
    }
    finishDraining(nowNs());
    finishHandovers();
    if (tryQueue || (!queue.empty() && !options.queue))
      serveQueue();
    startWaiting();
    launchEdges();
    bool inFlight = false;
    for (const auto &on : instances) {
      awaited[on->index] = on->lost ? 0 : on->run.oldestNumber();
      inFlight = inFlight || awaited[on->index] != 0;
    }
    if (tryQueue) // something ended meanwhile
      continue;
    const int64_t until = nextMoment();
    if (!inFlight && until == core::kForeverNs) {
      if (alive.empty() && queue.empty())
        return absl::OkStatus();
      return absl::InternalError("requests wait, and nothing that they wait for will come");
    }
    const absl::StatusOr<size_t> ready = group.waitAny(awaited, until);
    if (!ready.ok()) {
      // One of them is gone: whose tokens cannot be had is found by asking for them one by one.
      const size_t before = alive.size();
      for (const auto &on : instances)
        if (awaited[on->index] != 0 && !on->lost)
          read(*on);
      if (alive.size() == before &&
          std::none_of(instances.begin(), instances.end(), [](const auto &i) { return i->lost; }))
        return ready.status();
      continue;
    }
    if (*ready < instances.size()) {
      read(*instances[*ready]);
      continue;
    }
    if (!queue.empty())
      tryQueue = true; // one may have waited too long
  }
}

// The next time at which something is to be done, whoever is ready.
int64_t Fleet::Impl::nextMoment() const {
  int64_t next = core::kForeverNs;
  if (arrived < asked.size())
    next = result.startNs + asked[arrived].arrivalNs;
  if (busChanged < options.busChanges.size() && !(alive.empty() && queue.empty() && arrived == asked.size()))
    next = std::min(next, result.startNs + options.busChanges[busChanged].atNs);
  for (uint32_t r : alive)
    if (served[r].phase == RequestPhase::Handover)
      next = std::min(next, served[r].handoverEndNs);
  for (uint32_t r : queue)
    next = std::min(next, result.requests[r].arrivalNs + asked[r].ttft.count());
  for (const auto &on : instances)
    if (on->drainedNs != FleetInstance::kNotDraining)
      next = std::min(next, on->drainedNs);
  return next;
}

void Fleet::Impl::changeBus() {
  const int64_t now = nowNs() - result.startNs;
  for (; busChanged < options.busChanges.size() && options.busChanges[busChanged].atNs <= now; ++busChanged)
    (void)group.setBusBandwidth(options.busChanges[busChanged].bytesPerSecond); // checked by create()
}

void Fleet::Impl::launchEdges() {
  for (const auto &on : instances) {
    if (on->lost || !on->run.active() || on->run.inFlight() != 0 || on->run.done())
      continue;
    if (absl::Status status = launch(*on); !status.ok())
      lose(*on, status);
  }
  if (busLost && coordinator.settled() && !coordinator.overloaded())
    busLost = false;
}

absl::Status Fleet::Impl::launch(FleetInstance &on) {
  uint32_t placement = on.placement;
  on.kvWaited = false;
  // The prompts of a request that only prefills are one iteration to the coordinator.
  const bool whole = served[on.request].decode != on.index;
  if (!whole || !on.began) {
    ASSIGN_OR_RETURN(next, coordinator.nextIteration(on.index));
    placement = next.placement;
  }
  // The changes come before the rows, so that these have the blocks of the new placement.
  if (placement != on.placement) {
    absl::Status changed = on.changeTo(placement);
    if (changed.code() == absl::StatusCode::kFailedPrecondition) { // blocks in use stand in its way
      const absl::StatusOr<NextIteration> stays = coordinator.postpone(on.index);
      if (!stays.ok())
        return changed;
      placement = stays->placement;
      on.kvWaited = true;
      ++result.kvWaits;
    } else if (!changed.ok()) {
      return changed;
    }
  }
  on.began = true;
  on.changed = placement != on.placement;
  if (on.changed) {
    countFreed(on, placement);
    on.placement = placement;
  }
  on.dirty = busLost;
  on.losses = result.bandwidthLosses;
  ASSIGN_OR_RETURN(launched, on.run.launchNext(placement));
  return launched ? absl::OkStatus()
                  : absl::InternalError(cat("instance ", on.spec.name, ": nothing to launch, and tokens are missing"));
}

void Fleet::Impl::read(FleetInstance &on) {
  if (absl::Status status = on.run.readOldest(); !status.ok()) {
    if (absl::IsAborted(status)) // wrong numbers are the request's end, not the device's
      end(on.request, status);
    else
      lose(on, status);
    return;
  }
  measure();
  const uint32_t request = on.request;
  countRead(on);
  if (on.lost || on.request != request)
    return; // the caller gave it up
  const bool first = result.requests[request].firstTokensNs < 0;
  if (first && on.run.prefilled()) {
    prefilled(on, on.run.lastRead().visibleNs);
    return;
  }
  if (!first && on.run.done())
    end(request, absl::OkStatus());
}

void Fleet::Impl::prefilled(FleetInstance &on, int64_t visibleNs) {
  const uint32_t request = on.request;
  ServedRequest &of = served[request];
  if (of.apart()) {
    const FleetInstance &decode = instance(of.decode);
    drain(on, on.run.lastRead().variant); // its KV cache is taken until the hand-over has ended
    const auto moves = static_cast<int64_t>(std::ceil(handoverNs(of.kvBytes, of.decode)));
    // Nothing of the prefill is counted beside what decodes: what it copies behind its tokens ends before that begins.
    // Its objective had time for that.
    const auto tail =
        static_cast<int64_t>(std::ceil(fairNs({0, 0, 0, on.loads.tailBytes(on.run.lastRead().variant)}, on.index)));
    const int64_t last = result.requests[request].arrivalNs + of.asked->ttft.count();
    of.phase = RequestPhase::Handover;
    of.handoverEndNs =
        std::max(std::max(visibleNs, decode.readyNs) + moves, std::min(visibleNs + tail, std::max(visibleNs, last)));
    result.requests[request].handoverNs = of.handoverEndNs - visibleNs;
    return;
  }
  deliverFirst(request, visibleNs);
  if (on.run.done()) {
    end(request, absl::OkStatus());
    return;
  }
  of.phase = RequestPhase::Decode;
  (void)coordinator.firstDone(on.index);
}

void Fleet::Impl::finishHandovers() {
  for (size_t at = 0; at < alive.size();) {
    const uint32_t request = alive[at];
    if (served[request].phase == RequestPhase::Handover && served[request].handoverEndNs <= nowNs())
      if (absl::Status status = finishHandover(request); !status.ok())
        end(request, status);
    if (served[request].phase != RequestPhase::Ended)
      ++at;
  }
}

absl::Status Fleet::Impl::finishHandover(uint32_t request) {
  ServedRequest &of = served[request];
  FleetInstance &from = instance(of.prefill), &to = instance(of.decode);
  std::vector<int32_t> first;
  for (const std::vector<int32_t> &tokens : from.run.tokens())
    first.push_back(tokens.at(0));
  RETURN_IF_ERROR(to.run.beginPrefilled(to.work, first));
  for (size_t s = 0; s < first.size(); ++s) {
    const absl::Span<const int32_t> into = to.run.blocksOf(s); // none of a sequence that has ended
    if (absl::Status status =
            handover.move(*from.spec.runtime, from.run.blocksOf(s).subspan(0, into.size()), *to.spec.runtime, into);
        !status.ok())
      return status;
  }
  // By now its tail has ended, or its objective had no more time for that: it is no neighbour of what decodes.
  if (from.drainedNs != FleetInstance::kNotDraining)
    drained(from);
  release(from);
  of.prefill = of.decode;
  of.phase = RequestPhase::Decode;
  deliverFirst(request, std::max(of.handoverEndNs, nowNs()));
  if (to.run.done()) {
    end(request, absl::OkStatus());
    return absl::OkStatus();
  }
  return coordinator.firstDone(to.index);
}

// The device launches no more for its request; `last` is the variant of its last iteration, whose tokens are read. What
// it copies behind these, its neighbours still share the bus with: it counts until that has ended at its fair share.
// (One that ends with the transition to its first iteration under way, as another device failed, is not waited for.)
void Fleet::Impl::drain(FleetInstance &on, std::optional<uint32_t> last) {
  const DeviceState state = coordinator.state(on.index);
  if ((state != DeviceState::Waiting && state != DeviceState::Running) || on.drainedNs != FleetInstance::kNotDraining)
    return;
  const uint64_t bytes = last && state == DeviceState::Running ? on.loads.tailBytes(*last) : 0;
  if (bytes == 0) {
    (void)coordinator.finish(on.index);
    return;
  }
  (void)coordinator.drain(on.index, bytes);
  on.drainedNs = nowNs() + static_cast<int64_t>(std::ceil(fairNs({0, 0, 0, bytes}, on.index)));
}

void Fleet::Impl::drained(FleetInstance &on) {
  on.drainedNs = FleetInstance::kNotDraining;
  (void)coordinator.finish(on.index);
  tryQueue = tryQueue || !queue.empty();
}

void Fleet::Impl::finishDraining(int64_t now) {
  for (const auto &on : instances)
    if (on->drainedNs != FleetInstance::kNotDraining && on->drainedNs <= now)
      drained(*on);
}

void Fleet::Impl::release(FleetInstance &on) {
  std::optional<uint32_t> last;
  if (on.run.active()) {
    if (on.run.launched())
      last = on.run.lastLaunched().variant;
    (void)on.run.end(); // waits for what is in flight; of a device that is lost there is nothing to wait for
  }
  drain(on, last);
  on.request = kNoInstance;
  tryQueue = tryQueue || !queue.empty();
}

void Fleet::Impl::end(uint32_t request, const absl::Status &status) {
  ServedRequest &of = served[request];
  RequestOutcome &outcome = result.requests[request];
  of.phase = RequestPhase::Ended;
  outcome.status = status;
  outcome.endNs = nowNs();
  for (const auto &on : instances) {
    if (on->request != request)
      continue;
    // The decode instance has all tokens once it has begun.
    if (on->run.active() && (on->index == of.decode || outcome.tokens.empty()))
      outcome.tokens = on->run.tokens();
    release(*on);
  }
  alive.erase(std::find(alive.begin(), alive.end(), request));
}

void Fleet::Impl::lose(FleetInstance &on, const absl::Status &why) {
  on.lost = true;
  on.why = why;
  on.drainedNs = FleetInstance::kNotDraining;
  (void)coordinator.lose(on.index);
  if (on.request == kNoInstance)
    return;
  const uint32_t request = on.request;
  end(request, absl::UnavailableError(cat("request ", request, ": device ", on.index, " (", on.spec.name,
                                          ") was lost while it served it: ", std::string(why.message()))));
  tryQueue = tryQueue || !queue.empty();
}

} // namespace headrace::serve
