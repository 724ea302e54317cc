// SPDX-License-Identifier: Apache-2.0
//
// What devices on a bus and of one CPU do, found without any cleverness: one nanosecond after the other, rates by
// core::shareBus and, of host memory, max-min by its other definition: who asks for least first, each at most an equal
// part of what is left. For schedules of a few dozen nanoseconds.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <limits>
#include <map>
#include <vector>

#include "runtime/core/BusShare.h"
#include "tests/unit/sim/Schedules.h"

namespace headrace::sim {

struct ReplayedStep {
  int64_t startNs = -1, endNs = -1;
};

struct Replay {
  struct Made { // a launch
    int64_t atNs = 0;
    size_t device = 0;
    const HandMade *what = nullptr;
  };
  core::PathLimits bus;                                    // bytes/ns
  double memory = std::numeric_limits<double>::infinity(); // likewise
  std::vector<std::array<double, 3>> asked = {{0, 0, 0}};  // of it, by the device's h2d, d2h and cpu lanes alone
  size_t devices = 1;
  int64_t latencyNs = 0;               // of every copy that is longer
  double bothShare = 1;                // of a copy's own rate while both directions of its link are at work
  std::vector<Made> launches;          // by time
  std::map<int64_t, double> bandwidth; // of bus.h2d from these times on

  double bytes = 0;                              // h2d, moved
  std::vector<std::vector<ReplayedStep>> result; // one a launch

  void run() {
    struct Running {
      double left = 0; // ns at its own rate
      bool active = false;
      int64_t waitsSince = -1; // for the CPU
    };
    struct State {
      std::deque<size_t> queue; // of launches
      std::vector<Running> steps;
      bool begun = false;
    };
    constexpr double kNothing = 1e-6;
    std::vector<State> states(devices);
    result.assign(launches.size(), {});
    const auto isCopy = [](plan::Lane lane) { return lane == plan::Lane::H2D || lane == plan::Lane::D2H; };
    const Running *onCpu = nullptr;
    size_t next = 0;
    for (int64_t now = 0;; ++now) {
      if (const auto change = bandwidth.find(now); change != bandwidth.end())
        bus.h2d = change->second;
      bool idle = false, allMade = false; // the launches of this moment, once all else has happened
      for (bool moved = true; moved || !allMade;) {
        if (!moved) {
          for (; next < launches.size() && launches[next].atNs == now; ++next)
            states[launches[next].device].queue.push_back(next);
          idle = next == launches.size();
          allMade = true;
        }
        moved = false;
        for (State &s : states) {
          if (s.queue.empty())
            continue;
          const HandMade &made = *launches[s.queue.front()].what;
          std::vector<ReplayedStep> &times = result[s.queue.front()];
          if (!s.begun) {
            times.assign(made.schedule.steps.size(), {});
            s.steps.assign(made.schedule.steps.size(), {});
            s.begun = moved = true;
          }
          bool all = true;
          for (uint32_t i = 0; i < times.size(); ++i) {
            if (times[i].startNs < 0) {
              bool ready = true;
              for (uint32_t j = 0; j < i; ++j)
                ready = ready && (made.schedule.steps[j].lane != made.schedule.steps[i].lane || times[j].endNs >= 0);
              for (const plan::Edge &edge : made.schedule.edges)
                ready = ready && (edge.to != i || times[edge.from].endNs >= 0);
              if (ready && made.schedule.steps[i].lane != plan::Lane::Cpu) {
                times[i].startNs = now;
                s.steps[i] = {static_cast<double>(made.durations[i]), true};
                moved = true;
              } else if (ready && s.steps[i].waitsSince < 0) {
                s.steps[i].waitsSince = now;
              }
            }
            if (s.steps[i].active && s.steps[i].left <= kNothing) {
              s.steps[i].active = false;
              onCpu = &s.steps[i] == onCpu ? nullptr : onCpu;
              times[i].endNs = now;
              moved = true;
            }
            all = all && times[i].endNs >= 0;
          }
          if (all) {
            s.queue.pop_front();
            s.begun = false;
            moved = true;
          }
        }
        if (moved || onCpu != nullptr)
          continue;
        // Nothing else happens at this moment: the CPU goes to who has waited longest.
        Running *first = nullptr;
        for (State &s : states)
          for (size_t i = 0; i < s.steps.size() && !s.queue.empty() && s.begun; ++i) {
            Running &waits = s.steps[i];
            if (waits.waitsSince < 0 || result[s.queue.front()][i].startNs >= 0 ||
                (first != nullptr && first->waitsSince <= waits.waitsSince))
              continue;
            first = &waits;
          }
        for (State &s : states)
          for (size_t i = 0; i < s.steps.size(); ++i)
            if (&s.steps[i] == first) {
              result[s.queue.front()][i].startNs = now;
              *first = {static_cast<double>(launches[s.queue.front()].what->durations[i]), true, first->waitsSince};
              onCpu = first;
              moved = true;
            }
      }
      // Each running step for one nanosecond.
      struct Flow {
        Running *copy;
        double bytesPerNs; // its own
        size_t device, direction;
      };
      struct Share { // of a lane's step, of its own rate
        Running *step;
        double share, asks; // of host memory with all of it
        double bytesPerNs;  // of a copy to a device on the bus
      };
      std::vector<Flow> flows;
      std::vector<Share> slowed;
      std::vector<core::LinkShare> shares(devices, {.limits = {.h2d = 0, .d2h = 0}});
      for (size_t d = 0; d < devices; ++d) {
        State &s = states[d];
        if (s.queue.empty())
          continue;
        idle = false;
        const HandMade &made = *launches[s.queue.front()].what;
        int copies = 0;
        for (size_t i = 0; i < s.steps.size(); ++i)
          copies += s.steps[i].active && isCopy(made.schedule.steps[i].lane);
        const double share = copies == 2 ? bothShare : 1;
        for (size_t i = 0; i < s.steps.size(); ++i) {
          Running &running = s.steps[i];
          if (!running.active)
            continue;
          const plan::Step &step = made.schedule.steps[i];
          const auto duration = static_cast<int64_t>(made.durations[i]);
          const int64_t flowNs = latencyNs < duration ? duration - latencyNs : duration;
          if (step.lane == plan::Lane::Cpu) {
            slowed.push_back({&running, 1, asked[d][2], 0});
          } else if (!isCopy(step.lane)) {
            running.left -= 1;
          } else if (step.linkBytes == 0 || running.left > static_cast<double>(flowNs) + kNothing) {
            slowed.push_back({&running, share, asked[d][step.lane == plan::Lane::H2D ? 0 : 1], 0});
          } else {
            const double rate = static_cast<double>(step.linkBytes) / static_cast<double>(flowNs);
            const bool toDevice = step.lane == plan::Lane::H2D;
            flows.push_back({&running, rate, d, toDevice ? size_t{0} : 1});
            (toDevice ? shares[d].limits.h2d : shares[d].limits.d2h) = rate * share;
          }
        }
      }
      core::shareBus(bus, absl::MakeSpan(shares));
      for (const Flow &flow : flows) {
        const double rate = shares[flow.device].rates[flow.direction];
        slowed.push_back({flow.copy, rate / flow.bytesPerNs, asked[flow.device][flow.direction],
                          flow.direction == 0 ? flow.bytesPerNs : 0});
      }
      std::stable_sort(slowed.begin(), slowed.end(),
                       [](const Share &a, const Share &b) { return a.share * a.asks < b.share * b.asks; });
      double memoryLeft = memory;
      for (size_t i = 0; i < slowed.size(); ++i) {
        const auto &[running, share, asks, bytesPerNs] = slowed[i];
        const double wants = share * asks, gets = std::min(wants, memoryLeft / static_cast<double>(slowed.size() - i));
        memoryLeft -= gets;
        const double step = std::min(gets < wants ? gets / asks : share, running->left);
        running->left -= step;
        bytes += step * bytesPerNs;
      }
      if (idle)
        return;
    }
  }
};

} // namespace headrace::sim
