// SPDX-License-Identifier: Apache-2.0
//
// The sizes of a graph's copies. An executable graph keeps what its nodes were last set to, and a launch what they were
// when it was made, so before a launch only those are set that the graph's launch before had otherwise.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/core/InUse.h"
#include "runtime/cuda/GraphPlan.h"

namespace headrace::cuda {

class CopySizes {
public:
  CopySizes() = default;
  explicit CopySizes(const GraphPlan &plan); // all of each copy, as its node is built

  bool change() const { return !copies_.empty(); }
  // Makes the sizes those of a launch: set(node of the plan, its copy, bytes) for each that changes. What it refuses is
  // tried again by the next call.
  template <typename Set> absl::Status set(const core::InUse &inUse, Set set) {
    for (Sized &sized : copies_) {
      const uint32_t share = core::shareInUse(*sized.copy.sized, inUse);
      if (share == sized.share)
        continue;
      const uint64_t bytes = core::shareBytes(*sized.copy.sized, share);
      RETURN_IF_ERROR(set(sized.node, sized.copy, bytes));
      uint64_t &moved = sized.copy.toDevice ? bytes_.h2d : bytes_.d2h;
      moved += bytes - core::shareBytes(*sized.copy.sized, sized.share);
      sized.share = share;
    }
    return absl::OkStatus();
  }
  // Of all copies of a launch with the sizes last set.
  const plan::LinkBytes &bytes() const { return bytes_; }

private:
  struct Sized {
    uint32_t node = 0; // in the plan
    core::CopySides copy;
    uint32_t share = core::kShares; // last set
  };
  std::vector<Sized> copies_; // resizable ones
  plan::LinkBytes bytes_;
};

} // namespace headrace::cuda
