// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/fleet/Contention.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace headrace::serve {
namespace {

constexpr double kNs = 1e9;

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

plan::LinkBytes eachOf(const BusPlacement &p) { return {p.linkBytes + p.exposedBytes, p.d2hBytes + p.exposedD2hBytes}; }
plan::LinkBytes mostOf(const BusPlacement &p) {
  const plan::LinkBytes each = eachOf(p);
  return {std::max(p.mostBytes, each.h2d), std::max(p.mostD2hBytes, each.d2h)};
}
MostBytes bytesOf(const BusStage &stage) {
  const plan::LinkBytes bytes = stageBytes(stage);
  return {static_cast<double>(bytes.h2d), static_cast<double>(bytes.d2h)};
}
bool hides(const BusStage &stage) { return stage.linkBytes != 0 || stage.d2hBytes != 0; }
double nsOf(uint64_t bytes, double rate) { return bytes == 0 ? 0 : static_cast<double>(bytes) / rate * kNs; }

double ofDevice(const std::vector<double> &each, uint32_t device, double otherwise) {
  return each.empty() ? otherwise : each[device];
}
double d2hLink(const Bus &bus, uint32_t device) { return ofDevice(bus.d2hLinks, device, kUnlimited); }
double bothShare(const Bus &bus, uint32_t device) { return ofDevice(bus.bothShares, device, 1); }

BusStage worse(const BusStage &a, const BusStage &b) {
  BusStage w;
  w.computeNs = std::max(a.computeNs, b.computeNs);
  w.linkBytes = std::max(a.linkBytes, b.linkBytes);
  w.exposedBytes = std::max(a.exposedBytes, b.exposedBytes);
  // What copies nothing hides nothing, but has nothing to hide either.
  w.hiddenNs = !hides(a) ? b.hiddenNs : !hides(b) ? a.hiddenNs : std::min(a.hiddenNs, b.hiddenNs);
  w.d2hBytes = std::max(a.d2hBytes, b.d2hBytes);
  w.exposedD2hBytes = std::max(a.exposedD2hBytes, b.exposedD2hBytes);
  if (a.soloNs > 0 && b.soloNs > 0) {
    w.soloNs = std::max(a.soloNs, b.soloNs);
    w.soloRate = std::max(a.soloRate, b.soloRate);
    w.soloD2hRate = std::max(a.soloD2hRate, b.soloD2hRate);
  }
  return w;
}

bool copiesBack(const BusStage &stage) { return stageBytes(stage).d2h != 0; }

} // namespace

BusStage stageOf(const BusPlacement &p, Stage stage) {
  return stage == Stage::First ? p.first
                               : BusStage{p.computeNs, p.linkBytes, p.hiddenNs,        p.exposedBytes, p.soloNs,
                                          p.soloRate,  p.d2hBytes,  p.exposedD2hBytes, p.soloD2hRate};
}

plan::LinkBytes stageBytes(const BusStage &stage) {
  return {stage.linkBytes + stage.exposedBytes, stage.d2hBytes + stage.exposedD2hBytes};
}
uint64_t movedBytes(const BusPlacement &p) { return eachOf(p).h2d + eachOf(p).d2h; }

bool noWorse(const BusStage &a, const BusStage &b) {
  return a.computeNs <= b.computeNs && a.linkBytes <= b.linkBytes && a.exposedBytes <= b.exposedBytes &&
         a.d2hBytes <= b.d2hBytes && a.exposedD2hBytes <= b.exposedD2hBytes &&
         (!hides(a) || a.hiddenNs >= b.hiddenNs) &&
         (b.soloNs == 0 ||
          (a.soloNs > 0 && a.soloNs <= b.soloNs && a.soloRate <= b.soloRate && a.soloD2hRate <= b.soloD2hRate));
}

bool copies(const BusPlacement &p, Direction direction) {
  const plan::LinkBytes most = mostOf(p), first = stageBytes(p.first);
  return direction == Direction::HostToDevice ? most.h2d + first.h2d + p.besideBytes != 0
                                              : most.d2h + first.d2h + p.besideD2hBytes != 0;
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
  return planPlacement(computeNs, {linkBytes, 0}, ns, rate);
}

BusPlacement planPlacement(double computeNs, const plan::LinkBytes &bytes, double ns, const BusRates &rates) {
  BusPlacement p;
  p.linkBytes = bytes.h2d;
  p.d2hBytes = bytes.d2h;
  p.computeNs = std::min(computeNs, ns);
  // The plane through (rates, ns); it is above the plan's time at all lower rates.
  const bool copies = bytes.h2d != 0 || bytes.d2h != 0;
  p.hiddenNs = copies ? p.computeNs + nsOf(bytes.h2d, rates.h2d) + nsOf(bytes.d2h, rates.d2h) - ns : 0;
  p.shortestNs = p.computeNs;
  return p;
}

BusPlacement transitionOf(const BusPlacement &from, const BusPlacement &to, const TransitionCost &cost) {
  BusPlacement p = to;
  p.deviceBytes = std::max(from.deviceBytes, to.deviceBytes);
  p.freedBytes = std::min(from.freedBytes, to.freedBytes);
  p.computeNs += cost.fixedNs;
  p.exposedBytes += cost.bytes;
  p.exposedD2hBytes += cost.d2hBytes;
  p.soloNs = p.soloRate = p.soloD2hRate = 0;
  p.mostBytes = std::max(mostOf(from).h2d, mostOf(to).h2d) + cost.bytes;
  p.mostD2hBytes = std::max(mostOf(from).d2h, mostOf(to).d2h) + cost.d2hBytes;
  p.besideBytes = std::max(from.besideBytes, to.besideBytes);
  p.besideD2hBytes = std::max(from.besideD2hBytes, to.besideD2hBytes);
  p.shortestNs = std::min(from.shortestNs, to.shortestNs);
  p.tokens = std::min(from.tokens, to.tokens);
  p.first = worse(from.first, to.first);
  return p;
}

double timeAtRate(const BusStage &stage, const BusRates &rates) {
  const double ns = delayableNs(stage, rates);
  const bool solo = stage.soloNs > 0 && rates.h2d >= stage.soloRate && rates.d2h >= stage.soloD2hRate;
  return solo ? std::min(ns, stage.soloNs) : ns;
}

double delayableNs(const BusStage &stage, const BusRates &rates) {
  double ns = stage.computeNs + nsOf(stage.exposedBytes, rates.h2d) + nsOf(stage.exposedD2hBytes, rates.d2h);
  if (hides(stage))
    ns += std::max(0.0, nsOf(stage.linkBytes, rates.h2d) + nsOf(stage.d2hBytes, rates.d2h) - stage.hiddenNs);
  return ns;
}

double timeAtRate(const BusPlacement &p, const BusRates &rates) {
  return timeAtRate(stageOf(p, Stage::Iteration), rates);
}

BusRates aloneRates(const Bus &bus, uint32_t device, const BusStage &stage) {
  const uint64_t own = uint64_t{1} << device;
  return FairRates(bus).of({own, copiesBack(stage) ? own : 0}, device);
}

double aloneNs(const Bus &bus, uint32_t device, const BusStage &stage) {
  return timeAtRate(stage, aloneRates(bus, device, stage));
}

double aloneNs(const Bus &bus, uint32_t device, const BusPlacement &placement) {
  return aloneNs(bus, device, stageOf(placement, Stage::Iteration));
}

BusRates FairRates::of(const Copying &asked, uint32_t device) {
  const uint64_t all = ~uint64_t{0} >> (64 - bus_.links.size()), own = uint64_t{1} << device;
  const Copying copying{(asked.h2d | own) & all, asked.d2h & all};
  const bool both = (copying.d2h & own) != 0;
  // Others are counted with all that their links give, this one with what it has while both directions copy.
  const double share = both ? bothShare(bus_, device) : 1;
  const uint64_t mattersFor = share < 1 ? own : 0;
  if (copying != copying_ || mattersFor != own_) {
    copying_ = copying;
    own_ = mattersFor;
    uint64_t devices = copying.h2d | copying.d2h;
    shares_.resize(static_cast<size_t>(std::popcount(devices)));
    for (core::LinkShare &link : shares_) {
      const auto d = static_cast<uint32_t>(std::countr_zero(devices));
      const uint64_t bit = uint64_t{1} << d;
      const double of = d == device ? share : 1;
      link.limits = {.h2d = (copying.h2d & bit) != 0 ? of * bus_.links[d] : 0,
                     .d2h = (copying.d2h & bit) != 0 ? of * d2hLink(bus_, d) : 0};
      devices &= devices - 1;
    }
    core::shareBus({bus_.bandwidth, bus_.d2hBandwidth, bus_.bothBandwidth}, absl::MakeSpan(shares_));
  }
  const uint64_t below = (copying_.h2d | copying_.d2h) & (own - 1);
  const core::LinkShare &link = shares_[static_cast<size_t>(std::popcount(below))];
  return {link.rates[0], both ? link.rates[1] : d2hLink(bus_, device)};
}

double fairRate(const Bus &bus, uint64_t copying, uint32_t device) {
  return FairRates(bus).of({copying, 0}, device).h2d;
}

MostBytes mostBytesIn(double windowNs, const BusPlacement &p) {
  const MostBytes once = bytesOf(p.first);
  const plan::LinkBytes each = mostOf(p);
  const auto most = [&](uint64_t bytes, double first, uint64_t beside) {
    const double once = first + static_cast<double>(beside);
    if (bytes == 0)
      return once;
    if (!(p.shortestNs > 0) || !std::isfinite(windowNs))
      return std::numeric_limits<double>::max();
    return static_cast<double>(bytes) * (std::ceil(std::max(0.0, windowNs) / p.shortestNs) + 1) + once;
  };
  return {most(each.h2d, once.h2d, p.besideBytes), most(each.d2h, once.d2h, p.besideD2hBytes)};
}

OwnBytes ownBytes(const BusPlacement &p, Stage stage) {
  const MostBytes bytes = bytesOf(stageOf(p, stage));
  return {bytes.h2d, bytes.d2h, bytes.d2h > 0 && (bytes.h2d > 0 || p.besideBytes > 0)};
}

double lostNs(const Bus &bus, const OwnBytes &own, const MostBytes &others) {
  const double both = own.bothWays ? bus.bothBandwidth / 2 : bus.bothBandwidth;
  return (std::min(own.h2d, others.h2d) / std::min(bus.bandwidth, both) +
          std::min(own.d2h, others.d2h) / std::min(bus.d2hBandwidth, both) +
          (std::min(own.h2d, others.d2h) + std::min(own.d2h, others.h2d)) / both) *
         kNs;
}

bool isPair(const BusLoad &prefill, const BusLoad &decode) { return prefill.decodedBy == decode.device; }

MostBytes mostBytesBeside(const BusLoad &load, Stage stage, const BusLoad &other, const BusPlacement &p) {
  if (isPair(other, load) && stage == Stage::Iteration)
    return {};
  if (isPair(load, other)) {
    const MostBytes first = bytesOf(p.first);
    return {std::max(0.0, first.h2d - static_cast<double>(other.handoverBytes)), first.d2h};
  }
  return mostBytesIn(stage == Stage::First ? load.firstSloNs : load.sloNs, p);
}

std::vector<double> contendedNs(const Bus &bus, absl::Span<const BusLoad> loads, absl::Span<const uint32_t> choice,
                                Stage stage) {
  std::vector<double> times;
  FairRates rates(bus);
  for (size_t i = 0; i < loads.size(); ++i) {
    const BusLoad &load = loads[i];
    const BusStage p = stageOf(load.placements[choice[i]], stage);
    const OwnBytes moved = ownBytes(load.placements[choice[i]], stage);
    double delayed = delayableNs(p, aloneRates(bus, load.device, p));
    const uint64_t own = uint64_t{1} << load.device;
    Copying copying{own, copiesBack(p) ? own : 0};
    for (size_t o = 0; o < loads.size(); ++o) {
      if (o == i)
        continue;
      const MostBytes most = mostBytesBeside(load, stage, loads[o], loads[o].placements[choice[o]]);
      delayed += lostNs(bus, moved, most);
      copying.h2d |= (most.h2d > 0 ? uint64_t{1} : 0) << loads[o].device;
      copying.d2h |= (most.d2h > 0 ? uint64_t{1} : 0) << loads[o].device;
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
