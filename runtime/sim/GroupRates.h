// SPDX-License-Identifier: Apache-2.0
//
// At what rate of their own the copies of all devices of a group, and the step that the CPU works at, go at a moment.
//
//   a copy      its own rate                            rateBeside(): the other direction, the other row of its own
//               its part of the bus, if that is less    core/BusShare.h; nothing of it during its latency
//               its part of host memory, if that is     core::memoryLevel(): both rows of a direction together ask for
//                                                       what the link takes (cost::Sharing), latencies, too
//   the CPU's   its part of host memory
//
// Plain values, nothing of launches or time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "runtime/core/BusShare.h"
#include "runtime/cost/CostModel.h"
#include "runtime/sim/TimedSchedule.h"

namespace headrace::sim {

class GroupRates {
public:
  // Rows of copies of a device: h2d, d2h, and the same beside launches.
  static constexpr size_t kRows = 4, kBeside = 2;
  static constexpr size_t kNobody = std::numeric_limits<size_t>::max();

  struct Flow {                      // of a row:
    const TimedStep *step = nullptr; // its copy that is at work; null: none is
    bool onBus = false;              // it takes of the bus
    uint64_t rate = 0;               // 2^32: its own
    double share = 0;                // the same before it is rounded up, 1: its own
  };

  // bus: bytes/ns.
  GroupRates(size_t devices, const core::PathLimits &bus);
  // What a device's lanes ask for. Of host memory that devices have different figures for the least counts.
  void open(size_t device, const cost::Sharing &sharing);
  void setBusH2d(double bytesPerNs) { bus_.h2d = bytesPerNs; }

  Flow &flow(size_t index) { return flows_[index]; } // of a row, kRows a device
  // Sets the rates of all flows, with a step of this device at work on the CPU, or of nobody.
  void share(size_t onCpu);
  uint64_t cpuRate() const { return cpuRate_; }

  // Host to device: whether the bus is what slows some copy, and bytes/ns of all on the bus.
  bool busSlows() const { return busSlows_; }
  double h2dBytesPerNs() const { return h2dBytesPerNs_; }

private:
  struct Device {
    cost::Sharing sharing;
    uint64_t bothRate = kFullRate;
  };
  uint64_t ofLink(size_t index) const;
  void shareBus();
  void shareMemory(size_t onCpu);
  struct Direction {
    uint64_t rate = 0;
    double share = 0;
  };
  Direction ofDirection(size_t device, size_t direction) const;

  core::PathLimits bus_; // bytes/ns
  double memory_ = std::numeric_limits<double>::infinity();
  std::vector<Device> devices_;
  std::vector<Flow> flows_;             // kRows a device
  std::vector<core::LinkShare> shares_; // one a device
  std::vector<double> asked_;           // of host memory, bytes/s: h2d, d2h, cpu of each device
  uint64_t cpuRate_ = kFullRate;
  bool busSlows_ = false;
  double h2dBytesPerNs_ = 0;
};

} // namespace headrace::sim
