// SPDX-License-Identifier: Apache-2.0
//
// Golden models in too few KV blocks: sequences are preempted, their blocks go to swap memory and come back, and the
// tokens are those of Hugging Face transformers.
#include "tests/golden/GoldenFixture.h"
#include "tests/golden/SplitCase.h"

namespace headrace::golden {
namespace {

// Prompts of 33, 17, 5 and 1 tokens and 64 new ones: in blocks of 4 they take 25, 21, 18 and 17, 81 in all. There are
// 40, and the scratch block.
constexpr int64_t kBlockTokens = 4, kBlocks = 41;

class Swap : public GoldenFixture {
protected:
  void expectTransformersTokens(const RunSetup &setup) {
    const absl::StatusOr<RunResult> result = run(setup);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->kvBlocks, kBlocks);
    EXPECT_EQ(result->generated.tokens, reference_.tokens);
    EXPECT_EQ(result->tokensInFlight, reference_.tokens);
    EXPECT_GT(result->generated.swapsOut, 0u);
    EXPECT_EQ(result->generated.swapsIn, result->generated.swapsOut);
    EXPECT_EQ(result->generated.swapFallbacks, 0u);
    EXPECT_EQ(result->generated.swapsOut, result->generated.preemptions);
    const Comparison comparison = compare(reference_, result->generated);
    EXPECT_TRUE(comparison.tokensEqual) << comparison.firstDifference;
    EXPECT_LE(comparison.largestDifference, reference_.tolerance);
  }
};

TEST_P(Swap, TokensAreTransformersThoughSequencesAreSwapped) {
  setup_.blockTokens = kBlockTokens;
  setup_.kvTokens = (kBlocks - 1) * kBlockTokens;
  setup_.swapBlocks = 81;
  expectTransformersTokens(setup_);
  // Of each cache 12 blocks are on the device, and of every two layers the weights of one; blocks move both ways.
  expectTransformersTokens(
      withCase(setup_, {.resident = 12, .interval = 2, .mixedTokens = 13, .poison = true}, kBlocks));
}

INSTANTIATE_TEST_SUITE_P(Models, Swap, testing::ValuesIn(modelNames()), testName);

} // namespace
} // namespace headrace::golden
