// SPDX-License-Identifier: Apache-2.0
//
// One plan for a round of cells: a placement for each interval, a variant for each cell in each of them and no others,
// so that weights are loaded and graphs built once, and a change of placement is one of the plan's transitions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/figures/Cells.h"
#include "runtime/job/Hardware.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::bench {

struct RoundRequest {
  model::ModelSpec spec;
  model::Hardware hardware;
  uint64_t deviceMemory = 0;
  std::vector<Cell> cells;        // of at least one sequence each
  std::vector<int64_t> intervals; // ascending or not; 0: everything resident
  bool cellsAtOnce = false;       // caches for the sequences of all cells together, not of the largest one
  // This share of the KV blocks is at home on the device, the rest on the host, copied home behind each layer;
  // then there is one interval. 1: caches are whole.
  double kvOnDevice = 1;
  std::string policy; // of a cache that is split: this one places weights and caches, not the interval
  model::KvWriteBack kvWriteBack = model::KvWriteBack::All; // of rows that are appended to those on the host
};
// Placement i is intervals[i]'s.
absl::StatusOr<plan::Plan> planRound(const RoundRequest &request);

// The profile of the GPU of that name, as the driver spells it: "h100", "h200"; the latter for others.
std::string profileOf(const std::string &device);

} // namespace headrace::bench
