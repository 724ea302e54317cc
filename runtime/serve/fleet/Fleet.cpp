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
#include "runtime/job/Capabilities.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/serve/fleet/FleetImpl.h"

namespace headrace::serve {

using model::cat;
using model::Mechanism;

absl::Status FleetInstance::enter(uint32_t to, absl::Span<const std::vector<int32_t>> prompts) {
  const auto sequences = static_cast<int64_t>(prompts.size());
  size_t longest = 0;
  for (const std::vector<int32_t> &prompt : prompts)
    longest = std::max(longest, prompt.size());
  // What is the fastest then, not with the transition: that has ended when decoding begins.
  const std::optional<uint32_t> variant = loads.cheapest(to, {sequences, sequences, static_cast<int64_t>(longest) + 1});
  if (!variant)
    return absl::InternalError(cat("instance ", spec.name, ": placement ", to, " has no variant for its request"));
  return spec.runtime->enter(*variant);
}

const FleetInstance::Member *FleetInstance::member(uint64_t id) const {
  const auto at =
      std::lower_bound(members.begin(), members.end(), id, [](const Member &m, uint64_t i) { return m.id < i; });
  return at == members.end() || at->id != id ? nullptr : &*at;
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
    if (const uint32_t count = instances[i].runtime->plan().miniBatches; count > 1)
      return absl::InvalidArgumentError(
          cat("instance ", i, " (", instances[i].name, "): its plan has ", count,
              " mini-batches, expected 1: ", model::whyNotBeside(Mechanism::MiniBatches, Mechanism::HandOver)));
    if (instances[i].runtime->plan().actBlocks > 0)
      return absl::InvalidArgumentError(
          cat("instance ", i, " (", instances[i].name, "): its plan has ", instances[i].runtime->plan().actBlocks,
              " activation blocks, expected none: ", model::whyNotBeside(Mechanism::ActBlocks, Mechanism::HandOver)));
    if (const plan::Plan &plan = instances[i].runtime->plan();
        group.size() > 1 && plan.attendsOnCpu() && plan.hardware.kind == model::DeviceKind::Cuda)
      return absl::InvalidArgumentError(cat("instance ", i, " (", instances[i].name,
                                            "): its plan attends on the CPU, expected attention = \"device\": devices "
                                            "of a fleet share one CPU, and each plan counts on all of it"));
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
    const PlanLoads &loads = made.back()->loads;
    devices.push_back({spec.name, loads.linkBandwidth(), spec.memoryBytes == 0 ? ~uint64_t{0} : spec.memoryBytes,
                       loads.d2hBandwidth(), loads.bothShare()});
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
  coordinatorOptions.d2hBandwidth = options.busD2hBandwidth;
  coordinatorOptions.bothBandwidth = options.busDuplexBandwidth;
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
  for (const auto &on : fleet->impl_->instances) {
    absl::StatusOr<std::unique_ptr<Engine>> engine =
        Engine::create(*on->spec.runtime, fleet->impl_->engineOptions(*on));
    if (!engine.ok())
      return absl::Status(engine.status().code(),
                          cat("instance ", on->spec.name, ": ", std::string(engine.status().message())));
    on->engine = *std::move(engine);
    if (on->spec.role != Role::Both)
      if (absl::Status reserved = KvHandover::reserve(*on->spec.runtime); !reserved.ok())
        return absl::Status(reserved.code(),
                            cat("instance ", on->spec.name,
                                ": memory for KV caches that are handed over: ", std::string(reserved.message())));
    on->members.reserve(static_cast<size_t>(on->engine->maxNumSeqs()));
  }
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
  i.awaited.assign(i.instances.size(), 0);
  size_t seats = 0;
  for (const auto &on : i.instances)
    seats = std::max(seats, static_cast<size_t>(on->engine->maxNumSeqs()));
  i.rows.reserve(seats);
  i.gaps.reserve(seats);
  i.delivered.reserve(seats);
  i.done.reserve(seats);
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
    handOver();
    if (tryQueue || (!queue.empty() && !options.queue))
      serveQueue();
    startJoining();
    startWaiting();
    launchEdges();
    bool inFlight = false;
    for (const auto &on : instances) {
      awaited[on->index] = on->lost ? 0 : on->engine->oldestNumber();
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
      next = std::min(next, served[r].lookNs);
  for (uint32_t r : queue)
    next = std::min(next, result.requests[r].arrivalNs + asked[r].ttft.count());
  for (const auto &on : instances)
    if (on->drainedNs != FleetInstance::kNothing)
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
    if (on->lost || on->unended == 0 || on->engine->inFlight() != 0)
      continue;
    if (absl::Status status = launch(*on); !status.ok())
      lose(*on, status);
  }
  if (busLost && coordinator.settled() && !coordinator.overloaded())
    busLost = false;
}

absl::Status Fleet::Impl::launch(FleetInstance &on) {
  EngineEdge edge{.placement = on.placement};
  on.kvWaited = false;
  // The prompts of a request that finds it free run alone; and those that only prefill are one iteration to the
  // coordinator.
  const bool alone = !on.wave.empty() && on.waveStarted && !served[on.wave.front()].joined;
  const bool whole = alone && served[on.wave.front()].decode != on.index;
  edge.prefill = alone ? Prefill::Separate : Prefill::Chunked;
  // While a KV cache comes in the placement stays: to the coordinator it is at no edge.
  if (on.handover.brings()) {
    edge.budget = on.budget;
  } else if (!whole || !on.began) {
    ASSIGN_OR_RETURN(next, coordinator.nextIteration(on.index));
    edge.placement = next.placement;
    edge.budget = on.budget = next.budget;
    on.enters = false;
  }
  // The changes come before the rows, so that these have the blocks of the new placement.
  if (edge.placement != on.placement) {
    absl::Status changed = on.changeTo(edge.placement);
    if (changed.code() == absl::StatusCode::kFailedPrecondition) { // blocks in use stand in its way
      const absl::StatusOr<NextIteration> stays = coordinator.postpone(on.index);
      if (!stays.ok())
        return changed;
      edge.placement = stays->placement;
      on.kvWaited = true;
      ++result.kvWaits;
    } else if (!changed.ok()) {
      return changed;
    }
  }
  on.began = true;
  on.changed = edge.placement != on.placement;
  if (on.changed) {
    countFreed(on, edge.placement);
    on.placement = edge.placement;
  }
  on.dirty = std::exchange(on.arrivedLate, false) || busLost;
  on.losses = result.bandwidthLosses;
  ASSIGN_OR_RETURN(launched, on.engine->launch(edge));
  return launched ? absl::OkStatus()
                  : absl::InternalError(cat("instance ", on.spec.name, ": nothing to launch, and tokens are missing"));
}

void Fleet::Impl::read(FleetInstance &on) {
  rows.clear();
  gaps.clear();
  delivered.clear();
  done.clear();
  if (absl::Status status = on.engine->read(); !status.ok())
    return lose(on, status);
  measure();
  countRead(on);
  if (std::exchange(on.arrived, false)) {
    shrink(on);
    tryQueue = tryQueue || !queue.empty();
  }
  for (size_t i = 0; i < delivered.size() && !on.lost; ++i)
    if (served[delivered[i]].phase == RequestPhase::Prefill)
      prefilled(delivered[i], on, iteration.visibleNs);
  for (size_t i = 0; i < done.size() && !on.lost; ++i) {
    const ServedRequest &of = served[done[i]];
    if (of.phase == RequestPhase::Decode || (of.phase == RequestPhase::Prefill && !of.failed.ok()))
      end(done[i], of.failed);
  }
}

// Every sequence has its first token.
void Fleet::Impl::prefilled(uint32_t request, FleetInstance &on, int64_t visibleNs) {
  ServedRequest &of = served[request];
  if (of.apart()) {
    if (absl::Status status = beginHandover(request, on, visibleNs); !status.ok())
      failHandover(request, status);
    return;
  }
  deliverFirst(request, visibleNs);
  of.phase = RequestPhase::Decode;
  std::erase(on.wave, request);
  if (!on.wave.empty())
    return;
  tryQueue = tryQueue || !queue.empty();
  if (of.decode != on.index || of.running == 0)
    return; // it ends, and with it what the coordinator knows of it
  if (of.joined)
    shrink(on);
  else
    (void)coordinator.firstDone(on.index);
}

} // namespace headrace::serve
