// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/Contention.h"

#include <algorithm>
#include <cmath>

namespace headrace::serve {
namespace {

constexpr double kNs = 1e9;

double bytesOf(const BusPlacement &p) { return static_cast<double>(p.linkBytes); }
bool copies(const BusPlacement &p) { return p.linkBytes != 0; }

} // namespace

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

BusPlacement transitionOf(const BusPlacement &from, const BusPlacement &to, uint64_t bytes) {
  BusPlacement p = to;
  p.deviceBytes = std::max(from.deviceBytes, to.deviceBytes);
  p.freedBytes = std::min(from.freedBytes, to.freedBytes);
  p.linkBytes = std::max(from.linkBytes, to.linkBytes) + bytes;
  p.computeNs = std::max(from.computeNs, to.computeNs);
  // A placement that copies nothing hides nothing, but has nothing to hide either.
  p.hiddenNs = from.linkBytes == 0 ? to.hiddenNs
               : to.linkBytes == 0 ? from.hiddenNs
                                   : std::min(from.hiddenNs, to.hiddenNs);
  p.shortestNs = std::min(from.shortestNs, to.shortestNs);
  p.tokens = std::min(from.tokens, to.tokens);
  return p;
}

double timeAtRate(const BusPlacement &p, double bytesPerSecond) {
  if (!copies(p))
    return p.computeNs;
  return p.computeNs + std::max(0.0, bytesOf(p) / bytesPerSecond * kNs - p.hiddenNs);
}

double aloneNs(const Bus &bus, uint32_t device, const BusPlacement &placement) {
  return timeAtRate(placement, std::min(bus.bandwidth, bus.links[device]));
}

double fairRate(const Bus &bus, uint64_t copying, uint32_t device) {
  copying |= uint64_t{1} << device;
  // All rates grow together; a narrow link stops at its own, the others share what it leaves.
  double left = bus.bandwidth;
  for (;;) {
    double growing = 0;
    for (uint32_t d = 0; d < bus.links.size(); ++d)
      growing += static_cast<double>((copying >> d) & 1);
    const double level = left / growing;
    if (bus.links[device] <= level)
      return bus.links[device];
    bool stopped = false;
    double taken = 0;
    for (uint32_t d = 0; d < bus.links.size(); ++d) {
      if (((copying >> d) & 1) != 0 && bus.links[d] <= level) {
        copying &= ~(uint64_t{1} << d);
        taken += bus.links[d];
        stopped = true;
      }
    }
    if (!stopped)
      return level;
    left -= taken;
  }
}

double mostBytesIn(double windowNs, const BusPlacement &p) {
  if (!copies(p))
    return 0;
  if (!(p.shortestNs > 0) || !std::isfinite(windowNs))
    return std::numeric_limits<double>::max();
  return bytesOf(p) * (std::ceil(windowNs / p.shortestNs) + 1);
}

std::vector<double> contendedNs(const Bus &bus, absl::Span<const BusLoad> loads, absl::Span<const uint32_t> choice) {
  uint64_t copying = 0;
  for (size_t i = 0; i < loads.size(); ++i) {
    if (copies(loads[i].placements[choice[i]]))
      copying |= uint64_t{1} << loads[i].device;
  }
  std::vector<double> times;
  for (size_t i = 0; i < loads.size(); ++i) {
    const BusLoad &load = loads[i];
    const BusPlacement &p = load.placements[choice[i]];
    double delayed = aloneNs(bus, load.device, p);
    for (size_t o = 0; o < loads.size(); ++o) {
      if (o != i)
        delayed += std::min(bytesOf(p), mostBytesIn(load.sloNs, loads[o].placements[choice[o]])) / bus.bandwidth * kNs;
    }
    times.push_back(std::min(timeAtRate(p, fairRate(bus, copying, load.device)), delayed));
  }
  return times;
}

bool admissible(absl::Span<const BusLoad> loads, absl::Span<const double> contended) {
  for (size_t i = 0; i < loads.size(); ++i) {
    if (!(contended[i] <= loads[i].sloNs))
      return false;
  }
  return true;
}

bool meanRatesFit(const Bus &bus, absl::Span<const BusLoad> loads, absl::Span<const uint32_t> choice) {
  double rates = 0;
  for (size_t i = 0; i < loads.size(); ++i) {
    const BusPlacement &p = loads[i].placements[choice[i]];
    rates += bytesOf(p) / aloneNs(bus, loads[i].device, p) * kNs;
  }
  return rates < bus.bandwidth;
}

} // namespace headrace::serve
