// SPDX-License-Identifier: Apache-2.0
//
// What the steps of some iterations of a run took. A device keeps the times of its last launch once that has ended, so
// a look waits for it before the next is launched; what the wait adds to the next iteration's time is taken off again.
//
//   launch 4   look (4 has ended)   launch 5   ...   end: look
//              '--- before placementOf() of 5        '--- the last is looked at in any case
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/core/Runtime.h"
#include "runtime/serve/engine/BatchEngine.h"
#include "runtime/sim/RowPrices.h"
#include "tools/report/RanLaunch.h"

namespace headrace::tools {

// Which of `count` iterations are looked at: all of them up to kLooks, then every second, every fourth, ...
class LookStride {
public:
  static constexpr uint64_t kLooks = 32; // kept at most
  bool wants(uint64_t iteration) const { return iteration % stride_ == 0; }
  // That one more is kept. True: those that wants() refuses now are to be dropped.
  bool keeps(size_t kept) {
    if (kept <= kLooks)
      return false;
    stride_ *= 2;
    return true;
  }

private:
  uint64_t stride_ = 1;
};

struct Look {
  uint64_t iteration = 0; // of the run, from 1
  uint32_t variant = plan::kNone;
  std::vector<core::StepTime> times; // a step
  RanLaunch ran;
};

// Iterations that are taken together: whatever their variants were made for.
enum class IterationPhase : uint8_t { Any, Prefill, Decode }; // Prefill: with rows of prompts

// The times of iterations by variant, and which of them stands for the others.
class IterationTimes {
public:
  void add(uint32_t variant, int64_t ns, bool prefill); // the next iteration
  uint64_t count() const { return order_.size(); }
  uint32_t variantOf(uint64_t iteration) const { return order_[iteration - 1].variant; }

  // The variant that ran most often in this phase, of several the first that ran; kNone: none.
  uint32_t mostOften(IterationPhase phase) const;

  struct Representative {
    const Look *look = nullptr; // null: none was looked at
    std::string about;          // "iteration 5 of 8, the median of 7 of its variant"
  };
  // Of mostOften(), the look nearest to its median time; where none of it was looked at, the last look at any of the
  // phase.
  Representative representative(const std::vector<Look> &looks, IterationPhase phase) const;

private:
  struct One {
    uint32_t variant;
    int64_t ns;
    bool prefill;
    bool isOf(IterationPhase phase) const {
      return phase == IterationPhase::Any || prefill == (phase == IterationPhase::Prefill);
    }
  };
  std::vector<One> order_;
};

class IterationLooks {
public:
  // With `many` up to LookStride::kLooks, evenly spread; else one where prompts end and one at the run's end. The
  // device must have been opened with DeviceOptions::trace. Without it nothing is looked at (`opened` false).
  // `rows`: an iteration takes what runs of its bucket (a real device, or core::Pricing::Rows).
  IterationLooks(core::Runtime &runtime, bool opened, bool many, bool rows)
      : runtime_(runtime), opened_(opened), many_(many), rows_(rows) {}

  void beforeLaunch(const serve::ComposedIteration &next);
  // Call it behind each launch, with the iteration's buffers (EngineOptions::onLaunch).
  void launched(uint32_t variant, const kernels::IterationMeta &first);
  // An iteration's time to visible tokens and the gap before them, as if nobody had looked. Call it for each, in their
  // order.
  serve::IterationSeen unwatched(serve::IterationSeen seen);
  // When all launches have ended: what went wrong with a look, if something did.
  absl::Status finish();

  core::Runtime &runtime() const { return runtime_; }
  const std::vector<Look> &looks() const { return looks_; }
  const std::vector<RanLaunch> &ran() const { return ran_; } // iterations in their order
  const IterationTimes &times() const { return times_; }
  // What looks waited for copies in place of compute: no stall of the device's count, but one without looks.
  int64_t hiddenStallNs() const { return hiddenStallNs_; }

private:
  void look();

  core::Runtime &runtime_;
  const bool opened_, many_, rows_;
  std::map<uint32_t, sim::RowCounter> counters_; // by schedule
  std::vector<RanLaunch> ran_;
  LookStride stride_;
  std::vector<Look> looks_;
  IterationTimes times_;
  bool promptsLast_ = false; // the last launch had rows of prompts
  absl::Status status_;
  struct Wait { // of a look at this iteration
    uint64_t iteration = 0;
    int64_t fromNs = 0, toNs = 0;
  };
  std::array<Wait, 4> waits_; // of the last looks, by iteration: at most two iterations are in flight
  int64_t visibleNs_ = 0;     // the last tokens read
  int64_t hiddenStallNs_ = 0;
};

} // namespace headrace::tools
