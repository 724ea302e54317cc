// SPDX-License-Identifier: Apache-2.0
//
// Which changes of placement are safe, and in which order they are made.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/serve/fleet/Coordinator.h"

namespace headrace::serve {

using model::cat;

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
  const plan::LinkBytes more = stageBytes(stageOf(from, Stage::Iteration));
  const plan::LinkBytes less = stageBytes(stageOf(to, Stage::Iteration));
  return holdsWith(device, placement) ||
         (less.h2d <= more.h2d && less.d2h <= more.d2h && !holdsWith(device, slot.current));
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

} // namespace headrace::serve
