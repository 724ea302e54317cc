// SPDX-License-Identifier: Apache-2.0
#include "compiler/search/Limits.h"

#include <algorithm>
#include <cmath>

namespace headrace::compiler {
namespace {

// Of buckets by (tokens, sequences, context) the first and the last, and between them those with the shortest and the
// longest context.
std::vector<cost::Bucket> corners(const std::vector<cost::Bucket> &buckets) {
  std::vector<cost::Bucket> found;
  const auto keep = [&](const cost::Bucket &bucket) {
    if (std::find(found.begin(), found.end(), bucket) == found.end())
      found.push_back(bucket);
  };
  if (buckets.empty())
    return found;
  const auto same = [](const cost::Bucket &a, const cost::Bucket &b) {
    return a.tokens == b.tokens && a.sequences == b.sequences;
  };
  for (const cost::Bucket &end : {buckets.front(), buckets.back()})
    for (const cost::Bucket &bucket : buckets)
      if (same(bucket, end) && (bucket == buckets.front() || bucket == buckets.back() ||
                                bucket.context == buckets.front().context || bucket.context == buckets.back().context))
        keep(bucket);
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
    for (const cost::Bucket &bucket : corners(target.decode))
      limits.push_back(limitOf(plan::IterationClass::Decode, bucket));
    for (const cost::Bucket &bucket : corners(target.mixed))
      limits.push_back(limitOf(plan::IterationClass::Mixed, bucket));
    return limits;
  }
  if (goal.tpot)
    limits.push_back(limitOf(plan::IterationClass::Decode, target.decode.back()));
  if (goal.ttft && !target.mixed.empty())
    limits.push_back({.points = promptPoints(goal.promptLength(target.context), target), .decode = false});
  return limits;
}

uint64_t limitNs(const model::Goal &goal, const Limit &limit) {
  if (goal.sloFactor) // a little more than the product, so that a factor written in decimals is not missed by rounding
    return static_cast<uint64_t>(std::floor(*goal.sloFactor * static_cast<double>(limit.residentNs) + 1e-3));
  const auto &time = limit.decode ? goal.tpot : goal.ttft;
  return time ? static_cast<uint64_t>(time->count()) : 0;
}

} // namespace headrace::compiler
