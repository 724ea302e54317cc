// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/RotationOf.h"

namespace headrace::algorithms {
namespace {

constexpr int64_t kIterations = 128; // to look for a cycle in

} // namespace

KvSwapProblem kvSwapProblem(const Residency &residency, int64_t tails) {
  const SwapVisits visits = residency.kv().fifo().value_or(SwapVisits());
  return {static_cast<int32_t>(tails),
          static_cast<int32_t>(residency.kv().places()),
          {1, visits.in, visits.out},
          /*endsWithIteration=*/true};
}

std::optional<Rotation> rotationOf(const Residency &residency, int64_t tails) {
  if (!residency.kv().fifo())
    return rotatePlaces(tails, residency.kv().places());
  const KvSwapProblem problem = kvSwapProblem(residency, tails);
  const std::optional<KvSwapCycle> cycle = kvSwapCycle(problem, kIterations);
  return cycle ? std::optional(kvSwapRotation(problem, *cycle)) : std::nullopt;
}

std::optional<uint64_t> rotationPeriodOf(const Residency &residency, int64_t tails) {
  if (!residency.kv().fifo())
    return rotationPeriod(tails, residency.kv().places());
  const std::optional<KvSwapCycle> cycle = kvSwapCycle(kvSwapProblem(residency, tails), kIterations);
  return cycle ? std::optional(static_cast<uint64_t>(cycle->period)) : std::nullopt;
}

} // namespace headrace::algorithms
