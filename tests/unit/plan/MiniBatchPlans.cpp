// SPDX-License-Identifier: Apache-2.0
#include <numeric>
#include <random>

#include "runtime/model/ModelSpec.h"
#include "tests/unit/plan/MakePlan.h"

namespace headrace::plan::test {

NamedOptions withMiniBatches(NamedOptions named, uint32_t count) {
  named.name = std::to_string(count) + " mini-batches, " + named.name;
  named.options.miniBatches = count;
  const int64_t caches = named.options.model.layers * count;
  for (PlacementOptions &p : named.options.placements) {
    if (p.ringSlots >= named.options.model.layers) { // a slot for each, and what stays there stays
      p.ringSlots *= static_cast<int>(count);
      p.carriedTails *= static_cast<int>(count);
      p.dirtyTails *= static_cast<int>(count);
    }
    if (p.period > 1) // around the ring with as many more
      p.period = static_cast<uint32_t>(p.ringSlots / std::gcd<int64_t>(p.ringSlots, caches));
  }
  return named;
}

namespace {

std::vector<NamedOptions> basePlans() {
  std::vector<NamedOptions> out = variedPlans();
  for (const std::vector<NamedOptions> &of : {splitPlans(), writeBackPlans()})
    out.insert(out.end(), of.begin(), of.end());
  return out;
}

// Slots as `turn` has them; a third of them stay as long as they may.
void letResidualsLeave(NamedOptions &named, uint64_t turn) {
  named.options.residualsLeave = true;
  for (PlacementOptions &p : named.options.placements) {
    p.residualSlots = static_cast<int>(1 + turn % 3);
    p.residualsStay = turn / 3 % 3 == 2;
    for (LimitOptions &limits : p.limits)
      if (limits.evictAfter == 0)
        limits.evictAfter = static_cast<int>(turn / 2 % 4);
  }
  named.name = "residuals in " + std::to_string(1 + turn % 3) + " slots, " + named.name;
}

} // namespace

std::vector<NamedOptions> miniBatchPlans() {
  std::vector<NamedOptions> out;
  uint32_t count = 2;
  for (const NamedOptions &named : basePlans()) {
    out.push_back(withMiniBatches(named, count));
    count = count == 4 ? 2 : count + 1;
  }
  return out;
}

std::vector<NamedOptions> residualPlans() {
  std::vector<NamedOptions> out;
  for (uint64_t turn = 0; const NamedOptions &named : basePlans()) {
    out.push_back(withMiniBatches(named, static_cast<uint32_t>(1 + turn % 4)));
    letResidualsLeave(out.back(), turn++);
  }
  return out;
}

NamedOptions randomResidualPlan(uint64_t seed) {
  std::mt19937_64 random(seed);
  NamedOptions out = withMiniBatches(randomSplitPlan(random()), static_cast<uint32_t>(1 + random() % 4));
  out.name += " of " + std::to_string(seed);
  letResidualsLeave(out, random() % 64);
  return out;
}

} // namespace headrace::plan::test
