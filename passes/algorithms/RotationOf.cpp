// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/RotationOf.h"

namespace headrace::algorithms {
namespace {

constexpr int64_t kIterations = 128; // to look for a cycle in

} // namespace

KvSwapProblem kvSwapProblem(const Residency &residency, int64_t tails) {
  const SwapVisits visits = residency.kvFifo.value_or(SwapVisits());
  return {static_cast<int32_t>(tails),
          static_cast<int32_t>(residency.kvPlaces),
          {1, visits.in, visits.out},
          /*endsWithIteration=*/true};
}

std::optional<Rotation> rotationOf(const Residency &residency, int64_t tails) {
  if (!residency.kvFifo)
    return rotatePlaces(tails, residency.kvPlaces);
  const KvSwapProblem problem = kvSwapProblem(residency, tails);
  const std::optional<KvSwapCycle> cycle = kvSwapCycle(problem, kIterations);
  return cycle ? std::optional(kvSwapRotation(problem, *cycle)) : std::nullopt;
}

std::optional<uint64_t> rotationPeriodOf(const Residency &residency, int64_t tails) {
  if (!residency.kvFifo)
    return rotationPeriod(tails, residency.kvPlaces);
  const std::optional<KvSwapCycle> cycle = kvSwapCycle(kvSwapProblem(residency, tails), kIterations);
  return cycle ? std::optional(static_cast<uint64_t>(cycle->period)) : std::nullopt;
}

} // namespace headrace::algorithms
