// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/fleet/Coordinator.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"

namespace headrace::serve {

using model::cat;

Coordinator::Coordinator(double bandwidth, std::vector<BusDevice> devices, CoordinatorOptions options)
    : nominal_(bandwidth), devices_(std::move(devices)), options_(std::move(options)), slots_(devices_.size()),
      triedAfter_(options_.raiseAfter) {
  bus_.bandwidth = bandwidth;
  for (uint32_t d = 0; d < devices_.size(); ++d) {
    bus_.links.push_back(devices_[d].linkBandwidth);
    slots_[d].load.device = d;
  }
}

std::string Coordinator::name(uint32_t device) const {
  return cat("device ", device, " (", devices_[device].name, ")");
}

std::vector<uint32_t> Coordinator::served() const {
  std::vector<uint32_t> devices;
  for (uint32_t d = 0; d < slots_.size(); ++d) {
    if (slots_[d].state == DeviceState::Waiting || slots_[d].state == DeviceState::Running)
      devices.push_back(d);
  }
  return devices;
}

std::vector<BusLoad> Coordinator::loadsOf(const std::vector<uint32_t> &devices) const {
  std::vector<BusLoad> loads;
  loads.reserve(devices.size());
  for (uint32_t d : devices)
    loads.push_back(decided(slots_[d]));
  return loads;
}

absl::Status Coordinator::arrive(const BusRequest &request) {
  RETURN_IF_ERROR(checkDevice(request.device));
  if (slots_[request.device].state != DeviceState::Idle)
    return absl::FailedPreconditionError(cat(name(request.device), ": is not free"));
  ASSIGN_OR_RETURN(load, validLoad(request));

  std::vector<uint32_t> devices = served();
  std::vector<BusLoad> loads = loadsOf(devices);
  loads.push_back(load);
  Combination combination = chooseCombination(bus_, loads, options_.objective, options_.limits);
  if (!combination.feasible)
    return refuseContended(std::move(loads), request);

  devices.push_back(request.device);
  Slot &slot = slots_[request.device];
  slot = Slot{};
  slot.state = DeviceState::Waiting;
  slot.load = std::move(load);
  slot.request = request.name;
  slot.prompts = request.prompts;
  take(devices, std::move(combination));
  settle();
  return absl::OkStatus();
}

absl::Status Coordinator::join(const BusRequest &request) {
  RETURN_IF_ERROR(checkDevice(request.device));
  Slot &slot = slots_[request.device];
  if (slot.state != DeviceState::Running || std::isfinite(slot.load.firstSloNs))
    return absl::FailedPreconditionError(
        cat(name(request.device), ": nothing joins it: it serves nothing, or what it serves is in its first stage"));
  ASSIGN_OR_RETURN(load, validLoad(request));
  std::vector<uint32_t> devices = served();
  devices.erase(std::find(devices.begin(), devices.end(), request.device));
  std::vector<BusLoad> loads = loadsOf(devices);
  devices.push_back(request.device);
  loads.push_back(load);
  Combination combination = chooseCombination(bus_, loads, options_.objective, options_.limits);
  if (!combination.feasible)
    return refuseContended(std::move(loads), request);
  slot.wanted = std::move(load);
  slot.joins = request.name;
  slot.waitedNs = 0;
  take(devices, std::move(combination));
  settle();
  return absl::OkStatus();
}

void Coordinator::dropJoining(Slot &slot) {
  slot.wanted.reset();
  slot.refused = false;
  slot.target = slot.current;
}

void Coordinator::leaveOut(uint32_t device) {
  if (!slots_[device].wanted)
    return;
  dropJoining(slots_[device]);
  decide();
}

void Coordinator::endFirstStage(Slot &slot) {
  slot.load.firstSloNs = std::numeric_limits<double>::infinity();
  for (BusPlacement &placement : slot.load.placements)
    placement.first = BusStage{};
  slot.load.handoverBytes = 0;
}

absl::Status Coordinator::update(const BusRequest &request) {
  RETURN_IF_ERROR(checkDevice(request.device));
  Slot &slot = slots_[request.device];
  if (slot.state != DeviceState::Running || slot.wanted)
    return absl::FailedPreconditionError(cat(name(request.device), ": serves nothing, or a request is about to join"));
  endFirstStage(slot);
  unpair(request.device);
  const absl::StatusOr<BusLoad> load = validLoad(request);
  const auto indexOf = [&](uint32_t placement) {
    const auto at = std::find_if(load->placements.begin(), load->placements.end(),
                                 [&](const BusPlacement &p) { return p.placement == placement; });
    return static_cast<uint32_t>(at - load->placements.begin());
  };
  if (load.ok() && indexOf(slot.load.placements[slot.current].placement) < load->placements.size()) {
    const uint32_t current = indexOf(slot.load.placements[slot.current].placement);
    const uint32_t target = indexOf(slot.load.placements[slot.target].placement);
    slot.current = current;
    slot.target = target < load->placements.size() ? target : current;
    slot.load = *load;
    slot.request = request.name;
  }
  decide();
  return absl::OkStatus();
}

void Coordinator::take(const std::vector<uint32_t> &devices, Combination combination) {
  for (size_t i = 0; i < devices.size(); ++i) {
    slots_[devices[i]].target = combination.choice[i];
    slots_[devices[i]].refused = false;
  }
  decision_ = std::move(combination);
  overloaded_ = false;
}

void Coordinator::decide() {
  const std::vector<uint32_t> devices = served();
  const std::vector<BusLoad> loads = loadsOf(devices);
  Combination combination = chooseCombination(bus_, loads, options_.objective, options_.limits);
  if (combination.feasible) {
    // What the devices have or are on their way to stays where nothing is better: a change costs an iteration.
    std::vector<uint32_t> kept;
    kept.reserve(devices.size());
    for (uint32_t d : devices)
      kept.push_back(slots_[d].target);
    std::vector<double> times = contendedNs(bus_, loads, kept);
    const double value = valueOf(loads, kept, times, options_.objective);
    if (admissible(bus_, loads, kept) && value >= combination.value) {
      combination.choice = std::move(kept);
      combination.iterationNs = std::move(times);
      combination.value = value;
    }
    take(devices, std::move(combination));
  } else {
    // Nothing holds: everybody copies as little as memory allows, the faster of two that copy the same.
    combination.choice.clear();
    for (const BusLoad &load : loads) {
      const auto least = std::min_element(load.placements.begin(), load.placements.end(),
                                          [&](const BusPlacement &a, const BusPlacement &b) {
                                            if (movedBytes(a) != movedBytes(b))
                                              return movedBytes(a) < movedBytes(b);
                                            return aloneNs(bus_, load.device, a) < aloneNs(bus_, load.device, b);
                                          });
      combination.choice.push_back(static_cast<uint32_t>(least - load.placements.begin()));
    }
    combination.iterationNs = contendedNs(bus_, loads, combination.choice);
    take(devices, std::move(combination));
    overloaded_ = true;
  }
  settle();
}

// One placement while it is turned into the other, for a device that runs.
BusPlacement Coordinator::between(uint32_t device, const BusPlacement &from, const BusPlacement &to,
                                  bool &possible) const {
  if (from.placement == to.placement)
    return to;
  const TransitionCost cost =
      options_.transition ? options_.transition(device, from.placement, to.placement) : TransitionCost{};
  possible = possible && cost.possible;
  return transitionOf(from, to, cost);
}

// Whether every running device keeps its SLO while `device` serves this load with `runs`.
bool Coordinator::holdsBesideOthers(uint32_t device, const BusLoad &load, const BusPlacement &runs) const {
  std::vector<BusLoad> loads;
  bool possible = true;
  for (uint32_t d = 0; d < slots_.size(); ++d) {
    const Slot &slot = slots_[d];
    if (d != device && slot.state != DeviceState::Running)
      continue;
    const BusLoad &of = d == device ? load : slot.load;
    const BusPlacement now = d == device      ? runs
                             : slot.switching ? between(d, slot.from, slot.load.placements[slot.current], possible)
                                              : slot.load.placements[slot.current];
    loads.push_back({d, of.sloNs, {now}, of.firstSloNs, of.decodedBy, of.handoverBytes});
  }
  return possible && admissible(bus_, loads, std::vector<uint32_t>(loads.size(), 0));
}

// The same where it takes one of its placements at an edge.
bool Coordinator::holdsWith(uint32_t device, uint32_t placement) const {
  const BusLoad &load = slots_[device].load;
  bool possible = true;
  const BusPlacement runs =
      between(device, load.placements[slots_[device].current], load.placements[placement], possible);
  return possible && holdsBesideOthers(device, load, runs);
}

// The same where a request starts: on a device that waits for it, or that it joins.
bool Coordinator::startHolds(uint32_t device, uint32_t placement) const {
  const Slot &slot = slots_[device];
  const BusPlacement &to = decided(slot).placements[placement];
  bool possible = true;
  const BusPlacement runs =
      slot.state == DeviceState::Running ? between(device, slot.load.placements[slot.current], to, possible) : to;
  return possible && holdsBesideOthers(device, decided(slot), runs);
}

// Whether a running device may take this placement at the edge it stands at. Where objectives are missed anyway, as the
// bus gives less than it did, less to copy is never worse for the neighbours.
bool Coordinator::mayChange(uint32_t device, uint32_t placement) const {
  const Slot &slot = slots_[device];
  const BusPlacement &from = slot.load.placements[slot.current], &to = slot.load.placements[placement];
  if (options_.transition && !options_.transition(device, from.placement, to.placement).possible)
    return false;
  return holdsWith(device, placement) || (movedBytes(to) <= movedBytes(from) && !holdsWith(device, slot.current));
}

// What a running device takes at its next edge on the way to its target: the target, or where that is not safe at once
// the last placement before it that is, of those that copy more than one of the two and less than the other.
//
// Where a request joins it goes to what the device is to run with it, as far as that is one of its own placements.
std::optional<uint32_t> Coordinator::stepOf(uint32_t device) const {
  const Slot &slot = slots_[device];
  const std::vector<BusPlacement> &all = slot.load.placements;
  uint32_t target = slot.target;
  if (slot.wanted) {
    const uint32_t wanted = slot.wanted->placements[slot.target].placement;
    if (all[slot.current].placement == wanted || startHolds(device, slot.target))
      return std::nullopt; // the start makes the change
    target = static_cast<uint32_t>(
        std::find_if(all.begin(), all.end(), [&](const BusPlacement &p) { return p.placement == wanted; }) -
        all.begin());
    if (target == all.size())
      return std::nullopt;
  }
  if (target == slot.current)
    return std::nullopt;
  if (mayChange(device, target))
    return target;
  const auto bytes = [&](uint32_t p) { return static_cast<double>(movedBytes(all[p])); };
  const auto left = [&](uint32_t p) { return std::abs(bytes(target) - bytes(p)); };
  const double low = std::min(bytes(slot.current), bytes(target));
  const double high = std::max(bytes(slot.current), bytes(target));
  std::vector<uint32_t> between;
  for (uint32_t p = 0; p < all.size(); ++p) {
    if (bytes(p) > low && bytes(p) < high)
      between.push_back(p);
  }
  std::stable_sort(between.begin(), between.end(), [&](uint32_t a, uint32_t b) { return left(a) < left(b); });
  for (uint32_t p : between) {
    if (holdsWith(device, p))
      return p;
  }
  return std::nullopt;
}

// Where a waiting request cannot start, nothing is on its way and no change is safe, waiting longer is of no use.
void Coordinator::settle() {
  bool waits = false;
  for (uint32_t d = 0; d < slots_.size(); ++d) {
    const Slot &slot = slots_[d];
    if (slot.switching || (slot.state == DeviceState::Running && stepOf(d).has_value()))
      return;
    if (slot.state != DeviceState::Waiting && !slot.wanted)
      continue;
    if (startHolds(d, slot.target))
      return;
    waits = true;
  }
  if (!waits || overloaded_)
    return;
  for (uint32_t d = 0; d < slots_.size(); ++d) {
    Slot &slot = slots_[d];
    if (slot.state == DeviceState::Running && !slot.wanted)
      slot.target = slot.current;
    if (slot.state != DeviceState::Waiting && !slot.wanted)
      continue;
    // Beside what the others run it may still start with less than was decided.
    const std::optional<uint32_t> safe = bestBesideOthers(d);
    slot.target = safe.value_or(slot.target);
    slot.refused = !safe.has_value();
  }
}

// The placement of the largest value that a waiting device may start with while all others go on as they are.
std::optional<uint32_t> Coordinator::bestBesideOthers(uint32_t device) const {
  const BusLoad &wanted = decided(slots_[device]);
  const std::vector<BusPlacement> &all = wanted.placements;
  std::vector<uint32_t> order(all.size());
  std::iota(order.begin(), order.end(), 0u);
  const auto value = [&](uint32_t p) {
    const BusLoad load{device, wanted.sloNs, {all[p]}};
    return valueOf({&load, 1}, {0}, {aloneNs(bus_, device, all[p])}, options_.objective);
  };
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return value(a) > value(b); });
  for (uint32_t p : order) {
    if (startHolds(device, p))
      return p;
  }
  return std::nullopt;
}

// Takes what a waiting request has waited since from its objective. False: it goes back, nothing holds what is left.
absl::StatusOr<bool> Coordinator::tighten(uint32_t device, double waitedNs) {
  Slot &slot = slots_[device];
  if (!(waitedNs >= slot.waitedNs) || !std::isfinite(waitedNs))
    return absl::InvalidArgumentError(
        cat(name(device), ": waited = ", waitedNs, " ns: expected ", slot.waitedNs, " or more since it arrived"));
  if (waitedNs == slot.waitedNs)
    return true;
  BusLoad &load = slot.wanted ? *slot.wanted : slot.load;
  // Of one that joins and has no first stage the objective is that of iterations, which waiting does not spend.
  double &slo = std::isfinite(load.firstSloNs) ? load.firstSloNs : load.sloNs;
  if (slot.wanted && !std::isfinite(load.firstSloNs))
    return true;
  slo -= waitedNs - std::exchange(slot.waitedNs, waitedNs);
  const std::vector<uint32_t> devices = served();
  const std::vector<BusLoad> loads = loadsOf(devices);
  std::vector<uint32_t> kept;
  kept.reserve(devices.size());
  for (uint32_t d : devices)
    kept.push_back(slots_[d].target);
  if (admissible(bus_, loads, kept))
    return true;
  Combination combination = chooseCombination(bus_, loads, options_.objective, options_.limits);
  if (!combination.feasible)
    return false;
  take(devices, std::move(combination));
  settle();
  return true;
}

absl::StatusOr<bool> Coordinator::start(uint32_t device, double waitedNs) {
  RETURN_IF_ERROR(checkDevice(device));
  Slot &slot = slots_[device];
  const bool joins = slot.wanted.has_value();
  if (slot.state != DeviceState::Waiting && !joins)
    return absl::FailedPreconditionError(cat(name(device), ": no request waits for it"));
  const auto goBack = [&] { joins ? leaveOut(device) : leave(device, DeviceState::Idle); };
  if (slot.refused) {
    goBack();
    return absl::UnavailableError(
        cat(name(device), ": no order of changes keeps the objectives of its neighbours: the request goes back"));
  }
  ASSIGN_OR_RETURN(holds, tighten(device, waitedNs));
  if (!holds) {
    goBack();
    return absl::ResourceExhaustedError(
        cat(name(device), ": waited ", waitedNs / 1e6,
            " ms for its neighbours to make room: what is left of its SLO cannot be held"));
  }
  if (slot.switching || !startHolds(device, slot.target)) // a change of its own is under way
    return false;
  if (joins) {
    slot.from = slot.load.placements[slot.current];
    slot.load = *std::exchange(slot.wanted, std::nullopt);
    slot.request = std::exchange(slot.joins, "");
    slot.entering = slot.switching = slot.from.placement != slot.load.placements[slot.target].placement;
  }
  slot.current = slot.target;
  slot.state = DeviceState::Running;
  settle();
  return true;
}

// What prefilled for this device may not be counted as over any longer.
void Coordinator::unpair(uint32_t decode) {
  for (Slot &slot : slots_)
    if (slot.load.decodedBy == decode)
      slot.load.decodedBy = kNoDevice;
}

// Its request is gone, and whatever it ran.
void Coordinator::leave(uint32_t device, DeviceState as) {
  slots_[device] = Slot{};
  slots_[device].state = as;
  slots_[device].load.device = device;
  unpair(device);
  decide();
}

absl::Status Coordinator::firstDone(uint32_t device) {
  RETURN_IF_ERROR(checkDevice(device));
  Slot &slot = slots_[device];
  if (slot.state != DeviceState::Running)
    return absl::FailedPreconditionError(cat(name(device), ": serves nothing"));
  if (!std::isfinite(slot.load.firstSloNs))
    return absl::OkStatus();
  endFirstStage(slot);
  unpair(device);
  decide();
  return absl::OkStatus();
}

absl::StatusOr<NextIteration> Coordinator::nextIteration(uint32_t device) {
  RETURN_IF_ERROR(checkDevice(device));
  Slot &slot = slots_[device];
  if (slot.state != DeviceState::Running)
    return absl::FailedPreconditionError(cat(name(device), ": serves nothing"));
  const auto runs = [&](bool changed) {
    const BusPlacement &p = slot.load.placements[slot.current];
    return NextIteration{p.placement, p.budget, changed};
  };
  if (std::exchange(slot.entering, false))
    return runs(true);
  const bool arrived = std::exchange(slot.switching, false);
  if (!std::isfinite(slot.load.firstSloNs)) {
    if (const std::optional<uint32_t> step = stepOf(device)) {
      slot.fromIndex = std::exchange(slot.current, *step);
      slot.from = slot.load.placements[slot.fromIndex];
      slot.switching = true;
      return runs(true);
    }
  }
  if (arrived)
    settle();
  return runs(false);
}

absl::StatusOr<NextIteration> Coordinator::postpone(uint32_t device) {
  RETURN_IF_ERROR(checkDevice(device));
  Slot &slot = slots_[device];
  if (slot.state != DeviceState::Running || !slot.switching)
    return absl::FailedPreconditionError(cat(name(device), ": no change is under way"));
  slot.current = slot.fromIndex;
  slot.switching = false;
  return NextIteration{slot.load.placements[slot.current].placement, slot.load.placements[slot.current].budget, false};
}

bool Coordinator::settled() const {
  return std::all_of(slots_.begin(), slots_.end(), [](const Slot &slot) {
    return slot.state != DeviceState::Running || (!slot.switching && !slot.wanted && slot.current == slot.target);
  });
}

absl::Status Coordinator::drain(uint32_t device, uint64_t bytes) {
  RETURN_IF_ERROR(checkDevice(device));
  Slot &slot = slots_[device];
  if (slot.state != DeviceState::Running)
    return absl::FailedPreconditionError(cat(name(device), ": serves nothing"));
  constexpr double kNoObjectiveNs = 1e15; // 11 days: loads have a finite one
  // No iteration follows; in any window of a neighbour lie at most these bytes, once.
  BusPlacement left = slot.load.placements[slot.current];
  left.linkBytes = left.exposedBytes = left.mostBytes = 0;
  left.first = BusStage{};
  left.first.exposedBytes = bytes;
  slot.load.placements = {left};
  slot.load.sloNs = kNoObjectiveNs;
  slot.load.firstSloNs = std::numeric_limits<double>::infinity();
  dropJoining(slot);
  slot.current = slot.target = 0;
  slot.switching = slot.entering = false;
  return absl::OkStatus();
}

absl::Status Coordinator::finish(uint32_t device) {
  RETURN_IF_ERROR(checkDevice(device));
  Slot &slot = slots_[device];
  if (slot.state == DeviceState::Idle)
    return absl::FailedPreconditionError(cat(name(device), ": serves nothing"));
  leave(device, DeviceState::Idle);
  return absl::OkStatus();
}

absl::Status Coordinator::lose(uint32_t device) {
  RETURN_IF_ERROR(checkDevice(device));
  leave(device, DeviceState::Lost);
  return absl::OkStatus();
}

absl::StatusOr<bool> Coordinator::measured(double bandwidth) {
  if (!(bandwidth > 0) || bandwidth > std::numeric_limits<double>::max())
    return absl::InvalidArgumentError(
        cat("measured bandwidth = ", bandwidth, ": expected a positive finite number of bytes/s"));
  bandwidth = std::min(bandwidth, nominal_);
  // What is planned with once less was measured may be of a moment at which that had just begun: then any less counts.
  constexpr double kRounding = 1e-9;
  const double within = bus_.bandwidth < nominal_ ? kRounding : options_.lowerBy;
  if (bandwidth < bus_.bandwidth * (1 - within)) {
    above_ = unmeasured_ = 0;
    bus_.bandwidth = bandwidth;
    // What was tried was wrong: the next try comes later.
    constexpr uint32_t kMostDoublings = 10;
    if (std::exchange(tried_, false))
      triedAfter_ = std::min(triedAfter_ * 2, options_.raiseAfter << kMostDoublings);
    decide();
    return true;
  }
  // Back to the nominal bandwidth also where that is nearer than raiseBy.
  const bool above =
      bandwidth > bus_.bandwidth * (1 + options_.raiseBy) || (bandwidth >= nominal_ && bus_.bandwidth < nominal_);
  if (!above) {
    above_ = unmeasured_ = 0;
    return false;
  }
  leastAbove_ = above_ == 0 ? bandwidth : std::min(leastAbove_, bandwidth);
  if (++above_ < options_.raiseAfter)
    return false;
  above_ = unmeasured_ = 0;
  bus_.bandwidth = leastAbove_;
  triedAfter_ = options_.raiseAfter;
  decide();
  return true;
}

bool Coordinator::unmeasured() {
  if (bus_.bandwidth >= nominal_ || ++unmeasured_ < triedAfter_)
    return false;
  above_ = unmeasured_ = 0;
  tried_ = true;
  bus_.bandwidth = nominal_;
  decide();
  return true;
}

} // namespace headrace::serve
