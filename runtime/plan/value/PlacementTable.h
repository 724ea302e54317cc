// SPDX-License-Identifier: Apache-2.0
//
// Which placement of a plan to run an iteration in: the one that frees the most device memory while the iteration is
// predicted to meet a latency objective. The compiler's own choice for the plan's goal is Plan::choices; this answers
// for any objective, at run time, without allocating.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/plan/value/Plan.h"

namespace headrace::plan {

// Device memory that a placement gives back: bytes of weights and of KV caches whose home is elsewhere less the bytes
// of its slots. Negative where the slots are larger.
int64_t freedBytes(const Plan &plan, uint32_t placement);

// An iteration's size, as buckets count it.
struct IterationSize {
  int64_t tokens = 1, sequences = 1, context = 1;
  // Decode: each sequence that runs brings one new row.
  bool oneRowEach = tokens == sequences;
};

// The placement that the compiler chose for an iteration of this size (Plan::choices): of the smallest bucket of the
// iteration's class that holds it; of the class' largest where none does. None where nothing was chosen by latency, or
// only for the other class. Allocates nothing.
std::optional<uint32_t> chosenPlacement(const Plan &plan, const IterationSize &size);

// What is held against an objective: what the slowest of iterations that are predicted to take `ns` do
// (Plan::slowestPermille), rounded up; at most 2^62.
uint64_t slowestNs(uint64_t ns, uint32_t permille);
// The most that may be predicted of iterations whose slowest are to be within an objective.
uint64_t predictedWithin(uint64_t sloNs, uint32_t permille);
// Of the plan, in this placement: one that has everything on the device has nothing to be late with, and takes what is
// predicted.
uint32_t slowestPermille(const Plan &plan, uint32_t placement);

// The plan must outlive the table.
class PlacementTable {
public:
  explicit PlacementTable(const Plan &plan);

  // Placements by freed bytes, the most first; of equals the lower number.
  const std::vector<uint32_t> &byFreed() const { return byFreed_; }
  int64_t freed(uint32_t placement) const { return freed_[placement]; }

  // The fastest variant of a placement whose bucket holds the size; none if no bucket does. Of a cycle the bucket's
  // first phase, and it takes what the slowest of its phases does.
  std::optional<uint32_t> variantIn(uint32_t placement, const IterationSize &size) const;
  // The variant to run: of the placement that frees the most among those whose variant for this size takes at most
  // sloNs in its slowest iterations (0: no objective, so the one that frees the most). None if no placement meets it.
  std::optional<uint32_t> choose(const IterationSize &size, uint64_t sloNs) const;
  // The least objective that choose() meets for this size; none if no bucket holds it.
  std::optional<uint64_t> leastNs(const IterationSize &size) const;

private:
  uint64_t slowest(uint32_t variant) const;

  const Plan &plan_;
  std::vector<uint64_t> predictedNs_; // of each variant; in a cycle the most of its bucket's phases
  std::vector<int64_t> freed_;
  std::vector<uint32_t> permille_; // of each placement: slowestPermille()
  std::vector<uint32_t> byFreed_;
  std::vector<uint32_t> first_; // of each placement its first variant, and one past the last
};

} // namespace headrace::plan
