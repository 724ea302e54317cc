// SPDX-License-Identifier: Apache-2.0
//
// The structure of a plan: what must hold before anything may index, multiply or add with its numbers. Both the reader
// and the verifier ask for it first; all other checks rely on it.
#pragma once

#include <optional>
#include <string>

#include "runtime/base/Names.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::plan {

// Bounds on counts and amounts, wide of any machine, so that sums and products of a few stay inside 64 bits.
inline constexpr uint64_t kMaxBytes = uint64_t{1} << 53; // of a buffer, an address, a step's amounts
inline constexpr uint32_t kMaxBuffers = 1u << 18;
inline constexpr uint64_t kMaxSteps = uint64_t{1} << 20;      // of a schedule; also edges / 4, operands / 16
inline constexpr uint64_t kMaxSchedules = uint64_t{1} << 14;  // also placements, states, variants, transitions
inline constexpr uint64_t kMaxDurationNs = uint64_t{1} << 43; // 2.4 hours
inline constexpr uint64_t kMaxMetaBytes = uint64_t{1} << 32;  // offsets in IterationMeta have 32 bits
inline constexpr size_t kLongestText = 16384;                 // of the reason and of paths

struct StructureFault {
  uint32_t schedule = kNone;
  uint32_t step = kNone;
  std::string message; // names the field, its value and what was expected
};

// The first fault in a fixed order, or none. After none: every index is in range, every range of bytes lies in its
// buffer and ends below kMaxBytes + kMaxBytes, extents tile every buffer (of a cache that is split the blocks of its
// placement), a residual has one home for all placements, states, variants, edges and extents are sorted, each phase of
// a cycle is there once, copies have a source and a destination, durations have one entry a step, text can be printed,
// the model is valid.
std::optional<StructureFault> findStructureFault(const Plan &plan);

} // namespace headrace::plan
