// SPDX-License-Identifier: Apache-2.0
//
// What the graphs of all devices have in common: which device built it, for which plan, and whether it may be launched.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/core/Device.h"
#include "runtime/core/LaunchChecks.h"

namespace headrace::core {

struct OwnedGraph : Graph {
  const Device *owner = nullptr; // the device that built it,
  uint64_t opening = 0;          // and which of its open() calls it belongs to
  bool transition = false;
  bool uploaded = false;
  Bucket bucket; // a variant's
};

// InvalidArgument: built by another device or for another plan. `device` begins the message.
absl::Status notOwned(std::string_view device);
// FailedPrecondition where it is not.
absl::Status checkUploaded(std::string_view device, const OwnedGraph &graph);

// The graph as what `owner` builds, an OwnedGraph, if it is one of its open() call number `opening`; else notOwned().
template <typename Built>
absl::StatusOr<Built *> owned(std::string_view device, Graph &graph, const Device &owner, uint64_t opening) {
  auto *const built = dynamic_cast<Built *>(&graph);
  if (built == nullptr || built->owner != &owner || built->opening != opening)
    return notOwned(device);
  return built;
}

} // namespace headrace::core
