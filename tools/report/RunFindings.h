// SPDX-License-Identifier: Apache-2.0
//
// What a run found out about itself: what limits its iterations, which copies compute waited for, and why it took
// another time than was predicted.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "runtime/plan/value/Plan.h"
#include "tools/timeline/Timeline.h"
#include "tools/timeline/Trace.h"

namespace headrace::tools {

// What the lanes of one iteration take.
struct LaneTimes {
  uint64_t computeNs = 0;
  uint64_t h2dNs = 0, d2hNs = 0;
  uint64_t cpuNs = 0; // beside a device
  uint64_t linkNs() const { return h2dNs > d2hNs ? h2dNs : d2hNs; }
  // "link h2d", "link d2h", "cpu" or "compute": what is busy longest.
  const char *limit() const;
};

// Iterations of one phase ("decode", "prefill"), as RunReport compares them.
struct PhaseInput {
  std::string name;
  double predictedMs = 0, measuredMs = 0; // mean of its iterations
  uint32_t variant = plan::kNone;         // that ran most often; kNone: no iteration
  Trace looked;                           // an iteration that was looked at; no steps: none was
};

struct PhaseFinding {
  std::string name;
  LaneTimes predicted; // of `variant`, with as much of KV in use as where it was looked at
  std::string why;     // it took over 1.3 x the predicted time, or less than 1 / 1.3 of it; else empty
};

// The copies that compute waited for in one iteration, the longest wait first.
struct CopyWaits {
  struct One {
    std::string copy; // "L3 qkv"
    uint64_t ns = 0;
  };
  std::vector<One> waits;
  std::string about; // the iteration
  uint64_t totalNs = 0;
};

struct RunFindings {
  std::vector<PhaseFinding> phases;
  CopyWaits waits; // of the first phase that was looked at
};

inline constexpr double kNear = 1.3; // predicted and measured differ by more: there is a reason to give

// `linkBandwidth` as DeviceOptions has it; `virtualTime`: no machine is behind the times.
RunFindings findOut(const plan::Plan &plan, const std::vector<PhaseInput> &phases, double linkBandwidth,
                    bool virtualTime);
CopyWaits copyWaits(const Track &track);

std::string findingsText(const RunFindings &findings); // lines of the run's report
void addFindings(const RunFindings &findings, nlohmann::ordered_json &json);

} // namespace headrace::tools
