// SPDX-License-Identifier: Apache-2.0
//
// Golden models whose sequences keep activations in some of their blocks, from which keys and values are recomputed in
// every iteration: the tokens are those of Hugging Face transformers.
#include "tests/golden/GoldenFixture.h"
#include "tests/golden/MiniBatchCases.h"
#include "tests/support/LongRun.h"
#ifdef HEADRACE_EMULATED_TESTS
#include "tests/unit/cuda/EmulatedGraphDevice.h"
#endif

namespace headrace::golden {
namespace {

#ifdef HEADRACE_EMULATED_TESTS
// The prompts of 1 and 5 ids: an emulated row takes its time.
constexpr bool kEmulated = true;
constexpr int64_t kNewTokens = 5, kBlockTokens = 2;
#else
constexpr bool kEmulated = false;
constexpr int64_t kNewTokens = 20, kBlockTokens = 4;
#endif

class ActBlocks : public GoldenFixture {};

TEST_P(ActBlocks, TokensAreTransformers) {
  setup_.maxNewTokens = kNewTokens;
  setup_.blockTokens = kBlockTokens;
  if (kEmulated)
    setup_.prompts.resize(2);
#ifdef HEADRACE_EMULATED_TESTS
  setup_.hardware = "h200";
  uint64_t order = 0;
  setup_.makeDevice = [&] { return cuda::makeEmulatedGraphDevice({.order = ++order}); };
#endif
  const std::vector<model::ActRatio> shares = {{0, 1}, {1, 3}, {1, 2}, {3, 4}, {1, 1}};
  int64_t drawn = static_cast<int64_t>(GetParam().size()); // of the cases one in so many, another for each model
  for (const model::ActRatio &share : shares)
    for (int64_t m = 1; m <= (kEmulated ? 2 : 4); ++m)
      for (const int64_t interval : {0, 1, 2}) {
        if (!longRun() && drawn++ % (kEmulated ? 29 : 7) != 0)
          continue;
        SCOPED_TRACE(testing::Message() << "share " << model::actRatioText(share) << ", " << m
                                        << " mini-batches, interval " << interval);
        RunSetup setup = setup_;
        setup.miniBatches = m;
        setup.prompts = forMiniBatches(setup_.prompts, m);
        setup.policy.actRatio = share;
        setup.policy.actHome = (m + interval) % 2 == 0 ? model::ActHome::Host : model::ActHome::Device;
        setup.mixedTokens = m % 2 == 0 ? 0 : 13; // prefill at once, or in chunks
        setup.poison = !kEmulated;
        if (interval > 0) {
          setup.policy.none = false;
          setup.policy.interval = interval;
        }
        std::vector<std::vector<int32_t>> expected =
            forMiniBatches(std::vector(reference_.tokens.begin(),
                                       reference_.tokens.begin() + static_cast<std::ptrdiff_t>(setup_.prompts.size())),
                           m);
        for (std::vector<int32_t> &tokens : expected)
          tokens.resize(static_cast<size_t>(kNewTokens));
        const absl::StatusOr<RunResult> result = run(setup);
        ASSERT_TRUE(result.ok()) << result.status();
        EXPECT_EQ(result->generated.tokens, expected);
        EXPECT_EQ(result->tokensInFlight, expected);
      }
}

// The models with the heads of tensor cores have fewer tokens to compare with.
INSTANTIATE_TEST_SUITE_P(Models, ActBlocks, testing::ValuesIn(kEmulated ? allModels() : modelNames()), testName);

} // namespace
} // namespace headrace::golden
