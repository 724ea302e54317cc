// SPDX-License-Identifier: Apache-2.0
//
// Devices that compute a bucket's rows whatever is in it (CUDA: matrix products of the bucket's shape) take as long for
// a prompt of 1,025 tokens as for one of 2,048. Where it is cheaper by the plan's prices an iteration with prompts is
// cut to the bucket below, and the rest comes with the next one:
//
//   1,025 rows     bucket of 2,048: 80 ms      or      bucket of 1,024: 42 ms, then 1 row beside those that decode: 10
//   ms
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/plan/value/PlacementTable.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::serve {

class PaddedRows {
public:
  // Of a plan for a device that computes rows as they come: nothing is cut.
  explicit PaddedRows(const plan::Plan &plan);

  // The tokens that an iteration of this size, with rows of prompts, is to have in a placement: all, or those of the
  // bucket below. Allocates nothing.
  int64_t cut(uint32_t placement, const plan::IterationSize &size) const;

private:
  struct Bucket {
    int64_t tokens = 0, sequences = 0, context = 0;
    bool mixed = false; // takes rows of prompts
    uint64_t ns = 0;
  };
  struct Placement {
    std::vector<Bucket> buckets; // the cheapest first; none where nothing is cut
    std::vector<int64_t> tokens; // of those that take prompts, ascending
  };
  static uint64_t priceOf(const Placement &placement, const plan::IterationSize &size); // kNoBucket: none holds it

  static constexpr uint64_t kNoBucket = ~uint64_t{0};
  std::vector<Placement> placements_;
};

} // namespace headrace::serve
