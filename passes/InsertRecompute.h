// SPDX-License-Identifier: Apache-2.0
//
// What the pass of that name does, for who looks at an iteration before the pipeline runs.
#pragma once

#include <cstdint>

#include "ir/Headrace.h"

namespace headrace::passes {

// Of the steps that the pass inserts, of one layer and mini-batch.
struct RecomputeAmounts {
  uint64_t recomputedBytes = 0;        // keys and values of its activation blocks, as a cache has them
  uint64_t workspaceBytes = 0;         // of recompute_kv
  uint64_t flops = 0, deviceBytes = 0; // of recompute_kv
  uint64_t keepDeviceBytes = 0;        // of act_append
};

// Each layer and mini-batch that has activation blocks (`act`) keeps the rows of its first norm there, and recomputes
// the keys and values of earlier ones from them before its first step; what appends to its cache, and attention, take
// these behind the cache. Fails, with a diagnostic, where a layer's steps are not those of lowering.
mlir::LogicalResult insertRecompute(ir::IterationOp iteration, const RecomputeAmounts &amounts);

} // namespace headrace::passes
