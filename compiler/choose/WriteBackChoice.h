// SPDX-License-Identifier: Apache-2.0
//
// How the rows of a class of iterations get home that are appended to tails of caches (algorithms::WriteBack): by what
// the iterations take.
//
//   bucket            4 at 1024   4 at 4096   worst ratio to the best
//   mirror            10 ms       11 ms       1.00
//   written back      12 ms       11 ms       1.20       so the class mirrors
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "passes/algorithms/Residency.h"
#include "runtime/plan/Plan.h"

namespace headrace::compiler {

// What the iterations of a class take in a plan's first placement with all of KV in use, by bucket: as predicted; of a
// cycle the slowest.
std::vector<uint64_t> iterationTimes(const plan::Plan &plan, plan::IterationClass iterationClass);

// Of so many ways, each with a time for every bucket, the one with the least worst ratio to the best of them, then with
// the least sum; the first among equals. 0 where there are no buckets.
size_t fastestOf(absl::Span<const std::vector<uint64_t>> ways);

// What a class does, and what its largest bucket takes one way and the other.
struct WriteBackReason {
  plan::IterationClass iterationClass = plan::IterationClass::Decode;
  algorithms::WriteBack chosen = algorithms::WriteBack::Mirror;
  uint64_t mirroredNs = 0, writtenBackNs = 0; // 0: that way was not tried, or fits nothing
};
// "Rows of KV on the host: decode mirrors: 41.200 ms against 44.000 ms written back; prefill writes back ...".
std::string explainWriteBack(absl::Span<const WriteBackReason> reasons);

} // namespace headrace::compiler
