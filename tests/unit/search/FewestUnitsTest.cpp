// SPDX-License-Identifier: Apache-2.0
#include "compiler/search/FewestUnits.h"

#include <random>

#include "runtime/model/ModelSpec.h"
#include "tests/unit/compiler/Requests.h"
#include "gtest/gtest.h"

namespace headrace::compiler {
namespace {

struct Sum {
  uint64_t bytes = 0, ring = 0;
};

Sum sumOf(const model::WeightLayout &layout, const std::vector<int32_t> &units) {
  Sum sum;
  for (const int32_t unit : units) {
    sum.bytes += layout.units[static_cast<size_t>(unit)].bytes;
    sum.ring = std::max(sum.ring, model::alignUp(layout.units[static_cast<size_t>(unit)].bytes));
  }
  return sum;
}

// Against every set of the units of three layers and the head: 2^13.
TEST(FewestUnits, AreTheFewestBytesOfAllSets) {
  const model::WeightLayout layout = model::layoutWeights(tinyLlama(3));
  std::mt19937 generator(5);
  for (const bool head : {false, true}) {
    std::vector<int32_t> may;
    for (size_t unit = 1; unit < layout.units.size(); ++unit) // behind the embedding
      if (layout.units[unit].layer >= 0 || head)
        may.push_back(static_cast<int32_t>(unit));
    uint64_t all = 0;
    std::vector<Sum> sums;
    for (uint32_t set = 1; set < 1U << may.size(); ++set) {
      std::vector<int32_t> units;
      for (size_t i = 0; i < may.size(); ++i)
        if ((set >> i) & 1U)
          units.push_back(may[i]);
      sums.push_back(sumOf(layout, units));
      all = std::max(all, sums.back().bytes - std::min(sums.back().bytes, sums.back().ring));
    }
    for (int draw = 0; draw < 40; ++draw) {
      const uint64_t freed = 1 + generator() % (all + all / 8);
      uint64_t least = UINT64_MAX;
      for (const Sum &sum : sums)
        if (sum.bytes >= freed + sum.ring)
          least = std::min(least, sum.bytes);
      const std::optional<Candidate> found = fewestUnits(layout, head, freed);
      ASSERT_EQ(found.has_value(), least != UINT64_MAX) << freed;
      if (!found)
        continue;
      const Sum sum = sumOf(layout, found->residency.weightsAway());
      EXPECT_EQ(sum.bytes, least) << freed;
      EXPECT_EQ(found->residency.weights().ringBytes(), sum.ring);
    }
  }
}

} // namespace
} // namespace headrace::compiler
