// SPDX-License-Identifier: Apache-2.0
//
// What a fleet run says: per request, per device, and in all.
#pragma once

#include <string>
#include <vector>

#include "runtime/serve/fleet/Fleet.h"

namespace headrace::tools {

// Iterations of one device, counted while it ran.
struct DeviceTally {
  std::string name, model;
  uint64_t iterations = 0, changes = 0;
  std::vector<uint64_t> inPlacement;   // iterations, by placement
  std::vector<std::string> placements; // their names
  int64_t busyNs = 0;                  // from launch to visible tokens
};

struct FleetReport {
  std::string device;                        // "sim", "host"
  bool coordinated = true;                   // false: everything was admitted, every device had one placement
  std::vector<serve::FleetRequest> requests; // objectives as asked for
  serve::FleetResult result;
  std::vector<DeviceTally> devices;
  std::vector<uint64_t> late; // by request: iterations with a gap above its tpot
  uint64_t held = 0;          // requests within both objectives
  uint64_t tokens = 0;
  double seconds = 0;

  // Each request in a line where `each`, else only the summary; many lines are folded unless `all`.
  std::string text(bool each, bool all) const;
  std::string json() const;
};

} // namespace headrace::tools
