// SPDX-License-Identifier: Apache-2.0
//
// The rows of an iteration over mini-batches anew, as HybridServe's greedy packs them (runtime/cost/PackMiniBatches.h).
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/IterationMeta.h"
#include "runtime/cost/PackMiniBatches.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::bench {

// Of one sequence.
struct RowsOf {
  int64_t before = 0, rows = 0; // tokens in the cache; rows of this iteration
  bool samples = false;
  int64_t kv = 0, act = 0; // blocks that hold the tokens in the cache
};
using Grouping = std::vector<std::vector<RowsOf>>; // by mini-batch

class SpreadRows {
public:
  explicit SpreadRows(const plan::Plan &plan);

  struct Chosen {
    Grouping groups;
    uint32_t variant = 0;
  };
  // Of `groups` as they are and of what the greedy makes of them with buffers of several sizes: the one whose variant
  // computes the least, of these the one whose largest mini-batch loads the least.
  absl::StatusOr<Chosen> choose(const Grouping &groups) const;

  // Tables of the lowest blocks there are.
  absl::Status writeTo(const Grouping &groups, kernels::IterationMeta *meta) const;

private:
  struct Rated {
    Chosen chosen;
    uint64_t computeNs = 0, loaded = 0;
  };
  bool rate(Grouping groups, Rated &out) const; // false: no variant holds them

  const plan::Plan &plan_;
  const uint64_t kvBytes_, actBytes_; // of a block
  cost::HybridTimes times_;
};

} // namespace headrace::bench
