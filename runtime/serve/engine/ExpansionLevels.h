// SPDX-License-Identifier: Apache-2.0
//
// Adaptive expansion where only some numbers of KV blocks can be had, those of a plan's placements (Pie, sections 3.4
// and 4.1: layers are swapped whole, and each layer less on the device makes all caches larger). Begins with the
// fewest, and climbs:
//
//   tokens/s of a level    | 3364   3991   4302   4528 | 2870
//                          |   0 ---> 1 ---> 2 ---> 3 ---> 4      a level that has less: back to the best
//                          |                        3 <----       not tried again for a while, then for twice as long
//
// How throughput rises with the expansion is no smooth curve, with how many layers' time a swap takes in whole ones; so
// levels are measured, by the median of some iterations that only decode: blocks offered by time, which are tokens/s
// but for how long sequences are. On a plateau the largest does: fewer sequences wait, or are preempted. What is
// measured is measured anew whenever it serves.
//
// A level that has served for a while is left once it falls by more than it drifts, or at once where most iterations of
// a window fall far: the link has become slower. What passes within half a window changes nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/serve/engine/Expansion.h"

namespace headrace::serve {

class ExpansionLevels {
public:
  // Blocks that may be in use: ascending, one at least.
  explicit ExpansionLevels(std::vector<int64_t> levels, const ExpansionTuning &tuning = {});

  int64_t offered() const { return levels_[at_]; }
  void saw(const IterationWaits &iteration);

  uint64_t grown() const { return grown_; }
  uint64_t shrunk() const { return shrunk_; }

private:
  void measure();
  size_t best() const;
  void look();
  void leave();
  void goTo(size_t level);

  const std::vector<int64_t> levels_;
  const ExpansionTuning tuning_;
  std::vector<double> rates_;                // by level: blocks in use by time; 0: not known
  std::vector<int64_t> tryAgainAt_, pauses_; // by level
  size_t at_ = 0;
  std::vector<double> batch_; // of this level, iteration by iteration
  int64_t inWindow_ = 0, lowInWindow_ = 0, skip_ = 0;
  int64_t seen_ = 0, freshUntil_ = 0; // iterations
  uint64_t grown_ = 0, shrunk_ = 0;
};

} // namespace headrace::serve
