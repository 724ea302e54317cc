// SPDX-License-Identifier: Apache-2.0
//
// How to get from what the device holds to what a variant enters with, worked out when a plan is loaded.
//
// A configuration is a placement, whose homes are on the device, and what its slots hold: a state. One holds another if
// all that the other has, in homes and slots, is on the device at the same addresses; the change is free then (what is
// no longer wanted is dropped). Transitions lead from every configuration that holds the one they start from. The path
// between two configurations is the one of least predicted time, with the fewest transitions among equals.
//
// A dirty state (DirtyStates.h) is never dropped, nor taken for another: it holds only itself, and is left by an
// iteration that begins with it or by a transition that starts from it.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::core {

class TransitionPaths {
public:
  using Config = uint32_t; // an index; one for each placement with empty slots, and for each state that holds anything
  static constexpr uint32_t kFree = 0xfffffffeu; // in place of a transition: nothing to copy

  TransitionPaths() = default;
  // More than kMostConfigs are refused: all pairs are looked at.
  static constexpr size_t kMostConfigs = 1024;
  static absl::Status check(const plan::Plan &plan);
  explicit TransitionPaths(const plan::Plan &plan);

  Config config(uint32_t placement, uint32_t state) const { return state == 0 ? placement : placements_ + state - 1; }
  uint32_t placementOf(Config config) const { return placementOf_[config]; }
  bool dirty(Config config) const { return dirty_[config]; } // its state is

  bool reaches(Config from, Config to) const { return at(from, to).transition != plan::kNone; }
  uint64_t predictedNs(Config from, Config to) const { return at(from, to).ns; } // of the whole path
  // The path's first transition (kFree: one that copies nothing) and where it leads. reaches(from, to), from != to.
  uint32_t transition(Config from, Config to) const { return at(from, to).transition; }
  Config next(Config from, Config to) const { return at(from, to).next; }

private:
  struct Entry {
    uint64_t ns = 0;
    uint32_t transition = plan::kNone; // kNone: there is no path
    Config next = 0;
  };
  const Entry &at(Config from, Config to) const { return table_[from * placementOf_.size() + to]; }

  uint32_t placements_ = 0;
  std::vector<uint32_t> placementOf_; // by configuration
  std::vector<bool> dirty_;
  std::vector<Entry> table_;
};

} // namespace headrace::core
