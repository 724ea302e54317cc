// SPDX-License-Identifier: Apache-2.0
#include <random>

#include "runtime/model/ModelSpec.h"
#include "tests/unit/plan/MakePlan.h"

namespace headrace::plan::test {
namespace {

// Two sequences of 32 tokens, 5 blocks: decode in the cpu lane, prefill that brings tails.
LimitOptions decodeOnCpu(bool copiesAllRows = false) {
  LimitOptions limits;
  limits.context = 32;
  limits.attendsOnCpu = true;
  limits.copiesAllRows = copiesAllRows;
  return limits;
}
LimitOptions prefill(KeepHome keepHome) {
  LimitOptions limits;
  limits.context = 32;
  limits.iterationClass = IterationClass::Mixed;
  limits.tokens = 16;
  limits.buckets = {8, 16};
  limits.keepHome = keepHome;
  return limits;
}
PlacementOptions away(std::vector<LimitOptions> limits) {
  PlacementOptions p;
  p.name = "away";
  p.limits = std::move(limits);
  p.allBlocksAway = true;
  p.ringSlots = 2;
  return p;
}
PlanOptions interleaved(model::ModelSpec model, std::vector<PlacementOptions> placements) {
  PlanOptions options{std::move(model), std::move(placements)};
  options.switches = options.placements.size() > 1;
  options.interleaved = true;
  return options;
}

} // namespace

std::vector<NamedOptions> cpuPlans() {
  std::vector<NamedOptions> out;
  const auto add = [&](const char *name, PlanOptions options, uint32_t miniBatches = 1) {
    out.push_back({name, std::move(options)});
    if (miniBatches > 1)
      out.back() = withMiniBatches(std::move(out.back()), miniBatches);
  };
  add("decode on the cpu", interleaved(tinyLlama(3), {away({decodeOnCpu()})}));
  add("copies of one size, learned positions", interleaved(tinyOpt(3), {away({decodeOnCpu(true)})}));
  add("norms of heads", interleaved(tinyQwen3(2), {away({decodeOnCpu()})}));
  add("beside prefill, mirrored", interleaved(tinyLlama(3), {away({decodeOnCpu(), prefill(KeepHome::Mirror)})}));
  add("beside prefill, evict dirty",
      interleaved(tinyLlama(3), {away({decodeOnCpu(true), prefill(KeepHome::EvictDirty)})}));
  PlacementOptions weights = away({decodeOnCpu(), prefill(KeepHome::EvictAll)});
  weights.layers = {0, 2};
  weights.limits[0].cutUnits = 2;
  add("weights away", interleaved(tinyLlama(3), {weights}));
  add("in turns", interleaved(tinyLlama(3), {away({decodeOnCpu()})}), 2);
  add("three in turns, beside prefill", interleaved(tinyOpt(2), {away({decodeOnCpu(), prefill(KeepHome::Mirror)})}), 3);
  add("four in turns, weights away", interleaved(tinyQwen3(3), {weights}), 4);
  PlacementOptions none = weights;
  none.name = "weights here";
  none.layers = {};
  none.limits[0].cutUnits = 0;
  add("two placements", interleaved(tinyLlama(3), {weights, none}), 2);
  PlanOptions leaves = interleaved(tinyLlama(2), {away({decodeOnCpu(), prefill(KeepHome::EvictDirty)})});
  leaves.residualsLeave = true;
  leaves.placements[0].residualSlots = 2;
  add("residuals leave", std::move(leaves), 3);
  return out;
}

NamedOptions randomCpuPlan(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t n) { return random() % n; };
  const auto layers = static_cast<int64_t>(2 + below(3));
  model::ModelSpec model = below(3) == 0 ? tinyOpt(layers) : below(2) == 0 ? tinyQwen3(layers) : tinyLlama(layers);
  std::vector<LimitOptions> limits = {decodeOnCpu(below(3) == 0)};
  constexpr KeepHome kKeep[] = {KeepHome::Mirror, KeepHome::EvictAll, KeepHome::EvictDirty, KeepHome::EvictFixed};
  if (below(2) == 0)
    limits.push_back(prefill(kKeep[below(4)]));
  PlacementOptions p = away(std::move(limits));
  for (int64_t layer = 0; layer < layers; ++layer)
    if (below(3) == 0)
      p.layers.push_back(layer);
  PlanOptions options = interleaved(std::move(model), {p});
  options.residualsLeave = below(3) == 0;
  options.placements[0].residualSlots = static_cast<int>(1 + below(3));
  return withMiniBatches({"on the cpu, of " + std::to_string(seed), std::move(options)},
                         static_cast<uint32_t>(1 + below(4)));
}

} // namespace headrace::plan::test
