// SPDX-License-Identifier: Apache-2.0
#include "compiler/search/Limits.h"

#include <algorithm>
#include <cmath>

namespace headrace::compiler {
namespace {

// Of the fewest tokens and of the most, with the fewest and the most sequences, at every context.
std::vector<cost::Bucket> ends(const std::vector<cost::Bucket> &buckets) {
  std::vector<cost::Bucket> found;
  for (const cost::Bucket &bucket : buckets)
    if (bucket.tokens == buckets.front().tokens || bucket.tokens == buckets.back().tokens)
      found.push_back(bucket);
  return found;
}

} // namespace

Limit limitOf(plan::IterationClass iterationClass, const cost::Bucket &bucket) {
  return {.points = {{{iterationClass, bucket, bucket.context}, 1}},
          .decode = iterationClass == plan::IterationClass::Decode};
}

std::vector<Limit> limitsOf(const model::Goal &goal, const Target &target) {
  std::vector<Limit> limits;
  if (goal.sloFactor) {
    for (const cost::Bucket &bucket : target.decode)
      limits.push_back(limitOf(plan::IterationClass::Decode, bucket));
    for (const cost::Bucket &bucket : ends(target.mixed))
      limits.push_back(limitOf(plan::IterationClass::Mixed, bucket));
    return limits;
  }
  if (goal.tpot)
    limits.push_back(limitOf(plan::IterationClass::Decode, target.decode.back()));
  if (goal.ttft && !target.mixed.empty())
    limits.push_back({.points = promptPoints(goal.promptLength(target.context), target), .decode = false});
  return limits;
}

std::vector<PlayPoint> beforeDecode(const model::Goal &goal, const Target &target) {
  std::vector<PlayPoint> points;
  if ((!goal.tpot && !goal.sloFactor) || goal.instances == model::Instances::Apart || target.mixed.empty())
    return points;
  for (const cost::Bucket &bucket : {target.mixed.front(), target.mixed.back()})
    points.push_back({plan::IterationClass::Mixed, bucket, bucket.context});
  return points;
}

uint64_t limitNs(const model::Goal &goal, const Limit &limit) {
  if (goal.sloFactor) // a little more than the product, so that a factor written in decimals is not missed by rounding
    return static_cast<uint64_t>(std::floor(*goal.sloFactor * static_cast<double>(limit.residentNs) + 1e-3));
  const auto &time = limit.decode ? goal.tpot : goal.ttft;
  return time ? static_cast<uint64_t>(time->count()) : 0;
}

} // namespace headrace::compiler
