// SPDX-License-Identifier: Apache-2.0
//
// How many blocks of a golden model's caches are on the device does not change a bit: every split against the
// all-resident run, alone and with weights away as well, prompts at once and in chunks beside decoding.
#include <random>

#include "tests/golden/GoldenFixture.h"
#include "tests/golden/SplitCase.h"
#include "tests/support/LongRun.h"

namespace headrace::golden {
namespace {

// 1 + 4 x 10 blocks of 4 tokens; 33 + 6 tokens take 10 of them, 17 + 6 take 6, 5 + 6 take 3, 1 + 6 take 2. So the first
// 22 are used, the scratch block included.
constexpr int64_t kNewTokens = 6, kBlockTokens = 4, kBlocks = 41, kUsed = 22;

// All of them with HEADRACE_LONG; else the ends, both sides of where nothing is in use above, and some drawn between.
std::vector<SplitCase> cases(const std::string &model) {
  const bool all = longRun();
  std::vector<SplitCase> out;
  std::seed_seq seed(model.begin(), model.end());
  std::mt19937_64 random(seed);
  for (int64_t resident = 1; resident <= kBlocks; ++resident)
    for (const int64_t interval : {0, 1, 2, 3})
      for (const bool poison : {false, true}) {
        const auto drawn = random();
        const SplitCase added{.resident = resident,
                              .interval = interval,
                              .slots = static_cast<int64_t>(drawn % 5),
                              .wrap = drawn % 3 != 0,
                              .mixedTokens = drawn % 7 < 3 ? 13 : 0,
                              .poison = poison};
        const bool end = resident == 1 || resident == kUsed - 1 || resident == kUsed || resident == kBlocks;
        if (all || (end && interval == 2 * poison) || drawn % 37 == 0)
          out.push_back(added);
      }
  return out;
}

class SplitKv : public GoldenFixture {};

TEST_P(SplitKv, TokensAndLogitsAreBitIdenticalToTheAllResidentRun) {
  setup_.maxNewTokens = kNewTokens;
  setup_.blockTokens = kBlockTokens;
  const absl::StatusOr<RunResult> resident = run(setup_);
  ASSERT_TRUE(resident.ok()) << resident.status();
  ASSERT_EQ(resident->residentBlocks, kBlocks);
  for (const SplitCase &c : cases(GetParam())) {
    SCOPED_TRACE(testing::Message() << c);
    const absl::StatusOr<RunResult> result = run(withCase(setup_, c, kBlocks));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->residentBlocks, c.resident);
    EXPECT_EQ(result->kvBlocks, kBlocks);
    EXPECT_EQ(result->offloadedLayers, c.interval > 0 ? setup_.spec.layers / c.interval : 0);
    EXPECT_EQ(result->generated.tokens, resident->generated.tokens);
    EXPECT_EQ(result->tokensInFlight, resident->generated.tokens);
    EXPECT_TRUE(result->generated.logits == resident->generated.logits);
    // In chunks some sequences end before others begin, and leave them their blocks: the longest has its 10 in any
    // case.
    const bool above = c.resident < kUsed;
    if (c.mixedTokens == 0 || !above || c.resident <= 10) {
      EXPECT_EQ(result->generated.counters.d2hBytes > 0, above);
      EXPECT_EQ(result->generated.counters.h2dBytes > resident->generated.counters.h2dBytes, above || c.interval > 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, SplitKv, testing::ValuesIn(modelNames()), testName);

} // namespace
} // namespace headrace::golden
