// SPDX-License-Identifier: Apache-2.0
//
// Where weights live does not change a bit: every placement and start rule against the resident run.
#include <algorithm>
#include <random>

#include "tests/golden/GoldenFixture.h"
#include "tests/golden/PlacementCases.h"
#include "tests/support/LongRun.h"

namespace headrace::golden {
namespace {

class Placement : public GoldenFixture {};

// All of them with HEADRACE_LONG, as they are and with NaNs in every byte that the plan did not put there; else for
// each model another half, every second one with NaNs.
TEST_P(Placement, LogitsAreBitIdenticalToTheResidentRun) {
  RunSetup setup = setup_;
  setup.maxNewTokens = 6;
  const absl::StatusOr<RunResult> resident = run(setup);
  ASSERT_TRUE(resident.ok()) << resident.status();
  EXPECT_EQ(resident->offloadedLayers, 0);
  size_t turn = GetParam().size(); // of four
  for (const PlacementCase &c : everyPlacement(setup.spec)) {
    ++turn;
    for (const bool poison : {false, true}) {
      if (!longRun() && turn % 4 != (poison ? 2 : 0))
        continue;
      SCOPED_TRACE(testing::Message() << c.name << ", poison " << poison);
      setup.policy = c.policy;
      setup.poison = poison;
      const absl::StatusOr<RunResult> result = run(setup);
      EXPECT_TRUE(result.ok()) << result.status();
      if (!result.ok())
        continue;
      EXPECT_EQ(result->offloadedLayers, c.offloadedLayers);
      EXPECT_EQ(result->offloadsEmbedding, c.embedding);
      EXPECT_EQ(result->offloadsHead, c.head);
      EXPECT_EQ(result->generated.tokens, resident->generated.tokens);
      EXPECT_EQ(result->tokensInFlight, resident->generated.tokens);
      ASSERT_EQ(result->generated.logits.size(), resident->generated.logits.size());
      for (size_t p = 0; p < setup.prompts.size(); ++p)
        EXPECT_TRUE(result->generated.logits[p] == resident->generated.logits[p]) << "prompt " << p;
      if (c.offloadedLayers > 0) {
        EXPECT_GT(result->generated.counters.h2dBytes, resident->generated.counters.h2dBytes);
      }
    }
  }
}

// Random sets of units under both rules, in layer-sized slots and in rings of any size that holds the largest.
TEST_P(Placement, SingleUnitsAndRingsAreBitIdenticalToTheResidentRun) {
  RunSetup setup = setup_;
  setup.maxNewTokens = 6;
  const absl::StatusOr<RunResult> resident = run(setup);
  ASSERT_TRUE(resident.ok()) << resident.status();
  const model::WeightLayout layout = model::layoutWeights(setup.spec);
  const bool tied = setup.spec.tiedEmbeddings;
  std::mt19937 generator(static_cast<unsigned>(setup.spec.layers));
  const auto below = [&](uint64_t n) { return std::uniform_int_distribution<uint64_t>(0, n - 1)(generator); };
  for (int i = 0; i < casesOf(16, 24); ++i) {
    // A quarter, a half or three quarters of the units of layers; now and then the head and its embedding.
    std::vector<int32_t> units;
    for (int32_t unit = 1; unit < layout.headUnit(); ++unit)
      if (below(4) < static_cast<uint64_t>(1 + i % 3))
        units.push_back(unit);
    if (units.empty())
      units.push_back(1);
    const bool head = i % 5 == 0;
    if (head) // tied, the table is both
      units.push_back(tied ? layout.embeddingUnit() : layout.headUnit());
    uint64_t largest = 0, all = 0;
    for (const int32_t unit : units) {
      largest = std::max(largest, layout.units[static_cast<size_t>(unit)].bytes);
      all += layout.units[static_cast<size_t>(unit)].bytes;
    }
    compiler::Candidate placement = compiler::placementOfUnits(units, largest + below(all - largest + 1) / 2);
    if (i % 8 == 3) {
      placement.residency.start = algorithms::kPaper;
      placement.residency.wrap = {};
      placement.residency.weights().setSlots(2);
    } else if (i % 8 == 7) {
      placement.residency.start = algorithms::ahead(i % 3);
      placement.residency.weights().setSlots(std::max(1, i % 3));
      placement.residency.wrap = {};
    } else if (i % 8 == 2) {
      placement.residency.wrap = {};
    }
    SCOPED_TRACE(algorithms::toText(placement.residency));
    setup.placement = placement;
    setup.poison = i % 2 == 1;
    const absl::StatusOr<RunResult> result = run(setup);
    EXPECT_TRUE(result.ok()) << result.status();
    if (!result.ok())
      continue;
    EXPECT_EQ(result->offloadedLayers, compiler::awayOf(placement.residency, setup.spec).layers);
    EXPECT_EQ(result->offloadsHead, head);
    EXPECT_EQ(result->generated.tokens, resident->generated.tokens);
    EXPECT_EQ(result->tokensInFlight, resident->generated.tokens);
    EXPECT_TRUE(result->generated.logits == resident->generated.logits);
    EXPECT_GT(result->generated.counters.h2dBytes, resident->generated.counters.h2dBytes);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Placement, testing::ValuesIn(allModels()), testName);

} // namespace
} // namespace headrace::golden
