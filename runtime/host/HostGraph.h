// SPDX-License-Identifier: Apache-2.0
//
// A schedule as the host's threads run it: per lane a list of steps in order, and for each step at most one number per
// other lane to wait for.
//
// Edges into a step from one lane say "after step i of that lane" for several i; the lane runs in order, so the largest
// i says it all, and if an earlier step of the own lane has waited for as much already, nothing is left to wait for.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/core/BindStep.h"
#include "runtime/core/Device.h"
#include "runtime/core/DirectBytes.h"
#include "runtime/core/GraphSteps.h"
#include "runtime/core/LaunchChecks.h"
#include "runtime/core/OwnedGraph.h"
#include "runtime/host/HostDevice.h"
#include "runtime/host/LiveRanges.h"
#include "runtime/host/Signals.h"

namespace headrace::host {

// Steps of the cpu lane are the compute lane's.
constexpr size_t hostLane(plan::Lane lane) {
  return core::laneIndex(lane == plan::Lane::Cpu ? plan::Lane::Compute : lane);
}

struct LaneStep {
  uint32_t step = 0; // in the schedule
  plan::StepKind kind = plan::StepKind::Compute;
  bool signals = false; // another lane waits for its end
  int64_t endedNs = 0;  // if so: when it ended in the launch that runs; its lane's until it has signalled
  uint8_t waitCount = 0;
  std::array<Want, kHostLanes> waits; // thresholds count from the launch's start
  kernels::HostKernel kernel;
  const void *args = nullptr;
  core::CopySides copy; // Copy
  plan::Lane lane = plan::Lane::Compute;
  core::DirectBytes direct;
  uint32_t poisonCount = 0; // ranges to fill after it, debug mode
  uint32_t firstPoison = 0;
};

struct HostGraph final : core::OwnedGraph {
  std::array<std::vector<LaneStep>, kHostLanes> lanes;
  std::vector<core::BoundStep> bound; // what LaneStep::args point into
  std::vector<core::StepTime> times;  // one a step if traced; each lane writes its own steps'
  std::vector<ByteRange> poison;      // debug mode; the first poisonBefore of them before the launch
  uint32_t poisonBefore = 0;
};

struct GraphRequest {
  const plan::Plan &plan;
  const core::BindContext &binding;
  core::Bases bases;
  bool trace = false;
  bool serial = false; // debug mode: all steps in the compute lane, in the plan's order, dead bytes poisoned
  HostOptions options;
};

// Refuses lanes that the host does not have, copies whose sides do not fit, and what BindContext refuses.
absl::StatusOr<std::unique_ptr<HostGraph>> buildGraph(const GraphRequest &request, const core::GraphKey &key);

} // namespace headrace::host
