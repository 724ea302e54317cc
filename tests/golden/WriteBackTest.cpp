// SPDX-License-Identifier: Apache-2.0
//
// How rows that are appended to KV blocks on the host get home does not change a bit: written there by the step that
// appends them, or copied there behind it, all that is in use or what was written, by class of the iteration, with some
// blocks on the device or none, weights away as well, prompts at once and in chunks beside decoding.
#include "tests/golden/GoldenFixture.h"
#include "tests/golden/WriteBackCases.h"

namespace headrace::golden {
namespace {

// As in SplitKvTest.cpp: 1 + 4 x 10 blocks of 4 tokens, the first 22 of them used.
constexpr int64_t kNewTokens = 6, kBlockTokens = 4, kBlocks = 41, kUsed = 22, kLongest = 10;

class WriteBackKv : public GoldenFixture {};

TEST_P(WriteBackKv, TokensAndLogitsAreBitIdenticalToTheAllResidentRun) {
  setup_.maxNewTokens = kNewTokens;
  setup_.blockTokens = kBlockTokens;
  const absl::StatusOr<RunResult> resident = run(setup_);
  ASSERT_TRUE(resident.ok()) << resident.status();
  for (const SplitCase &c : writeBackCases(GetParam(), kBlocks, 13, /*poison=*/true, /*oneIn=*/1)) {
    SCOPED_TRACE(testing::Message() << c);
    const absl::StatusOr<RunResult> result = run(withCase(setup_, c, kBlocks));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->residentBlocks, c.resident);
    EXPECT_EQ(result->generated.tokens, resident->generated.tokens);
    EXPECT_EQ(result->tokensInFlight, resident->generated.tokens);
    EXPECT_TRUE(result->generated.logits == resident->generated.logits);
    // In chunks some sequences leave others their blocks; the longest has its 10 in any case.
    const bool above = c.resident < kUsed;
    if (c.mixedTokens == 0 || !above || c.resident <= kLongest) {
      EXPECT_EQ(result->generated.counters.d2hBytes > 0, above);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, WriteBackKv, testing::ValuesIn(modelNames()), testName);

} // namespace
} // namespace headrace::golden
