// SPDX-License-Identifier: Apache-2.0
//
// What stages of a model take together to decode, by what each one's plan predicts. As many micro-batches as stages,
// and no more than sequences, each with its part of the batch. A token of all of them takes as long as the longest of
//
//   the stages     micro-batches x the longest stage's iteration of a part: each has one launch at a time
//   one part       its way through all stages
//   the CPU        micro-batches x what all stages' cpu lanes have to do: they share one CPU (CpuPool.h)
//   host memory    micro-batches x what all stages' copies and cpu lanes take of it
//
//   stages of 5, 5 ms, two micro-batches: 10 ms        with 3 ms of attention on the CPU in each: 12 ms
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::sim {

enum class StagesLimit : uint8_t { LongestStage, OnePart, Cpu, HostMemory };

struct StagedDecode {
  int64_t microBatches = 1;
  int64_t sequences = 0; // of all
  uint64_t tokenNs = 0;  // of all micro-batches; 0: a stage has no iteration that decodes
  StagesLimit limit = StagesLimit::LongestStage;
  double tokensPerSecond() const {
    return tokenNs > 0 ? static_cast<double>(sequences) * 1e9 / static_cast<double>(tokenNs) : 0;
  }
};

// The largest bucket that decodes, of placement 0; null: there is none.
const plan::Variant *largestDecode(const plan::Plan &plan);
// Of placement 0 and the largest context.
StagedDecode predictDecode(absl::Span<const plan::Plan *const> stages);

} // namespace headrace::sim
