// SPDX-License-Identifier: Apache-2.0
//
// Select-N's rule on several devices that share a bus, played moment by moment: one compute lane and one copy lane a
// device, rates by core::shareBus.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "runtime/core/BusShare.h"
#include "runtime/serve/fleet/Contention.h"

namespace headrace::serve {

struct ReplayDevice {
  int64_t layers = 1, interval = 2; // interval >= 2
  double computeSeconds = 1;        // of a layer
  double layerBytes = 0;
  double offsetSeconds = 0; // when its first iteration starts
};

// Each device's longest iteration, in seconds, until each has ended at least `iterations`; none rests meanwhile.
inline std::vector<double> longestIterations(const Bus &bus, const std::vector<ReplayDevice> &devices, int iterations) {
  struct State {
    int64_t layer = 0;
    double compute = 0; // seconds left of the layer that runs; below 0: none runs
    double copy = 0;    // bytes left
    double began = 0, longest = 0;
    int done = 0;
    bool asleep = true;
  };
  constexpr double kNever = std::numeric_limits<double>::infinity();
  std::vector<State> states(devices.size());
  double now = 0;
  // Starts the copy of the group that begins at this layer, then the layer unless it waits for its copy.
  const auto enter = [&](size_t d, bool fresh) {
    const ReplayDevice &device = devices[d];
    State &s = states[d];
    const int64_t offloaded = device.layers / device.interval * device.interval;
    if (fresh && s.layer < offloaded && s.layer % device.interval == 0)
      s.copy = device.layerBytes;
    const bool waits = s.layer < offloaded && s.layer % device.interval == device.interval - 1 && s.copy > 0;
    s.compute = waits ? -1 : device.computeSeconds;
  };
  for (;;) {
    std::vector<core::LinkShare> shares(devices.size());
    for (size_t d = 0; d < devices.size(); ++d)
      shares[d].limits = {.h2d = states[d].copy > 0 ? bus.links[d] : 0, .d2h = 0};
    core::shareBus({bus.bandwidth}, absl::MakeSpan(shares));
    double step = kNever;
    for (size_t d = 0; d < devices.size(); ++d) {
      if (states[d].asleep)
        step = std::min(step, devices[d].offsetSeconds - now);
      else if (states[d].compute >= 0)
        step = std::min(step, states[d].compute);
    }
    for (size_t d = 0; d < devices.size(); ++d)
      if (states[d].copy > 0)
        step = std::min(step, states[d].copy / shares[d].rates[0]);
    std::vector<bool> copied(devices.size(), false);
    for (size_t d = 0; d < devices.size(); ++d) {
      State &s = states[d];
      if (s.copy <= 0)
        continue;
      // What rounding leaves of a copy that ends now counts as nothing: who waits for it must not miss its end.
      const double left = s.copy - shares[d].rates[0] * step;
      copied[d] = left <= 1e-12 * devices[d].layerBytes;
      s.copy = copied[d] ? 0 : left;
    }
    now += step;
    bool all = true;
    for (size_t d = 0; d < devices.size(); ++d) {
      State &s = states[d];
      if (s.asleep) {
        if (devices[d].offsetSeconds <= now + 1e-9) { // no step so small that it is lost in rounding
          s.asleep = false;
          s.began = now;
          enter(d, true);
        }
      } else if (s.compute >= 0) {
        s.compute -= step;
        if (s.compute <= 1e-12) {
          if (++s.layer == devices[d].layers) {
            s.longest = std::max(s.longest, now - s.began);
            s.began = now;
            s.layer = 0;
            ++s.done;
          }
          enter(d, true);
        }
      } else if (copied[d]) {
        enter(d, false);
      }
      all = all && s.done >= iterations;
    }
    if (all)
      break;
  }
  std::vector<double> longest;
  for (const State &s : states)
    longest.push_back(s.longest);
  return longest;
}

} // namespace headrace::serve
