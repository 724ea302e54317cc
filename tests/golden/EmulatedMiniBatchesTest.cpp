// SPDX-License-Identifier: Apache-2.0
//
// The same as MiniBatchesTest.cpp through the recorded CUDA graphs, run on the host in an order drawn anew.
#include "tests/golden/GoldenFixture.h"
#include "tests/golden/MiniBatchCases.h"
#include "tests/support/LongRun.h"
#include "tests/unit/cuda/EmulatedGraphDevice.h"

namespace headrace::golden {
namespace {

// The prompts of 1 and 5 ids, an emulated row takes its time: 5 blocks of 2 tokens a sequence.
constexpr int64_t kNewTokens = 4, kBlockTokens = 2, kBlocksOfOne = 5;

class EmulatedMiniBatches : public GoldenFixture {};

TEST_P(EmulatedMiniBatches, TokensAreTransformers) {
  setup_.prompts.resize(2);
  setup_.maxNewTokens = kNewTokens;
  setup_.blockTokens = kBlockTokens;
  setup_.hardware = "h200";
  uint64_t order = 0;
  setup_.makeDevice = [&] { return cuda::makeEmulatedGraphDevice({.order = ++order}); };
  std::vector<MiniBatchCase> cases = miniBatchCases(GetParam(), 2, kBlocksOfOne, 3, /*poison=*/false, /*oneIn=*/24);
  if (!longRun()) { // the first that has several, and no block on the device
    std::erase_if(cases, [](const MiniBatchCase &c) { return c.split.resident != 0 || c.miniBatches == 1; });
    cases.resize(1);
  }
  // Tails that rotate: a few with HEADRACE_LONG, else one instead of the other for half of the models.
  const std::vector<MiniBatchCase> rotating =
      rotatingMiniBatchCases(GetParam(), setup_.spec.layers, 2, kBlocksOfOne, 3, /*poison=*/false);
  for (size_t i = 0; longRun() && i < rotating.size(); i += 8)
    cases.push_back(rotating[i]);
  if (!longRun() && GetParam().size() % 2 == 0)
    cases = {rotating.front()};
  for (const MiniBatchCase &c : cases) {
    SCOPED_TRACE(testing::Message() << c);
    std::vector<std::vector<int32_t>> expected =
        forMiniBatches(std::vector(reference_.tokens.begin(), reference_.tokens.begin() + 2), c.miniBatches);
    for (std::vector<int32_t> &tokens : expected)
      tokens.resize(kNewTokens);
    const absl::StatusOr<RunResult> result = run(withCase(setup_, c, blocksOfCache(2, c.miniBatches, kBlocksOfOne)));
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->residentBlocks, c.split.resident);
    EXPECT_EQ(result->generated.tokens, expected);
    EXPECT_EQ(result->tokensInFlight, expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, EmulatedMiniBatches, testing::ValuesIn(allModels()), testName);

} // namespace
} // namespace headrace::golden
