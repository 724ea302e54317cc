// SPDX-License-Identifier: Apache-2.0
//
// What the coordinator refuses before it decides, and what it says then.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <utility>

#include "runtime/model/Text.h"
#include "runtime/serve/Coordinator.h"

namespace headrace::serve {
namespace {

using model::cat;

constexpr uint32_t kMostDevices = 64;
constexpr size_t kMostPlacements = 4096;

bool positive(double v) { return v > 0 && std::isfinite(v); }

std::string ms(double ns) {
  char text[40];
  std::snprintf(text, sizeof text, "%.3f ms", ns / 1e6);
  return text;
}

// The first thing wrong with a placement; empty if nothing.
std::string faultOf(const BusPlacement &p) {
  const auto time = [](double v) { return v >= 0 && std::isfinite(v); };
  if (!positive(p.computeNs))
    return cat("computeNs = ", p.computeNs, ": expected a positive finite time");
  if (!time(p.hiddenNs))
    return cat("hiddenNs = ", p.hiddenNs, ": expected a finite time of 0 or more");
  if (!time(p.shortestNs))
    return cat("shortestNs = ", p.shortestNs, ": expected a finite time of 0 or more");
  if (!time(p.tokens))
    return cat("tokens = ", p.tokens, ": expected a finite number of 0 or more");
  if (!time(p.first.computeNs) || !time(p.first.hiddenNs))
    return cat("first stage: computeNs = ", p.first.computeNs, ", hiddenNs = ", p.first.hiddenNs,
               ": expected finite times of 0 or more");
  for (uint64_t bytes : {p.exposedBytes, p.first.linkBytes, p.first.exposedBytes})
    if (bytes > model::kMaxWeightBytes)
      return cat("copies of ", bytes, " bytes: expected at most 2^53");
  if (p.linkBytes > model::kMaxWeightBytes || p.freedBytes > model::kMaxWeightBytes)
    return cat("linkBytes = ", p.linkBytes, ", freedBytes = ", p.freedBytes, ": expected at most 2^53");
  return "";
}

} // namespace

absl::StatusOr<Coordinator> Coordinator::create(double bandwidth, std::vector<BusDevice> devices,
                                                CoordinatorOptions options) {
  if (devices.empty())
    return absl::InvalidArgumentError("a bus with no devices: expected at least one");
  if (devices.size() > kMostDevices)
    return absl::InvalidArgumentError(cat("a bus with ", devices.size(), " devices: expected at most ", kMostDevices));
  if (!positive(bandwidth))
    return absl::InvalidArgumentError(
        cat("bus bandwidth = ", bandwidth, ": expected a positive finite number of bytes/s"));
  for (const BusDevice &device : devices) {
    if (!positive(device.linkBandwidth))
      return absl::InvalidArgumentError(cat("device ", device.name, ": link bandwidth = ", device.linkBandwidth,
                                            ": expected a positive finite number of bytes/s"));
  }
  const auto share = [](double v) { return v >= 0 && v < 1; };
  if (!share(options.lowerBy) || !(options.raiseBy >= 0) || options.raiseAfter == 0)
    return absl::InvalidArgumentError(
        "hysteresis: expected lowerBy from 0 to 1, raiseBy of 0 or more, raiseAfter >= 1");
  return Coordinator(bandwidth, std::move(devices), std::move(options));
}

absl::Status Coordinator::checkDevice(uint32_t device) const {
  if (device >= devices_.size())
    return absl::InvalidArgumentError(cat("device ", device, ": the bus has ", devices_.size()));
  if (slots_[device].state == DeviceState::Lost)
    return absl::FailedPreconditionError(cat(name(device), ": is lost"));
  return absl::OkStatus();
}

// The placements between the minimum (the SLO, alone) and the maximum (the device's memory).
absl::StatusOr<BusLoad> Coordinator::validLoad(const BusRequest &request) const {
  if (absl::Status status = checkDevice(request.device); !status.ok())
    return status;
  const std::string who = name(request.device);
  if (slots_[request.device].state != DeviceState::Idle)
    return absl::FailedPreconditionError(cat(who, ": is not free"));
  if (!positive(request.sloNs))
    return absl::InvalidArgumentError(cat(who, ": SLO = ", request.sloNs, " ns: expected a positive finite time"));
  if (request.firstSloNs != 0 && !positive(request.firstSloNs))
    return absl::InvalidArgumentError(
        cat(who, ": SLO of the first stage = ", request.firstSloNs, " ns: expected a positive finite time"));
  if (!(request.waitedNs >= 0))
    return absl::InvalidArgumentError(cat(who, ": waited = ", request.waitedNs, " ns: expected a time of 0 or more"));
  if (request.placements.empty() || request.placements.size() > kMostPlacements)
    return absl::InvalidArgumentError(
        cat(who, ": ", request.placements.size(), " placements: expected from 1 to ", kMostPlacements));
  for (const BusPlacement &p : request.placements) {
    if (const std::string fault = faultOf(p); !fault.empty())
      return absl::InvalidArgumentError(cat(who, ": placement ", p.placement, ": ", fault));
  }
  const bool staged = request.firstSloNs != 0;
  const double waitsOf = staged ? request.firstSloNs : request.sloNs; // the objective that waiting spends
  if (!(waitsOf - request.waitedNs > 0))
    return absl::ResourceExhaustedError(
        cat(who, ": the SLO of ", ms(waitsOf), " is spent: waited ", ms(request.waitedNs)));

  BusLoad load{request.device, staged ? request.sloNs : request.sloNs - request.waitedNs, {}};
  if (staged)
    load.firstSloNs = request.firstSloNs - request.waitedNs;
  uint64_t leastMemory = ~uint64_t{0}, leastMemoryInTime = ~uint64_t{0};
  double leastTime = 0, leastFirst = 0;
  bool fits = false, someFirst = false;
  for (const BusPlacement &p : request.placements) {
    const double alone = aloneNs(bus_, request.device, p), first = aloneNs(bus_, request.device, p.first);
    const bool inMemory = p.deviceBytes <= devices_[request.device].memoryBytes;
    const bool inTime = alone <= load.sloNs && first <= load.firstSloNs;
    leastMemory = std::min(leastMemory, p.deviceBytes);
    leastMemoryInTime = inTime ? std::min(leastMemoryInTime, p.deviceBytes) : leastMemoryInTime;
    if (inMemory) {
      leastTime = fits ? std::min(leastTime, alone) : alone;
      leastFirst = fits ? std::min(leastFirst, first) : first;
      someFirst = someFirst || first <= load.firstSloNs;
      fits = true;
    }
    if (inMemory && inTime)
      load.placements.push_back(p);
  }
  if (!fits)
    return absl::ResourceExhaustedError(cat(who, ": limited by device memory: ", devices_[request.device].memoryBytes,
                                            " bytes, the minimum at any SLO is ", leastMemory, " bytes"));
  if (load.placements.empty()) {
    std::string memory = "no amount of memory meets this SLO alone";
    if (leastMemoryInTime != ~uint64_t{0})
      memory = cat("minimum memory is ", leastMemoryInTime, " bytes at this SLO");
    if (!someFirst)
      return absl::ResourceExhaustedError(cat(who, ": the first token cannot be had within ", ms(load.firstSloNs),
                                              ": minimum is ", ms(leastFirst), " alone on the bus"));
    return absl::ResourceExhaustedError(cat(who, ": an iteration cannot be held within ", ms(load.sloNs),
                                            ": minimum is ", ms(leastTime), " in ",
                                            devices_[request.device].memoryBytes, " bytes alone on the bus, ", memory));
  }
  keepRetreats(load);
  return load;
}

void Coordinator::keepRetreats(BusLoad &load) const {
  if (!options_.keepRetreat || !options_.transition || devices_.size() == 1)
    return;
  std::stable_sort(load.placements.begin(), load.placements.end(),
                   [](const BusPlacement &a, const BusPlacement &b) { return a.linkBytes < b.linkBytes; });
  std::vector<BusPlacement> kept;
  for (const BusPlacement &p : load.placements) {
    const bool givesWay =
        p.linkBytes == load.placements.front().linkBytes ||
        std::any_of(kept.rbegin(), kept.rend(), [&](const BusPlacement &less) {
          if (less.linkBytes == p.linkBytes)
            return false;
          const TransitionCost cost = options_.transition(load.device, p.placement, less.placement);
          return cost.possible && aloneNs(bus_, load.device, transitionOf(p, less, cost)) <= load.sloNs;
        });
    if (givesWay)
      kept.push_back(p);
  }
  load.placements = std::move(kept);
}

// The last load is the new one. Its least SLO beside its neighbours is found by halving: what is admissible at an SLO
// is admissible at every larger one, but for the window that the delay bound counts over, which only adds refusals.
absl::Status Coordinator::refuseContended(std::vector<BusLoad> loads, const BusRequest &request) const {
  constexpr int kHalvings = 16;
  BusLoad &load = loads.back();
  const double sloNs = load.sloNs;
  uint64_t all = 0;
  for (const BusLoad &one : loads)
    all |= uint64_t{1} << one.device;
  const double rate = fairRate(bus_, all, load.device);
  // With a larger SLO those count as well that are too slow alone for this one.
  load.placements.clear();
  double high = sloNs;
  for (const BusPlacement &p : request.placements) {
    if (p.deviceBytes > devices_[load.device].memoryBytes)
      continue;
    load.placements.push_back(p);
    high = std::max(high, timeAtRate(p, rate));
  }
  const auto holds = [&](double slo) {
    load.sloNs = slo;
    return chooseCombination(bus_, loads, options_.objective, options_.limits).feasible;
  };
  const std::string reason =
      cat(name(load.device), ": limited by the bus: an iteration cannot be held within ", ms(sloNs), " beside ",
          loads.size() - 1, loads.size() == 2 ? " neighbour" : " neighbours", " (", rate, " of ", bus_.bandwidth,
          " bytes/s while all copy)");
  // Both objectives together may be what does not fit.
  if (std::isfinite(load.firstSloNs) && !holds(high)) {
    load.firstSloNs = std::numeric_limits<double>::infinity();
    if (holds(sloNs))
      return absl::ResourceExhaustedError(cat(name(load.device),
                                              ": limited by the bus: the first token cannot be had within ",
                                              ms(request.firstSloNs - request.waitedNs), " beside ", loads.size() - 1,
                                              loads.size() == 2 ? " neighbour" : " neighbours"));
  }
  if (!holds(high))
    return absl::ResourceExhaustedError(cat(reason, ": their own objectives leave no room for it at any SLO"));
  double low = sloNs;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = low + (high - low) / 2;
    (holds(middle) ? high : low) = middle;
  }
  return absl::ResourceExhaustedError(cat(reason, ": minimum is ", ms(high)));
}

} // namespace headrace::serve
