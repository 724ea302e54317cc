// SPDX-License-Identifier: Apache-2.0
#include "compiler/search/BucketChoices.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "runtime/base/StatusMacros.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/value/LimitedBy.h"

namespace headrace::compiler {

std::vector<PlayPoint> wholePoints(const Target &target) {
  std::vector<PlayPoint> points;
  for (const auto &[iterationClass, buckets] :
       {std::pair(plan::IterationClass::Decode, &target.decode), std::pair(plan::IterationClass::Mixed, &target.mixed)})
    for (const cost::Bucket &bucket : *buckets)
      points.push_back({.iterationClass = iterationClass, .bucket = bucket, .context = bucket.context, .whole = true});
  return points;
}

uint64_t objectiveNs(const model::Goal &goal, bool decode, uint64_t residentNs) {
  if (goal.sloFactor)
    // A little more than the product, so that a factor that was written in decimals is not missed by its rounding.
    return static_cast<uint64_t>(std::floor(*goal.sloFactor * static_cast<double>(residentNs) + 1e-3));
  const auto &time = decode ? goal.tpot : goal.ttft;
  return time ? static_cast<uint64_t>(time->count()) : 0;
}

absl::StatusOr<std::vector<Objective>> objectivesOf(Player &player, const Iterations &iterations) {
  const Target &target = iterations.target();
  const model::WeightLayout &layout = iterations.layout();
  const std::vector<PlayPoint> points = wholePoints(target);
  Candidate none = alike({}, target.choice);
  none.name = "none";
  ASSIGN_OR_RETURN(played, player.play(none, points));
  const auto firstUnit = static_cast<size_t>(layout.layerUnit(0, model::UnitRole::Qkv));
  uint64_t layerTransferNs = 0;
  for (size_t unit = firstUnit; unit < firstUnit + model::kUnitsPerLayer; ++unit)
    layerTransferNs += iterations.prices().copyNs(layout.units[unit].bytes, /*hostToDevice=*/true);
  const auto layers = static_cast<uint64_t>(iterations.request().model->layers);
  std::vector<Objective> buckets;
  for (size_t b = 0; b < points.size(); ++b) {
    Objective &of = buckets.emplace_back();
    of.bucket = points[b].bucket;
    of.decode = points[b].iterationClass == plan::IterationClass::Decode;
    of.residentNs = played[b].slowestNs;
    of.sloNs = objectiveNs(iterations.request().goal, of.decode, of.residentNs);
    of.layerComputeNs = (played[b].layersNs + layers / 2) / layers; // to the nearest
    of.layerTransferNs = layerTransferNs;
  }
  return buckets;
}

size_t decisiveOf(const std::vector<Objective> &buckets) {
  const auto rank = [](const Objective &of) { return 2 * (of.sloNs > 0) + of.decode; };
  size_t decisive = 0;
  for (size_t b = 0; b < buckets.size(); ++b)
    if (rank(buckets[b]) >= rank(buckets[decisive]))
      decisive = b;
  return decisive;
}

const plan::Variant &recordChoices(const std::vector<Objective> &buckets, const std::vector<size_t> &of,
                                   plan::Plan &plan) {
  const plan::Variant *decisive = nullptr;
  for (size_t b = 0; b < buckets.size(); ++b) {
    const cost::Bucket &bucket = buckets[b].bucket;
    const auto key = std::tuple(static_cast<uint32_t>(of[b]), bucket.tokens, bucket.sequences, bucket.context);
    // Of those for what may be in use of KV the last: any of it.
    auto at = std::prev(std::partition_point(plan.variants.begin(), plan.variants.end(), [&](const plan::Variant &v) {
      return std::tuple(v.placement, v.newTokens, v.sequences, v.context) <= key;
    }));
    const auto phaseOf = [&](const plan::Variant &v) { return plan.schedules[v.schedule].phase; };
    for (auto phase = at; phaseOf(*phase) > 0;)
      if (--phase; phase->predictedNs > at->predictedNs)
        at = phase;
    plan.choices.push_back({static_cast<uint32_t>(at - plan.variants.begin()), buckets[b].sloNs, buckets[b].residentNs,
                            buckets[b].layerComputeNs, buckets[b].layerTransferNs});
    if (b == decisiveOf(buckets))
      decisive = &*at;
  }
  std::sort(plan.choices.begin(), plan.choices.end(), [&](const plan::BucketChoice &a, const plan::BucketChoice &b) {
    const plan::Variant &x = plan.variants[a.variant], &y = plan.variants[b.variant];
    return std::tie(x.newTokens, x.sequences, x.context) < std::tie(y.newTokens, y.sequences, y.context);
  });
  plan.limitingResource = plan::limitedBy(plan, *decisive);
  return *decisive;
}

} // namespace headrace::compiler
