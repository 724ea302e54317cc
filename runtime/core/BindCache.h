// SPDX-License-Identifier: Apache-2.0
//
// From the operands of a layer's cache to what append and attention know of it: where its blocks lie on the device, and
// where appended rows are written as well.
//
//   not split   Kv        all blocks, one behind the other; the buffer may be a little larger
//   split       Kv        blocks [0, r); absent where r = 0
//               KvTail    blocks [r, e) in a slot, one behind the other
//               KvHome    append: blocks [m, e) in host memory, one behind the other; only [m, r) where copies write
//               the
//                         tail back. m <= r; 0 only where some placement has no block on the device
//
//   beside      KvRebuilt  the plan's activation blocks, rebuilt, one behind the other
//
// e is the schedule's kvBlocks: what may be in use. Offsets in a cache buffer are block numbers x Plan::kvBlockBytes().
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/KvSegments.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::core {

struct CacheOperands {
  const plan::Operand *kv = nullptr, *tail = nullptr, *home = nullptr, *rebuilt = nullptr; // null: none
};
struct BoundCache {
  uint64_t address = 0; // on the device: of the run that lies lower
  kernels::KvSegments segments;
  int64_t homeFirst = 0, homeEnd = 0, homeStride = 0; // with a home: as in RopeAppendArgs
};

// InvalidArgument, without saying in which step: operands that do not fit each other or the schedule. There is a kv or
// a tail.
absl::StatusOr<BoundCache> bindCache(const plan::Plan &plan, const plan::Schedule &schedule,
                                     const CacheOperands &operands);

} // namespace headrace::core
