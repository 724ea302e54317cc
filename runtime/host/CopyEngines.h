// SPDX-License-Identifier: Apache-2.0
//
// The copy engines of all devices on a bus. One thread at a time steps them, under a lock:
//
//   transfer thread   whenever an engine can go on
//   a compute lane    that waits for a copy, once that is late: then another process has the transfer thread's core (a
//                     kernel thread keeps one for milliseconds), while the lane has one and nothing to do
//
// Which of the two has copied shows in nothing but the time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "runtime/host/BesideCopies.h"
#include "runtime/host/CopyEngine.h"

namespace headrace::host {

class CopyEngines final : public LateCopies {
public:
  CopyEngines(size_t devices, const core::PathLimits &bus);

  // As TransferThread's, of which these are the parts that concern no thread.
  void attach(size_t device, Shared &shared, const LinkSpeed *speed);
  void detach(size_t device);
  void setBusBandwidth(double bytesPerSecond);
  double sampleBusBandwidth();

  // Lets each engine go as far as it can without waiting, a chunk at most. If that was nothing: false, and what to wait
  // for is added to `wants` (at most kCounters of each device) and in `deadlineNs` (kNever: no time).
  bool step(std::vector<Signals::WantOf> &wants, int64_t &deadlineNs);
  int64_t takeOver(int64_t sinceNs) override;

private:
  struct Waits {
    std::array<uint64_t, kCounters> wanted; // kNever: not
    int64_t deadlineNs = threads::kNever;
  };
  struct Engines { // of a device, by direction
    std::array<CopyEngine, 2> launches;
    std::array<BesideEngine, 2> beside;
  };
  Waits waits(size_t device) const;
  bool stepAll();
  void publish();

  std::mutex stepping_; // of what follows
  Bus bus_;
  std::vector<std::optional<Engines>> engines_; // of each device
  std::vector<Shared *> devices_;               // null: not attached
  double published_ = 0;                        // slowed_.ns

  std::mutex sampling_; // of what follows
  Bus::Slowed slowed_;
  Bus::Slowed sampled_;
};

} // namespace headrace::host
