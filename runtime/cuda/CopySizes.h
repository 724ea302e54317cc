// SPDX-License-Identifier: Apache-2.0
//
// The parts of a graph's copies that are made: where they start, and how large they are. An executable graph keeps what
// its nodes were last set to, and a launch what they were when it was made, so before a launch only those are set that
// the graph's launch before had otherwise.
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
  // Makes the parts those of a launch: set(node of the plan, its copy, run) for each that changes. What it refuses is
  // tried again by the next call.
  template <typename Set> absl::Status set(const core::LaunchInUse &inUse, Set set) {
    for (Sized &sized : copies_) {
      const core::Shares shares = core::sharesInUse(*sized.copy.sized, inUse);
      if (shares == sized.shares)
        continue;
      const core::CopyRun run = core::runOf(*sized.copy.sized, shares);
      RETURN_IF_ERROR(set(sized.node, sized.copy, run));
      uint64_t &moved = sized.copy.toDevice ? bytes_.h2d : bytes_.d2h;
      moved += run.bytes - core::runOf(*sized.copy.sized, sized.shares).bytes;
      sized.shares = shares;
    }
    return absl::OkStatus();
  }
  // Of all copies of a launch with the sizes last set.
  const plan::LinkBytes &bytes() const { return bytes_; }

private:
  struct Sized {
    uint32_t node = 0; // in the plan
    core::CopySides copy;
    core::Shares shares; // last set
  };
  std::vector<Sized> copies_; // resizable ones
  plan::LinkBytes bytes_;
};

} // namespace headrace::cuda
