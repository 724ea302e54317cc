// SPDX-License-Identifier: Apache-2.0
//
// A plan on a host device, and one workload on it again and again, in turns with others.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/KeptWeights.h"
#include "runtime/core/MetaWriter.h"
#include "runtime/core/Runtime.h"
#include "runtime/host/HostDevice.h"

namespace headrace::bench {

inline constexpr int kTurn = 6;   // iterations measured in a turn
inline constexpr int kWarmUp = 2; // before them

[[noreturn]] inline void fail(const std::string &message) {
  std::fprintf(stderr, "bench_run: %s\n", message.c_str());
  std::exit(1);
}
template <typename T> T take(absl::StatusOr<T> value) {
  if (!value.ok())
    fail(std::string(value.status().message()));
  return *std::move(value);
}
inline void check(const absl::Status &status) {
  if (!status.ok())
    fail(std::string(status.message()));
}

// What an iteration of a workload brings.
inline double median(std::vector<int64_t> values) {
  std::sort(values.begin(), values.end());
  return static_cast<double>(values[values.size() / 2]);
}

struct Load {
  const char *name = "";
  int64_t sequences = 1, tokens = 1; // of each mini-batch; of each sequence
  int64_t context = 128;             // that the plan serves; of decode the last token stands at its end
  int64_t miniBatches = 1;
  int64_t firstPosition() const { return tokens == 1 ? context - 1 : 0; }
};

class Player {
public:
  Player(plan::Plan plan, const host::HostOptions &device, double bandwidth, const KeptWeights &weights,
         const Load &load);

  const plan::Plan &plan() const { return *plan_; }
  const plan::Variant &variant() const { return plan_->variants[variant_]; }
  const plan::Schedule &schedule() const { return plan_->schedules[variant().schedule]; }

  // A turn: warms up, then appends kTurn gaps to `gapsNs`.
  void play();

  std::vector<int64_t> gapsNs;
  std::vector<int64_t> computeNs, lastGapNs; // of each turn's last iteration: sum of the compute lane's steps, the gap
  // Of each turn's last iteration: rebuild_kv, and copies of activation and of KV blocks to the device.
  std::vector<int64_t> rebuildNs, loadActNs, loadKvNs;
  int64_t stallNs = 0;
  uint64_t h2dBytes = 0, d2hBytes = 0; // of an iteration

private:
  std::unique_ptr<plan::Plan> plan_;
  std::unique_ptr<core::Device> device_;
  Load load_;
  std::unique_ptr<core::Runtime> runtime_;
  uint32_t variant_ = 0;
  std::vector<std::vector<int32_t>> blocks_; // by mini-batch, in it by sequence
  std::vector<int32_t> tokens_;
  std::vector<core::SequenceRows> rows_;
  std::vector<absl::Span<const core::SequenceRows>> miniBatches_;
};

} // namespace headrace::bench
