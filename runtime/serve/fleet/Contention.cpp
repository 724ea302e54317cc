// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/fleet/Contention.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace headrace::serve {
namespace {

constexpr double kNs = 1e9;

uint64_t mostOf(const BusPlacement &p) { return std::max(p.mostBytes, movedBytes(p)); }
double bytesOf(const BusStage &stage) { return static_cast<double>(stageBytes(stage)); }

BusStage worse(const BusStage &a, const BusStage &b) {
  BusStage w;
  w.computeNs = std::max(a.computeNs, b.computeNs);
  w.linkBytes = std::max(a.linkBytes, b.linkBytes);
  w.exposedBytes = std::max(a.exposedBytes, b.exposedBytes);
  // What copies nothing hides nothing, but has nothing to hide either.
  w.hiddenNs = a.linkBytes == 0 ? b.hiddenNs : b.linkBytes == 0 ? a.hiddenNs : std::min(a.hiddenNs, b.hiddenNs);
  if (a.soloNs > 0 && b.soloNs > 0) {
    w.soloNs = std::max(a.soloNs, b.soloNs);
    w.soloRate = std::max(a.soloRate, b.soloRate);
  }
  return w;
}

} // namespace

BusStage stageOf(const BusPlacement &p, Stage stage) {
  return stage == Stage::First ? p.first
                               : BusStage{p.computeNs, p.linkBytes, p.hiddenNs, p.exposedBytes, p.soloNs, p.soloRate};
}

uint64_t stageBytes(const BusStage &stage) { return stage.linkBytes + stage.exposedBytes; }
uint64_t movedBytes(const BusPlacement &p) { return p.linkBytes + p.exposedBytes; }

bool noWorse(const BusStage &a, const BusStage &b) {
  return a.computeNs <= b.computeNs && a.linkBytes <= b.linkBytes && a.exposedBytes <= b.exposedBytes &&
         (a.linkBytes == 0 || a.hiddenNs >= b.hiddenNs) &&
         (b.soloNs == 0 || (a.soloNs > 0 && a.soloNs <= b.soloNs && a.soloRate <= b.soloRate));
}

bool copies(const BusPlacement &p) {
  return p.mostBytes != 0 || p.linkBytes != 0 || p.exposedBytes != 0 || stageBytes(p.first) != 0;
}

BusPlacement selectNPlacement(const cost::LayerTimes &times, uint64_t layerBytes, int64_t interval) {
  const int64_t offloaded = cost::offloadedLayers(times.layers, interval);
  const int64_t freed = std::max<int64_t>(cost::freedLayers(times.layers, interval), 0);
  BusPlacement p;
  p.placement = static_cast<uint32_t>(interval);
  p.freedBytes = static_cast<uint64_t>(freed) * layerBytes;
  p.deviceBytes =
      static_cast<uint64_t>(times.layers - (offloaded == 0 ? 0 : cost::freedLayers(times.layers, interval))) *
      layerBytes;
  p.linkBytes = static_cast<uint64_t>(offloaded) * layerBytes;
  p.computeNs = cost::residentNs(times);
  if (interval == 1) {
    // L max(t_c, t_t) + min(t_c, t_t) is at most L t_c + t_c + max(0, L t_t - L t_c), and equal where t_t >= t_c.
    p.hiddenNs = static_cast<double>(times.layers) * times.computeNs;
    p.computeNs += times.computeNs;
  } else if (offloaded != 0) {
    p.hiddenNs = static_cast<double>(offloaded * (interval - 1)) * times.computeNs;
  }
  p.shortestNs = cost::residentNs(times);
  return p;
}

BusPlacement planPlacement(double computeNs, uint64_t linkBytes, double ns, double rate) {
  BusPlacement p;
  p.linkBytes = linkBytes;
  p.computeNs = std::min(computeNs, ns);
  // The line through (rate, ns); it is above the plan's time at every lower rate.
  p.hiddenNs = linkBytes == 0 ? 0 : p.computeNs + static_cast<double>(linkBytes) / rate * kNs - ns;
  p.shortestNs = p.computeNs;
  return p;
}

BusPlacement transitionOf(const BusPlacement &from, const BusPlacement &to, const TransitionCost &cost) {
  BusPlacement p = to;
  p.deviceBytes = std::max(from.deviceBytes, to.deviceBytes);
  p.freedBytes = std::min(from.freedBytes, to.freedBytes);
  p.computeNs += cost.fixedNs;
  p.exposedBytes += cost.bytes;
  p.soloNs = p.soloRate = 0;
  p.mostBytes = std::max(mostOf(from), mostOf(to)) + cost.bytes;
  p.shortestNs = std::min(from.shortestNs, to.shortestNs);
  p.tokens = std::min(from.tokens, to.tokens);
  p.first = worse(from.first, to.first);
  return p;
}

double timeAtRate(const BusStage &stage, double bytesPerSecond) {
  const double ns = delayableNs(stage, bytesPerSecond);
  return stage.soloNs > 0 && bytesPerSecond >= stage.soloRate ? std::min(ns, stage.soloNs) : ns;
}

double delayableNs(const BusStage &stage, double bytesPerSecond) {
  double ns = stage.computeNs;
  if (stage.exposedBytes != 0)
    ns += static_cast<double>(stage.exposedBytes) / bytesPerSecond * kNs;
  if (stage.linkBytes != 0)
    ns += std::max(0.0, static_cast<double>(stage.linkBytes) / bytesPerSecond * kNs - stage.hiddenNs);
  return ns;
}

double timeAtRate(const BusPlacement &p, double bytesPerSecond) {
  return timeAtRate(stageOf(p, Stage::Iteration), bytesPerSecond);
}

double aloneNs(const Bus &bus, uint32_t device, const BusStage &stage) {
  return timeAtRate(stage, std::min(bus.bandwidth, bus.links[device]));
}

double aloneNs(const Bus &bus, uint32_t device, const BusPlacement &placement) {
  return aloneNs(bus, device, stageOf(placement, Stage::Iteration));
}

double FairRates::of(uint64_t copying, uint32_t device) {
  copying = (copying | uint64_t{1} << device) & ~uint64_t{0} >> (64 - bus_.links.size());
  if (copying != copying_) {
    copying_ = copying;
    shares_.resize(static_cast<size_t>(std::popcount(copying)));
    for (core::LinkShare &share : shares_) {
      share.limits = {.h2d = bus_.links[static_cast<size_t>(std::countr_zero(copying))], .d2h = 0};
      copying &= copying - 1;
    }
    core::shareBus({.h2d = bus_.bandwidth}, absl::MakeSpan(shares_));
  }
  const uint64_t below = copying_ & ((uint64_t{1} << device) - 1);
  return shares_[static_cast<size_t>(std::popcount(below))].rates[0];
}

double fairRate(const Bus &bus, uint64_t copying, uint32_t device) { return FairRates(bus).of(copying, device); }

double mostBytesIn(double windowNs, const BusPlacement &p) {
  const double once = bytesOf(p.first), each = static_cast<double>(mostOf(p));
  if (each == 0)
    return once;
  if (!(p.shortestNs > 0) || !std::isfinite(windowNs))
    return std::numeric_limits<double>::max();
  return each * (std::ceil(std::max(0.0, windowNs) / p.shortestNs) + 1) + once;
}

bool isPair(const BusLoad &prefill, const BusLoad &decode) { return prefill.decodedBy == decode.device; }

double mostBytesBeside(const BusLoad &load, Stage stage, const BusLoad &other, const BusPlacement &p) {
  if (isPair(other, load) && stage == Stage::Iteration)
    return 0;
  if (isPair(load, other))
    return std::max(0.0, bytesOf(p.first) - static_cast<double>(other.handoverBytes));
  return mostBytesIn(stage == Stage::First ? load.firstSloNs : load.sloNs, p);
}

std::vector<double> contendedNs(const Bus &bus, absl::Span<const BusLoad> loads, absl::Span<const uint32_t> choice,
                                Stage stage) {
  std::vector<double> times;
  FairRates rates(bus);
  for (size_t i = 0; i < loads.size(); ++i) {
    const BusLoad &load = loads[i];
    const BusStage p = stageOf(load.placements[choice[i]], stage);
    double delayed = delayableNs(p, std::min(bus.bandwidth, bus.links[load.device]));
    uint64_t copying = 0;
    for (size_t o = 0; o < loads.size(); ++o) {
      const double most = o == i ? 0 : mostBytesBeside(load, stage, loads[o], loads[o].placements[choice[o]]);
      delayed += std::min(bytesOf(p), most) / bus.bandwidth * kNs;
      copying |= (most > 0 ? uint64_t{1} : 0) << loads[o].device;
    }
    times.push_back(std::min(timeAtRate(p, rates.of(copying, load.device)), delayed));
  }
  return times;
}

bool admissible(const Bus &bus, absl::Span<const BusLoad> loads, absl::Span<const uint32_t> choice) {
  const auto within = [&](Stage stage) {
    const std::vector<double> times = contendedNs(bus, loads, choice, stage);
    for (size_t i = 0; i < loads.size(); ++i) {
      if (!(times[i] <= (stage == Stage::First ? loads[i].firstSloNs : loads[i].sloNs)))
        return false;
    }
    return true;
  };
  const bool once =
      std::any_of(loads.begin(), loads.end(), [](const BusLoad &l) { return std::isfinite(l.firstSloNs); });
  return within(Stage::Iteration) && (!once || within(Stage::First));
}

} // namespace headrace::serve
