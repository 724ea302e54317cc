// SPDX-License-Identifier: Apache-2.0
//
// Golden models whose layers are passed for one to four mini-batches in one iteration, each with blocks of its own: the
// tokens are those of Hugging Face transformers, whatever lies on the host and however it gets there.
#include "tests/golden/GoldenFixture.h"
#include "tests/golden/MiniBatchCases.h"

namespace headrace::golden {
namespace {

// The longest prompt of 33 tokens and 6 new ones: 10 blocks of 4 tokens a sequence.
constexpr int64_t kNewTokens = 6, kBlockTokens = 4, kBlocksOfOne = 10;

class MiniBatches : public GoldenFixture {
protected:
  // Transformers', as far as `newTokens`.
  std::vector<std::vector<int32_t>> expected(int64_t miniBatches, int64_t newTokens) const {
    std::vector<std::vector<int32_t>> out = forMiniBatches(reference_.tokens, miniBatches);
    for (std::vector<int32_t> &tokens : out)
      tokens.resize(static_cast<size_t>(newTokens));
    return out;
  }
};

TEST_P(MiniBatches, TokensAreTransformers) {
  setup_.maxNewTokens = kNewTokens;
  setup_.blockTokens = kBlockTokens;
  std::vector<MiniBatchCase> cases =
      miniBatchCases(GetParam(), setup_.prompts.size(), kBlocksOfOne, 13, /*poison=*/true, /*oneIn=*/2);
  for (const MiniBatchCase &c :
       rotatingMiniBatchCases(GetParam(), setup_.spec.layers, setup_.prompts.size(), kBlocksOfOne, 13, /*poison=*/true))
    cases.push_back(c);
  for (const MiniBatchCase &c : cases) {
    SCOPED_TRACE(testing::Message() << c);
    const int64_t blocks = blocksOfCache(setup_.prompts.size(), c.miniBatches, kBlocksOfOne);
    const absl::StatusOr<RunResult> result = run(withCase(setup_, c, blocks));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->kvBlocks, blocks);
    EXPECT_EQ(result->residentBlocks, c.split.resident);
    EXPECT_EQ(result->generated.tokens, expected(c.miniBatches, kNewTokens));
    EXPECT_EQ(result->tokensInFlight, expected(c.miniBatches, kNewTokens));
    if (c.split.resident == 0 || c.residualsLeave) {
      EXPECT_GT(result->generated.counters.d2hBytes, 0u);
    }
  }
}

// Prompts of 33, 17, 5 and 1 tokens and 64 new ones take 25, 21, 18 and 17 blocks of 4; each of the two mini-batches
// has 25 and two sequences.
TEST_P(MiniBatches, TokensAreTransformersThoughSequencesAreSwapped) {
  constexpr int64_t kBlocks = 26;
  setup_.blockTokens = kBlockTokens;
  setup_.kvTokens = 2 * (kBlocks - 1) * kBlockTokens;
  setup_.swapBlocks = 81;
  for (const SplitCase &split :
       {SplitCase{.resident = kBlocks}, SplitCase{.resident = 12, .interval = 2, .mixedTokens = 13, .poison = true}}) {
    const absl::StatusOr<RunResult> result = run(withCase(setup_, MiniBatchCase{2, split}, kBlocks));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->kvBlocks, kBlocks);
    EXPECT_EQ(result->generated.tokens, reference_.tokens);
    EXPECT_EQ(result->tokensInFlight, reference_.tokens);
    EXPECT_GT(result->generated.swapsOut, 0u);
    // One that is preempted while it is brought back is in swap memory still.
    EXPECT_LE(result->generated.swapsOut, result->generated.preemptions);
    EXPECT_EQ(result->generated.swapsIn, result->generated.preemptions);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, MiniBatches, testing::ValuesIn(modelNames()), testName);

} // namespace
} // namespace headrace::golden
