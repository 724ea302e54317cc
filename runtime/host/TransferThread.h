// SPDX-License-Identifier: Apache-2.0
//
// The thread that copies for one device, or for all devices on a bus: both directions of every link, a chunk of each in
// turn, paced by one Bus (CopyEngines.h).
//
//   device 0 --.   h2d, d2h engine                 [Signals of device 0]
//   device 1 ---+- h2d, d2h engine -- Bus -- runs while a device is attached; sleeps on one bell for all of them
//   device 2 --'   h2d, d2h engine                 [Signals of device 2]
//
// One other thread calls it. What changes its devices or the bus pauses it in between two steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "runtime/host/CopyEngines.h"

namespace headrace::host {

class TransferThread {
public:
  TransferThread(size_t devices, const core::PathLimits &bus);
  ~TransferThread();

  Bell *bell() { return &bell_; }                // for the Signals of its devices
  LateCopies *lateCopies() { return &engines_; } // ... and for their lanes

  // From now on, copies of this device's launches; `speed` is what they are paced to, null: as fast as memcpy. `urgent`
  // (LowLatency.h): the thread, if it is this device that brings it. ResourceExhausted where the system grants none.
  absl::Status attach(size_t device, Shared &shared, const LinkSpeed *speed, bool urgent);
  // Of a device all of whose launches have ended.
  void detach(size_t device);
  // InvalidArgument naming the core. Runs while a device is attached; until none is.
  absl::Status pin(int core);

  // Bytes/s, host to device, for all devices; copies under way go on at their new rates.
  void setBusBandwidth(double bytesPerSecond);
  // Of core::DeviceGroup, to within the time between two looks at a copy (a chunk's).
  double sampleBusBandwidth() { return engines_.sampleBusBandwidth(); }

private:
  template <typename Change> void whilePaused(Change &&change);
  void run();

  Bell bell_;
  Signals control_; // Launched: odd while a pause is asked for, kStop at the end; Published: the last pause begun
  uint64_t pauses_ = 0;
  CopyEngines engines_;
  std::vector<Signals::WantOf> wants_; // scratch of run()
  std::vector<bool> attached_;         // devices
  std::thread thread_;
};

} // namespace headrace::host
