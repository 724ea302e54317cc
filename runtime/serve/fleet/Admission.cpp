// SPDX-License-Identifier: Apache-2.0
//
// What the coordinator refuses before it decides, and what it says then.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <utility>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/serve/fleet/Coordinator.h"

namespace headrace::serve {
namespace {

using model::cat;

constexpr uint32_t kMostDevices = 64;
constexpr size_t kMostPlacements = 4096;
constexpr uint64_t kNoLimit = ~uint64_t{0}; // of device memory

bool positive(double v) { return v > 0 && std::isfinite(v); }

std::string ms(double ns) {
  char text[40];
  std::snprintf(text, sizeof text, "%.3f ms", ns / 1e6);
  return text;
}
// Rounded up: an objective that is met. A little below a whole number stands for it.
std::string minimumMs(double ns) { return ms(std::ceil(ns / 1e3 - 1e-6) * 1e3); }

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
  for (uint64_t bytes : {p.exposedBytes, p.first.linkBytes, p.first.exposedBytes, p.d2hBytes, p.exposedD2hBytes,
                         p.first.d2hBytes, p.first.exposedD2hBytes, p.besideBytes, p.besideD2hBytes})
    if (bytes > model::kMaxWeightBytes)
      return cat("copies of ", bytes, " bytes: expected at most 2^53");
  if (p.linkBytes > model::kMaxWeightBytes || p.freedBytes > model::kMaxWeightBytes)
    return cat("linkBytes = ", p.linkBytes, ", freedBytes = ", p.freedBytes, ": expected at most 2^53");
  return "";
}

// The first thing wrong with a request; empty if nothing.
std::string faultOf(const BusRequest &request) {
  if (!positive(request.sloNs))
    return cat("SLO = ", request.sloNs, " ns: expected a positive finite time");
  if (request.firstSloNs != 0 && !positive(request.firstSloNs))
    return cat("SLO of the first stage = ", request.firstSloNs, " ns: expected a positive finite time");
  for (const auto &[what, ns] : {std::pair("waited", request.waitedNs), std::pair("hand-over", request.handoverNs)})
    if (!(ns >= 0))
      return cat(what, " = ", ns, " ns: expected a time of 0 or more");
  if (request.placements.empty() || request.placements.size() > kMostPlacements)
    return cat(request.placements.size(), " placements: expected from 1 to ", kMostPlacements);
  for (const BusPlacement &p : request.placements)
    if (const std::string fault = faultOf(p); !fault.empty())
      return cat("placement ", p.placement, ": ", fault);
  return "";
}

// What is left of a request's objective for a stage. Waiting spends the first one's.
double sloOf(const BusRequest &request, Stage stage) {
  if (stage == Stage::First)
    return request.firstSloNs - request.waitedNs;
  return request.firstSloNs != 0 ? request.sloNs : request.sloNs - request.waitedNs - request.handoverNs;
}

// Which objective cannot be held, and what of it is spent already or kept for later.
std::string limitText(const BusRequest &request, Stage stage) {
  const bool first = stage == Stage::First;
  std::string less;
  if (const double waited = first || request.firstSloNs == 0 ? request.waitedNs : 0; waited > 0)
    less += cat(" less ", ms(waited), " waited");
  if (!first && request.handoverNs > 0)
    less += cat(less.empty() ? " less " : " and ", ms(request.handoverNs), " for the hand-over of the KV cache");
  if (!less.empty())
    less = cat(" (", first || request.prompts ? "TTFT " : "SLO ", ms(first ? request.firstSloNs : request.sloNs), less,
               ")");
  return cat(first || request.prompts ? "the first token cannot be had within " : "an iteration cannot be held within ",
             ms(sloOf(request, stage)), less);
}

uint64_t allOf(const std::vector<BusLoad> &loads) {
  uint64_t all = 0;
  for (const BusLoad &one : loads)
    all |= uint64_t{1} << one.device;
  return all;
}

// The longest that any placement of loads[at] takes for a stage while all copy.
double longestNs(const Bus &bus, const std::vector<BusLoad> &loads, size_t at, Stage stage) {
  const BusRates rate = FairRates(bus).of({allOf(loads), allOf(loads)}, loads[at].device);
  double longest = 0;
  for (const BusPlacement &p : loads[at].placements)
    longest = std::max(longest, timeAtRate(stageOf(p, stage), rate));
  return longest;
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
  for (const auto &[what, rate] : {std::pair("device to host", options.d2hBandwidth),
                                   std::pair("of both directions together", options.bothBandwidth)})
    if (!(rate > 0))
      return absl::InvalidArgumentError(
          cat("bus bandwidth ", what, " = ", rate, ": expected a positive number of bytes/s"));
  for (const BusDevice &device : devices) {
    if (!positive(device.linkBandwidth))
      return absl::InvalidArgumentError(cat("device ", device.name, ": link bandwidth = ", device.linkBandwidth,
                                            ": expected a positive finite number of bytes/s"));
    if (!(device.d2hBandwidth > 0))
      return absl::InvalidArgumentError(cat("device ", device.name, ": link bandwidth device to host = ",
                                            device.d2hBandwidth, ": expected a positive number of bytes/s"));
    if (!(device.bothShare > 0 && device.bothShare <= 1))
      return absl::InvalidArgumentError(cat("device ", device.name, ": share of a direction while both are at work = ",
                                            device.bothShare, ": expected above 0 and at most 1"));
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
  const std::string who = name(request.device);
  if (const std::string fault = faultOf(request); !fault.empty())
    return absl::InvalidArgumentError(cat(who, ": ", fault));
  if (request.decodedBy != kNoDevice &&
      (request.decodedBy >= slots_.size() || !std::isfinite(slots_[request.decodedBy].load.firstSloNs)))
    return absl::InvalidArgumentError(
        cat(who, ": decoded by device ", request.decodedBy, ": expected one with a request that has not begun"));
  const bool staged = request.firstSloNs != 0;
  const double waitsOf = staged ? request.firstSloNs : request.sloNs; // the objective that waiting spends
  if (!(waitsOf - request.waitedNs > 0))
    return absl::ResourceExhaustedError(
        cat(who, ": the SLO of ", ms(waitsOf), " is spent: waited ", ms(request.waitedNs)));
  if (!staged && !(waitsOf - request.waitedNs - request.handoverNs > 0))
    return absl::ResourceExhaustedError(cat(who, ": ", limitText(request, Stage::Iteration)));

  BusLoad load{request.device, sloOf(request, Stage::Iteration), {}};
  load.decodedBy = request.decodedBy;
  load.handoverBytes = request.handoverBytes;
  if (staged)
    load.firstSloNs = sloOf(request, Stage::First);
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
      // The least of an iteration is that of placements which have the first token in time, if there are any.
      const bool firstInTime = first <= load.firstSloNs;
      if (firstInTime != someFirst ? firstInTime : alone < leastTime || !fits)
        leastTime = alone;
      leastFirst = fits ? std::min(leastFirst, first) : first;
      someFirst = someFirst || first <= load.firstSloNs;
      fits = true;
    }
    if (inMemory && inTime)
      load.placements.push_back(p);
  }
  const uint64_t has = devices_[request.device].memoryBytes;
  const std::string alone = cat(
      " alone on the bus",
      bus_.bandwidth < nominal_ ? cat(", of which ", bus_.bandwidth, " of ", nominal_, " bytes/s were measured") : "");
  if (!fits)
    return absl::ResourceExhaustedError(
        cat(who, ": limited by device memory: ", has, " bytes, the minimum at any SLO is ", leastMemory, " bytes"));
  if (load.placements.empty()) {
    if (!someFirst)
      return absl::ResourceExhaustedError(
          cat(who, ": ", limitText(request, Stage::First), ": minimum is ", minimumMs(leastFirst), alone));
    const std::string memory = has == kNoLimit ? ""
                               : leastMemoryInTime != ~uint64_t{0}
                                   ? cat(", minimum memory is ", leastMemoryInTime, " bytes at this SLO")
                                   : ", no amount of memory meets this SLO alone";
    return absl::ResourceExhaustedError(cat(who, ": ", limitText(request, Stage::Iteration), ": minimum is ",
                                            minimumMs(leastTime), has == kNoLimit ? "" : cat(" in ", has, " bytes"),
                                            alone, memory));
  }
  keepRetreats(load);
  return load;
}

void Coordinator::keepRetreats(BusLoad &load) const {
  if (!options_.keepRetreat || !options_.transition || devices_.size() == 1)
    return;
  std::stable_sort(load.placements.begin(), load.placements.end(),
                   [](const BusPlacement &a, const BusPlacement &b) { return movedBytes(a) < movedBytes(b); });
  std::vector<BusPlacement> kept;
  for (const BusPlacement &p : load.placements) {
    const bool givesWay =
        movedBytes(p) == movedBytes(load.placements.front()) ||
        std::any_of(kept.rbegin(), kept.rend(), [&](const BusPlacement &less) {
          if (movedBytes(less) == movedBytes(p))
            return false;
          const TransitionCost cost = options_.transition(load.device, p.placement, less.placement);
          return cost.possible && aloneNs(bus_, load.device, transitionOf(p, less, cost)) <= load.sloNs;
        });
    if (givesWay)
      kept.push_back(p);
  }
  load.placements = std::move(kept);
}

// The least value of one objective of loads[at] with which there is a combination, all others as they are; none where
// none does. By halves: what is admissible at an SLO is admissible at every larger one, but for the window that the
// delay bound counts over, which only adds refusals.
std::optional<double> Coordinator::leastHeld(std::vector<BusLoad> &loads, size_t at, double BusLoad::*slo) const {
  constexpr int kHalvings = 16;
  BusLoad &load = loads[at];
  const double given = load.*slo;
  if (!std::isfinite(given))
    return std::nullopt;
  const auto holds = [&](double ns) {
    load.*slo = ns;
    return chooseCombination(bus_, loads, options_.objective, options_.limits).feasible;
  };
  double low = given;
  double high = std::max(given, longestNs(bus_, loads, at, slo == &BusLoad::sloNs ? Stage::Iteration : Stage::First));
  const bool some = holds(high);
  for (int i = 0; some && i < kHalvings; ++i) {
    const double middle = low + (high - low) / 2;
    (holds(middle) ? high : low) = middle;
  }
  load.*slo = given;
  return some ? std::optional(high) : std::nullopt;
}

// Of the loads but the last one, whose own objectives are as long as it could need: which objective keeps it out.
std::string Coordinator::inTheWay(std::vector<BusLoad> &loads) const {
  const auto who = [&](size_t at) {
    const uint32_t d = loads[at].device;
    const std::string &request = slots_[d].request;
    return cat(name(d), isPair(loads.back(), loads[at]) ? ", which decodes this request, has "
                        : request.empty()               ? " has "
                                                        : cat(", ", request, ", has "));
  };
  const auto what = [&](size_t at, double BusLoad::*slo) {
    return slo == &BusLoad::sloNs && !slots_[loads[at].device].prompts ? " an iteration" : " to its first token";
  };
  std::string all;
  for (size_t at = 0; at + 1 < loads.size(); ++at) {
    for (double BusLoad::*slo : {&BusLoad::sloNs, &BusLoad::firstSloNs}) {
      const BusLoad &load = loads[at];
      if (!std::isfinite(load.*slo))
        continue;
      const std::string has = cat(who(at), ms(load.*slo), what(at, slo));
      if (const std::optional<double> least = leastHeld(loads, at, slo))
        return cat(has, " and would take ", ms(*least), " beside it");
      all += cat(all.empty() ? "" : "; ", has);
    }
  }
  return cat("more than one of their objectives is in the way: ", all);
}

// The last load is the new one.
absl::Status Coordinator::refuseContended(std::vector<BusLoad> loads, const BusRequest &request) const {
  const size_t at = loads.size() - 1;
  BusLoad &load = loads.back();
  // With a larger SLO those count as well that are too slow alone for this one.
  load.placements.clear();
  for (const BusPlacement &p : request.placements)
    if (p.deviceBytes <= devices_[load.device].memoryBytes)
      load.placements.push_back(p);
  const auto refused = [&](Stage stage, const std::string &why) {
    return absl::ResourceExhaustedError(cat(name(load.device), ": limited by the bus: ", limitText(request, stage),
                                            " beside ", at, at == 1 ? " neighbour (" : " neighbours (",
                                            fairRate(bus_, allOf(loads), load.device), " of ", bus_.bandwidth,
                                            " bytes/s while all copy): ", why));
  };
  const BusLoad asked = load;
  if (const std::optional<double> least = leastHeld(loads, at, &BusLoad::sloNs))
    return refused(Stage::Iteration, cat("minimum is ", minimumMs(*least)));
  if (const std::optional<double> least = leastHeld(loads, at, &BusLoad::firstSloNs))
    return refused(Stage::First, cat("minimum is ", minimumMs(*least)));
  // Both objectives together, or those of the neighbours.
  load.sloNs = std::max(load.sloNs, longestNs(bus_, loads, at, Stage::Iteration));
  if (const std::optional<double> first = leastHeld(loads, at, &BusLoad::firstSloNs)) {
    load.sloNs = asked.sloNs;
    load.firstSloNs = *first;
    const std::optional<double> least = leastHeld(loads, at, &BusLoad::sloNs);
    return refused(Stage::Iteration, cat("minimum is ", minimumMs(least.value_or(asked.sloNs)), ", and ",
                                         minimumMs(*first), " to the first token"));
  }
  if (std::isfinite(load.firstSloNs))
    load.firstSloNs = std::max(load.firstSloNs, longestNs(bus_, loads, at, Stage::First));
  return refused(Stage::Iteration, cat("at no SLO of its own: ", inTheWay(loads)));
}

} // namespace headrace::serve
