// SPDX-License-Identifier: Apache-2.0
//
// The variants of a plan by placement and entry configuration, each list by predicted time: the first that holds a
// shape is the cheapest there. Made when a plan is loaded; choosing looks at one placement only and allocates nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/core/TransitionPaths.h"
#include "runtime/plan/Plan.h"

namespace headrace::core {

class VariantTable {
public:
  VariantTable() = default;
  // `built[i]`: variant i may be chosen.
  VariantTable(const plan::Plan &plan, const TransitionPaths &paths, const std::vector<bool> &built);

  struct Shape {
    int64_t tokens = 0, sequences = 0, context = 0;
  };
  // The variant of the placement that holds the shape and takes the least time, the path to it included; of several the
  // first in the plan. kNone if none holds it or can be reached.
  uint32_t cheapest(uint32_t placement, const Shape &shape, const TransitionPaths &paths,
                    TransitionPaths::Config now) const;
  // The largest buckets of a placement, each for itself.
  Shape largest(uint32_t placement) const { return placements_[placement].largest; }

private:
  struct Item {
    Shape bucket;
    uint64_t ns;
    uint32_t variant;
    bool oneRowEach; // decode: as many tokens as sequences
  };
  struct Group { // of one entry configuration
    TransitionPaths::Config entry;
    std::vector<Item> items; // ascending by (ns, variant)
  };
  struct OfPlacement {
    std::vector<Group> groups;
    Shape largest;
  };
  std::vector<OfPlacement> placements_;
};

} // namespace headrace::core
