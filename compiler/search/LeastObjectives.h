// SPDX-License-Identifier: Apache-2.0
//
// What would do where a bucket's objective cannot be met by what frees the most (MostFreed.h): the least time of each
// class, the least factor, and the least memory. Every one is exact: a goal with it is held, one a step below (1 ns,
// 1e-6, 1 byte) is not. Of one placement for all buckets times and factors to within a ten-thousandth.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "compiler/search/MostFreed.h"
#include "runtime/job/JobFile.h"

namespace headrace::compiler {

// The least that meets every bucket of a class: of each bucket the least, of these the most.
struct LeastOfClass {
  uint64_t ns = 0;   // 0: the class has no objective, or nothing fits
  double factor = 0; // the same as a multiple of the resident time
  bool missed = false;
  size_t bucket = 0; // that decides
  std::optional<size_t> placement;
};
// Of each class, raised to what one instance that serves both can be held to.
struct LeastByClass {
  LeastOfClass decode, mixed;
};
LeastByClass leastByClass(MostFreed &choice, const model::Goal &goal, uint64_t deviceMemory);

// The least memory in which every objective is met: of each bucket the least, of these the most; none where no memory
// would do.
std::optional<uint64_t> leastBytes(MostFreed &choice);

// What no placement goes below, whatever it takes.
struct LeastOfAll {
  uint64_t bytes = MostFreed::kAnyMemory;
  size_t placement = 0;
};
LeastOfAll leastOfAll(MostFreed &choice);

// What one placement for all buckets would need; unset: nothing would do, or the goal does not ask for it.
struct LeastTogether {
  std::optional<std::chrono::nanoseconds> tpot, ttft; // the other objective as it is
  std::optional<double> factor;
};
LeastTogether leastTogether(const MostFreed &choice, const model::Goal &goal, uint64_t deviceMemory);

} // namespace headrace::compiler
