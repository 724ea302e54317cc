// SPDX-License-Identifier: Apache-2.0
//
// The CPU that all devices of a group share: steps of their cpu lanes, each of which takes all threads of its pool,
// take turns, in the order in which they became ready, of those of one moment the lowest device first.
//
//   device 0   [ step ]        [ step ]       ready at 0, and as soon as the first has ended
//   device 1   ........[ step ]               ready before that
//
// Whoever plays launches asks it for the next moment, plays all else of that first (ended(), then what follows from it)
// and then start().
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/sim/BesideCopies.h"
#include "runtime/sim/GroupRates.h"
#include "runtime/sim/TimedSchedule.h"

namespace headrace::sim {

class CpuPool {
public:
  static constexpr size_t kNobody = GroupRates::kNobody;

  explicit CpuPool(size_t devices) : asked_(devices) {}

  // Of a device that has none here: a step, which is ready at readyNs.
  void ask(size_t device, const TimedStep &step, int64_t readyNs);
  bool has(size_t device) const { return asked_[device].step != nullptr; }
  size_t atWork() const { return atWork_; } // a device, or kNobody
  const TimedStep &step(size_t device) const { return *asked_[device].step; }
  int64_t startNs() const { return startNs_; } // of the step at work

  // The next moment at which a step may start or end; kNeverNs: none is known.
  int64_t nextNs() const { return atWork_ != kNobody ? endNs_ : readyNs_; }
  // Gives the CPU, if nobody has it, to whose turn it is at this moment. Whether somebody's it was.
  bool start(int64_t ns);
  // The rate of the step at work from this moment on, of kFullRate.
  void setRate(uint64_t rate, int64_t ns);
  // Whether all of the step at work has been done at its nextNs().
  bool ended(int64_t ns);
  // Takes the step away that has ended.
  void end();

private:
  struct Asked {
    const TimedStep *step = nullptr;
    int64_t readyNs = 0;
  };
  void pass(int64_t ns);
  void predict();

  std::vector<Asked> asked_; // one a device
  size_t atWork_ = kNobody;
  int64_t readyNs_ = kNeverNs; // the first of those that wait
  int64_t startNs_ = 0, endNs_ = kNeverNs;
  Progress left_ = 0; // of the step at work, at sinceNs_
  int64_t sinceNs_ = 0;
  uint64_t rate_ = 0;
};

} // namespace headrace::sim
