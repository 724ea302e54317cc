// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/Coordinator.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "runtime/model/Text.h"

namespace headrace::serve {

using model::cat;

Coordinator::Coordinator(double bandwidth, std::vector<BusDevice> devices, CoordinatorOptions options)
    : nominal_(bandwidth), devices_(std::move(devices)), options_(std::move(options)), slots_(devices_.size()) {
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
  for (uint32_t d : devices)
    loads.push_back(slots_[d].load);
  return loads;
}

absl::Status Coordinator::arrive(const BusRequest &request) {
  const double slo = request.sloNs - request.waitedNs;
  absl::StatusOr<BusLoad> load = validLoad(request, slo);
  if (!load.ok())
    return load.status();

  std::vector<uint32_t> devices = served();
  std::vector<BusLoad> loads = loadsOf(devices);
  loads.push_back(*load);
  Combination combination = chooseCombination(bus_, loads, options_.objective, options_.limits);
  if (!combination.feasible)
    return refuseContended(std::move(loads), request, slo);

  devices.push_back(request.device);
  Slot &slot = slots_[request.device];
  slot = Slot{};
  slot.state = DeviceState::Waiting;
  slot.load = *std::move(load);
  take(devices, std::move(combination));
  settle();
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
    for (uint32_t d : devices)
      kept.push_back(slots_[d].target);
    std::vector<double> times = contendedNs(bus_, loads, kept);
    const double value = valueOf(loads, kept, times, options_.objective);
    if (admissible(loads, times) && value >= combination.value) {
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
                                            if (a.linkBytes != b.linkBytes)
                                              return a.linkBytes < b.linkBytes;
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

// Whether every running device keeps its SLO while `device` (running, or about to) takes `placement`.
bool Coordinator::holdsWith(uint32_t device, uint32_t placement) const {
  std::vector<BusLoad> loads;
  for (uint32_t d = 0; d < slots_.size(); ++d) {
    const Slot &slot = slots_[d];
    if (d != device && slot.state != DeviceState::Running)
      continue;
    const auto between = [&](uint32_t a, uint32_t b) {
      const BusPlacement &from = slot.load.placements[a], &to = slot.load.placements[b];
      const uint64_t bytes =
          options_.transitionBytes && a != b ? options_.transitionBytes(d, from.placement, to.placement) : uint64_t{0};
      return transitionOf(from, to, bytes);
    };
    BusPlacement runs = slot.load.placements[slot.current];
    if (d == device)
      runs = slot.state == DeviceState::Running ? between(slot.current, placement) : slot.load.placements[placement];
    else if (slot.switching)
      runs = between(slot.from, slot.current);
    loads.push_back({d, slot.load.sloNs, {runs}});
  }
  return admissible(loads, contendedNs(bus_, loads, std::vector<uint32_t>(loads.size(), 0)));
}

// Whether a running device may take its target at the edge it stands at. Where objectives are missed anyway, as the bus
// gives less than it did, less to copy is never worse for the neighbours.
bool Coordinator::mayChange(uint32_t device) const {
  const Slot &slot = slots_[device];
  const uint64_t from = slot.load.placements[slot.current].linkBytes, to = slot.load.placements[slot.target].linkBytes;
  return holdsWith(device, slot.target) || (to <= from && !holdsWith(device, slot.current));
}

// Where a waiting request cannot start, nothing is on its way and no change is safe, waiting longer is of no use.
void Coordinator::settle() {
  bool waits = false;
  for (uint32_t d = 0; d < slots_.size(); ++d) {
    const Slot &slot = slots_[d];
    if (slot.switching || (slot.state == DeviceState::Running && slot.target != slot.current && mayChange(d)))
      return;
    if (slot.state != DeviceState::Waiting)
      continue;
    if (holdsWith(d, slot.target))
      return;
    waits = true;
  }
  if (!waits || overloaded_)
    return;
  for (Slot &slot : slots_) {
    slot.refused = slot.state == DeviceState::Waiting;
    if (slot.state == DeviceState::Running)
      slot.target = slot.current;
  }
}

absl::StatusOr<bool> Coordinator::start(uint32_t device) {
  if (absl::Status status = checkDevice(device); !status.ok())
    return status;
  Slot &slot = slots_[device];
  if (slot.state != DeviceState::Waiting)
    return absl::FailedPreconditionError(cat(name(device), ": no request waits for it"));
  if (slot.refused) {
    slot.state = DeviceState::Idle;
    decide();
    return absl::UnavailableError(
        cat(name(device), ": no order of changes keeps the objectives of its neighbours: the request goes back"));
  }
  if (!holdsWith(device, slot.target))
    return false;
  slot.current = slot.target;
  slot.state = DeviceState::Running;
  settle();
  return true;
}

absl::StatusOr<NextIteration> Coordinator::nextIteration(uint32_t device) {
  if (absl::Status status = checkDevice(device); !status.ok())
    return status;
  Slot &slot = slots_[device];
  if (slot.state != DeviceState::Running)
    return absl::FailedPreconditionError(cat(name(device), ": serves nothing"));
  const bool arrived = std::exchange(slot.switching, false);
  NextIteration next{slot.load.placements[slot.current].placement, false};
  if (slot.target != slot.current) {
    if (mayChange(device)) {
      slot.from = std::exchange(slot.current, slot.target);
      slot.switching = true;
      return NextIteration{slot.load.placements[slot.current].placement, true};
    }
  }
  if (arrived)
    settle();
  return next;
}

absl::Status Coordinator::finish(uint32_t device) {
  if (absl::Status status = checkDevice(device); !status.ok())
    return status;
  Slot &slot = slots_[device];
  if (slot.state == DeviceState::Idle)
    return absl::FailedPreconditionError(cat(name(device), ": serves nothing"));
  slot = Slot{};
  slot.load.device = device;
  decide();
  return absl::OkStatus();
}

absl::Status Coordinator::lose(uint32_t device) {
  if (absl::Status status = checkDevice(device); !status.ok())
    return status;
  slots_[device] = Slot{};
  slots_[device].state = DeviceState::Lost;
  slots_[device].load.device = device;
  decide();
  return absl::OkStatus();
}

absl::StatusOr<bool> Coordinator::measured(double bandwidth) {
  if (!(bandwidth > 0) || bandwidth > std::numeric_limits<double>::max())
    return absl::InvalidArgumentError(
        cat("measured bandwidth = ", bandwidth, ": expected a positive finite number of bytes/s"));
  bandwidth = std::min(bandwidth, nominal_);
  if (bandwidth < bus_.bandwidth * (1 - options_.lowerBy)) {
    above_ = 0;
    bus_.bandwidth = bandwidth;
    decide();
    return true;
  }
  // Back to the nominal bandwidth also where that is nearer than raiseBy.
  const bool above =
      bandwidth > bus_.bandwidth * (1 + options_.raiseBy) || (bandwidth >= nominal_ && bus_.bandwidth < nominal_);
  if (!above) {
    above_ = 0;
    return false;
  }
  leastAbove_ = above_ == 0 ? bandwidth : std::min(leastAbove_, bandwidth);
  if (++above_ < options_.raiseAfter)
    return false;
  above_ = 0;
  bus_.bandwidth = leastAbove_;
  decide();
  return true;
}

} // namespace headrace::serve
