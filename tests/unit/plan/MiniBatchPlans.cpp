// SPDX-License-Identifier: Apache-2.0
#include <numeric>

#include "runtime/model/ModelSpec.h"
#include "tests/unit/plan/MakePlan.h"

namespace headrace::plan::test {

std::vector<NamedOptions> miniBatchPlans() {
  std::vector<NamedOptions> out;
  uint32_t count = 2;
  for (const std::vector<NamedOptions> &of : {variedPlans(), splitPlans(), writeBackPlans()})
    for (const NamedOptions &named : of) {
      NamedOptions more = named;
      more.name = std::to_string(count) + " mini-batches, " + named.name;
      more.options.miniBatches = count;
      const int64_t caches = more.options.model.layers * count;
      for (PlacementOptions &p : more.options.placements) {
        if (p.ringSlots >= more.options.model.layers) { // a slot for each, and what stays there stays
          p.ringSlots *= static_cast<int>(count);
          p.carriedTails *= static_cast<int>(count);
          p.dirtyTails *= static_cast<int>(count);
        }
        if (p.period > 1) // around the ring with as many more
          p.period = static_cast<uint32_t>(p.ringSlots / std::gcd<int64_t>(p.ringSlots, caches));
      }
      out.push_back(std::move(more));
      count = count == 4 ? 2 : count + 1;
    }
  return out;
}

} // namespace headrace::plan::test
