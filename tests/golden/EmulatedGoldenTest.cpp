// SPDX-License-Identifier: Apache-2.0
//
// Golden models through the recorded CUDA graphs, the kernels' own source run on the host: with the heads that
// tensor-core kernels are for they run those and no others, the tokens are those of Hugging Face transformers, and
// where weights live does not change a bit.
#include "tests/golden/GoldenFixture.h"
#include "tests/golden/PlacementCases.h"
#include "tests/golden/SplitCase.h"
#include "tests/support/LongRun.h"
#include "tests/unit/cuda/EmulatedGraphDevice.h"
#include "gmock/gmock.h"

namespace headrace::golden {
namespace {

class OnEmulator : public GoldenFixture {
protected:
  void SetUp() override {
    GoldenFixture::SetUp();
    setup_.hardware = "h200";
    setup_.makeDevice = [this] { return cuda::makeEmulatedGraphDevice({.order = ++order_, .ran = &ran_}); };
  }
  // The first so many, and as many new tokens of each: an emulated row takes its time.
  void shorten(size_t prompts, size_t newTokens) {
    for (auto *lists : {&setup_.prompts, &reference_.prompts, &reference_.tokens})
      lists->resize(prompts);
    setup_.maxNewTokens = static_cast<int64_t>(newTokens);
    reference_.logits.resize(prompts);
    for (size_t p = 0; p < prompts; ++p) {
      reference_.logits[p].resize(reference_.logits[p].size() / reference_.tokens[p].size() * newTokens);
      reference_.tokens[p].resize(newTokens);
    }
  }

  std::set<std::string> ran_; // kernels
  uint64_t order_ = 0;
};

class EmulatedGolden : public OnEmulator {};

// All prompts with HEADRACE_LONG; else the one longer than a split of decode for one of the models only, with few new
// tokens.
TEST_P(EmulatedGolden, TokensAreTransformersThroughTheKernelsOfTheHeadSize) {
  if (!longRun() && GetParam() == "llama-2-heads-96-f16")
    shorten(reference_.prompts.size(), 4);
  else if (!longRun())
    shorten(3, reference_.tokens[0].size());
  const absl::StatusOr<RunResult> result = run(setup_);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(ofAttention(ran_), attentionKernels(reference_));
  const Comparison comparison = compare(reference_, result->generated);
  EXPECT_TRUE(comparison.tokensEqual) << comparison.firstDifference;
  EXPECT_LE(comparison.largestDifference, reference_.ownTypeBound);
  RecordProperty("largest_difference", std::to_string(comparison.largestDifference));
  EXPECT_EQ(result->tokensInFlight, reference_.tokens);
}

INSTANTIATE_TEST_SUITE_P(Models, EmulatedGolden, testing::ValuesIn(tensorCoreModels()), testName);

class EmulatedLargeTiles : public OnEmulator {};

TEST_P(EmulatedLargeTiles, TokensAreTransformersToo) {
  shorten(3, 2);
  widenToLargeTiles();
  const absl::StatusOr<RunResult> result = run(setup_);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(ofAttention(ran_), withLargeTiles(attentionKernels(reference_)));
  const Comparison comparison = compare(reference_, result->generated);
  EXPECT_TRUE(comparison.tokensEqual) << comparison.firstDifference;
  EXPECT_LE(comparison.largestDifference, reference_.ownTypeBound);
}

// One of them without HEADRACE_LONG: 4,096 rows take their time.
INSTANTIATE_TEST_SUITE_P(Models, EmulatedLargeTiles,
                         testing::ValuesIn(longRun() ? largeTileModels()
                                                     : std::vector<std::string>{largeTileModels().back()}),
                         testName);

// Those of 6 to 18 elements.
class EmulatedSmallHeads : public OnEmulator {};

TEST_P(EmulatedSmallHeads, RunTheKernelForAnySize) {
  shorten(2, 2);
  const absl::StatusOr<RunResult> result = run(setup_);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(ofAttention(ran_), attentionKernels(reference_));
}

INSTANTIATE_TEST_SUITE_P(Models, EmulatedSmallHeads, testing::ValuesIn(modelNames()), testName);

class EmulatedPlacement : public OnEmulator {};

// All of them with HEADRACE_LONG; else one in six, others for each model.
TEST_P(EmulatedPlacement, TokensAndLogitsAreBitIdenticalToTheResidentRun) {
  shorten(2, 3);
  const absl::StatusOr<RunResult> resident = run(setup_);
  ASSERT_TRUE(resident.ok()) << resident.status();
  EXPECT_EQ(resident->offloadedLayers, 0);
  EXPECT_EQ(ofAttention(ran_), attentionKernels(reference_));
  EXPECT_EQ(resident->generated.tokens, reference_.tokens);
  std::vector<PlacementCase> cases = everyPlacement(setup_.spec);
  size_t drawn = GetParam().size();
  std::erase_if(cases, [&](const PlacementCase &) { return !longRun() && drawn++ % 6 != 0; });
  size_t bitForBit = 0;
  for (const PlacementCase &c : cases) {
    SCOPED_TRACE(c.name);
    setup_.policy = c.policy;
    ran_.clear();
    const absl::StatusOr<RunResult> result = run(setup_);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_THAT(attentionKernels(reference_), testing::IsSupersetOf(ofAttention(ran_)));
    EXPECT_EQ(result->offloadedLayers, c.offloadedLayers);
    EXPECT_EQ(result->generated.tokens, resident->generated.tokens);
    EXPECT_EQ(result->tokensInFlight, resident->generated.tokens);
    bitForBit += expectLogitsOf(*resident, *result);
    if (c.offloadedLayers > 0) {
      EXPECT_GT(result->generated.counters.h2dBytes, resident->generated.counters.h2dBytes);
    }
  }
  EXPECT_GE(bitForBit, cases.size() - 3); // but where every layer is away and starts eagerly
}

// A layer's blocks but the first are at home on the host, their rows written there by the kernel or behind it: heads of
// tensor cores read them through slots. All other ways to be away: tests/choices, in small heads.
TEST_P(EmulatedPlacement, TailsThroughSlotsDoNotChangeABit) {
  shorten(2, 3);
  setup_.blockTokens = 2;
  const absl::StatusOr<RunResult> resident = run(setup_);
  ASSERT_TRUE(resident.ok()) << resident.status();
  const SplitCase away{
      .resident = 2, .interval = 2, .decode = algorithms::WriteBack::Dirty, .mixed = algorithms::WriteBack::Mirror};
  const absl::StatusOr<RunResult> result = run(withCase(setup_, away, resident->kvBlocks));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->residentBlocks, 2);
  EXPECT_EQ(result->generated.tokens, resident->generated.tokens);
  EXPECT_EQ(result->tokensInFlight, resident->generated.tokens);
  expectLogitsOf(*resident, *result);
  EXPECT_GT(result->generated.counters.d2hBytes, 0u);
}

INSTANTIATE_TEST_SUITE_P(Models, EmulatedPlacement, testing::ValuesIn(tensorCoreModels()), testName);

} // namespace
} // namespace headrace::golden
