// SPDX-License-Identifier: Apache-2.0
//
// How many blocks of a golden model's caches are on the device does not change a bit: every split against the
// all-resident run, alone and with weights away as well, prompts at once and in chunks beside decoding.
#include <cstdlib>
#include <random>

#include "compiler/choose/policies/WholeLayers.h"
#include "tests/golden/GoldenFixture.h"

namespace headrace::golden {
namespace {

// 1 + 4 x 10 blocks of 4 tokens; 33 + 6 tokens take 10 of them, 17 + 6 take 6, 5 + 6 take 3, 1 + 6 take 2. So the first
// 22 are used, the scratch block included.
constexpr int64_t kNewTokens = 6, kBlockTokens = 4, kBlocks = 41, kUsed = 22;

struct Case {
  int64_t resident; // blocks on the device; kBlocks: all
  int64_t interval; // of every so many layers the last is away; 0: no weights are
  int64_t slots;    // that tails take turns in
  bool wrap, chunks, poison;
};
std::ostream &operator<<(std::ostream &out, const Case &c) {
  return out << c.resident << " blocks on the device, interval " << c.interval << ", " << c.slots << " slots, wrap "
             << c.wrap << ", chunks " << c.chunks << ", poison " << c.poison;
}

// All of them with HEADRACE_LONG; else the ends, both sides of where nothing is in use above, and some drawn between.
std::vector<Case> cases(const std::string &model) {
  const bool all = std::getenv("HEADRACE_LONG") != nullptr;
  std::vector<Case> out;
  std::seed_seq seed(model.begin(), model.end());
  std::mt19937_64 random(seed);
  for (int64_t resident = 1; resident <= kBlocks; ++resident)
    for (const int64_t interval : {0, 1, 2, 3})
      for (const bool poison : {false, true}) {
        const auto drawn = random();
        const Case added{resident,       interval,       1 + static_cast<int64_t>(drawn % 4),
                         drawn % 3 != 0, drawn % 5 < 2, poison};
        const bool end = resident == 1 || resident == kUsed - 1 || resident == kUsed || resident == kBlocks;
        if (all || (end && interval == 2 * poison) || drawn % 37 == 0)
          out.push_back(added);
      }
  return out;
}

RunSetup withCase(RunSetup setup, const Case &c) {
  model::Policy policy;
  policy.none = c.interval == 0;
  if (c.interval > 0)
    policy.interval = c.interval;
  compiler::Candidate placement =
      compiler::wholeLayers(policy, setup.spec, model::layoutWeights(setup.spec)).front();
  placement.residency.wrap.around = c.wrap;
  if (c.resident < kBlocks) {
    placement.residency.setKvAway(setup.spec.layers, c.resident);
    placement.residency.kvSlots = c.slots;
  }
  setup.placement = placement;
  setup.mixedTokens = c.chunks ? 13 : 0;
  setup.poison = c.poison;
  return setup;
}

class SplitKv : public GoldenFixture {};

TEST_P(SplitKv, TokensAndLogitsAreBitIdenticalToTheAllResidentRun) {
  setup_.maxNewTokens = kNewTokens;
  setup_.blockTokens = kBlockTokens;
  const absl::StatusOr<RunResult> resident = run(setup_);
  ASSERT_TRUE(resident.ok()) << resident.status();
  ASSERT_EQ(resident->residentBlocks, kBlocks);
  for (const Case &c : cases(GetParam())) {
    SCOPED_TRACE(testing::Message() << c);
    const absl::StatusOr<RunResult> result = run(withCase(setup_, c));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->residentBlocks, c.resident);
    EXPECT_EQ(result->kvBlocks, kBlocks);
    EXPECT_EQ(result->offloadedLayers, c.interval > 0 ? setup_.spec.layers / c.interval : 0);
    EXPECT_EQ(result->generated.tokens, resident->generated.tokens);
    EXPECT_EQ(result->tokensInFlight, resident->generated.tokens);
    EXPECT_TRUE(result->generated.logits == resident->generated.logits);
    // In chunks some sequences end before others begin, and leave them their blocks: the longest has its 10 in any case.
    const bool above = c.resident < kUsed;
    if (!c.chunks || !above || c.resident <= 10) {
      EXPECT_EQ(result->generated.counters.d2hBytes > 0, above);
      EXPECT_EQ(result->generated.counters.h2dBytes > resident->generated.counters.h2dBytes, above || c.interval > 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, SplitKv, testing::ValuesIn(modelNames()), testName);

} // namespace
} // namespace headrace::golden
