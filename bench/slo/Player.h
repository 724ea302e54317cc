// SPDX-License-Identifier: Apache-2.0
//
// A plan on a host device of its own, and one iteration on it again and again: what a generation does at one length of
// its sequences. Two iterations are in flight, as serve::Engine has them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/KeptWeights.h"
#include "runtime/core/MetaWriter.h"
#include "runtime/core/Runtime.h"
#include "runtime/host/HostDevice.h"

namespace headrace::bench {

[[noreturn]] inline void fail(const std::string &message) {
  std::fprintf(stderr, "bench_slo: %s\n", message.c_str());
  std::exit(1);
}
inline void check(const absl::Status &status) {
  if (!status.ok())
    fail(std::string(status.message()));
}
template <typename T> T take(absl::StatusOr<T> value) {
  check(value.status());
  return *std::move(value);
}

// Nearest rank; 0 of none.
double quantile(std::vector<int64_t> values, double q);
double quantile(std::vector<double> values, double q);

// What every iteration brings.
struct Load {
  int64_t sequences = 1, rows = 1, context = 1; // rows of each sequence; its tokens with them
};

class Player {
public:
  Player(plan::Plan plan, const host::HostOptions &options, const KeptWeights &weights, const Load &load);

  // A turn: iterations that do not count for `warmUpNs` (caches that the other plan has used, slots that hold nothing
  // yet, a core whose clock has yet to rise), then `count` that do. Appends the gaps between their tokens to `gapsNs`.
  void play(int64_t warmUpNs, int count);

  const plan::Plan &plan() const { return *plan_; }
  const plan::Variant &variant() const { return plan_->variants[variant_]; }
  const plan::Schedule &schedule() const { return plan_->schedules[variant().schedule]; }

  // What the parts of an iteration took: medians over the turns' last iterations, so that what disturbed one step of
  // one iteration does not count.
  struct Parts {
    double kernelsNs = 0, copiesNs = 0; // sums over the steps of a lane
    double lagsNs = 0;                  // sum over the steps: from when a step could have started until it did
  };
  Parts parts() const;
  void forget(); // all that was measured

  std::vector<int64_t> gapsNs;

private:
  void launch();
  void keepTimes();

  std::unique_ptr<plan::Plan> plan_;
  std::unique_ptr<core::Device> device_;
  std::unique_ptr<core::Runtime> runtime_;
  uint32_t variant_ = 0;
  std::vector<int32_t> blocks_, tokens_;
  std::vector<core::SequenceRows> rows_;
  std::vector<std::vector<int64_t>> lastedNs_, lagNs_; // by step, a sample a turn
};

} // namespace headrace::bench
