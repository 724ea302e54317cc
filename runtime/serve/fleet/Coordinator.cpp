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
  bus_.d2hBandwidth = options_.d2hBandwidth;
  bus_.bothBandwidth = options_.bothBandwidth;
  for (uint32_t d = 0; d < devices_.size(); ++d) {
    bus_.links.push_back(devices_[d].linkBandwidth);
    bus_.d2hLinks.push_back(devices_[d].d2hBandwidth);
    bus_.bothShares.push_back(devices_[d].bothShare);
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
    // What ran is proven; what is to run instead counts only if it is as well.
    bool possible = true;
    const BusPlacement &now = load->placements[current];
    const BusPlacement runs = slot.switching ? between(request.device, slot.from, now, possible) : now;
    if (possible && (holdsBesideOthers(request.device, *load, runs) || !holdsWith(request.device, slot.current))) {
      slot.current = current;
      slot.target = target < load->placements.size() ? target : current;
      slot.load = *load;
      slot.request = request.name;
    }
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
  if (!(slo > 0))
    return false;
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

bool Coordinator::settled() const {
  return std::all_of(slots_.begin(), slots_.end(), [](const Slot &slot) {
    return slot.state != DeviceState::Running || (!slot.switching && !slot.wanted && slot.current == slot.target);
  });
}

absl::Status Coordinator::drain(uint32_t device, const plan::LinkBytes &bytes) {
  RETURN_IF_ERROR(checkDevice(device));
  Slot &slot = slots_[device];
  if (slot.state != DeviceState::Running)
    return absl::FailedPreconditionError(cat(name(device), ": serves nothing"));
  constexpr double kNoObjectiveNs = 1e15; // 11 days: loads have a finite one
  // No iteration follows; in any window of a neighbour lie at most these bytes, once.
  BusPlacement left = slot.load.placements[slot.current];
  left.linkBytes = left.exposedBytes = left.mostBytes = left.besideBytes = 0;
  left.d2hBytes = left.exposedD2hBytes = left.mostD2hBytes = left.besideD2hBytes = 0;
  left.first = BusStage{};
  left.first.exposedBytes = bytes.h2d;
  left.first.exposedD2hBytes = bytes.d2h;
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
