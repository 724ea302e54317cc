// SPDX-License-Identifier: Apache-2.0
//
// Where the bytes of an extent or an operand lie: one run, or a run a block where it is interleaved (Plan::kvStride()).
// An interleaved one begins with a whole block. For plans without a structure fault.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "runtime/plan/value/Plan.h"

namespace headrace::plan {

// KV blocks that may be in use while a schedule runs: those below this number.
inline int64_t kvBlocksOf(const Plan &plan, const Schedule &schedule) {
  return schedule.kvBlocks > 0 ? schedule.kvBlocks : plan.placements[schedule.placement].kvBlocks;
}

// f(address, bytes) for each run, in the order of the addresses. `Bytes` is Extent or Operand.
template <typename Bytes, typename F> void forEachRun(const Plan &plan, const Bytes &of, F f) {
  const uint64_t run = of.interleaved ? plan.kvBlockBytes() : of.bytes, stride = of.interleaved ? plan.kvStride() : 0;
  for (uint64_t address = of.address, left = of.bytes; left > 0; address += stride) {
    const uint64_t bytes = std::min(run, left);
    f(address, bytes);
    left -= bytes;
  }
}

// From its first byte to its last, others' blocks between its own included; saturates.
template <typename Bytes> uint64_t spannedBytes(const Plan &plan, const Bytes &of) {
  const uint64_t run = plan.kvBlockBytes();
  if (!of.interleaved || of.bytes <= run)
    return of.bytes;
  const uint64_t before = (of.bytes - 1) / run; // runs but for the last
  uint64_t bytes = 0;
  return __builtin_mul_overflow(before, plan.kvStride(), &bytes) ||
                 __builtin_add_overflow(bytes, of.bytes - before * run, &bytes)
             ? std::numeric_limits<uint64_t>::max()
             : bytes;
}

// The address behind its last byte.
template <typename Bytes> uint64_t addressEnd(const Plan &plan, const Bytes &of) {
  return of.address + spannedBytes(plan, of);
}

// Of the byte at `offset` from its first; below its bytes, and of an interleaved one where a block begins.
template <typename Bytes> uint64_t addressAt(const Plan &plan, const Bytes &of, uint64_t offset) {
  return of.address + (of.interleaved ? offset / plan.kvBlockBytes() * plan.kvStride() : offset);
}

} // namespace headrace::plan
