// SPDX-License-Identifier: Apache-2.0
//
// Prompts that come and end as they like over a model's stages: each gets what it gets alone on one device, whoever
// runs beside it, cancelled ones included; no block is lost.
#include <random>

#include <gmock/gmock.h>

#include "runtime/serve/engine/StagedBatch.h"
#include "tests/conformance/StagesUnderTest.h"
#include "tests/support/LongRun.h"

namespace headrace::serve {
namespace {

using core::Options;
using core::Served;
using testing::HasSubstr;

GenerateRequest requestOf(uint64_t seed, size_t prompts) {
  std::mt19937_64 draw(seed);
  GenerateRequest request;
  for (size_t p = 0; p < prompts; ++p) {
    auto &prompt = request.prompts.emplace_back();
    for (uint64_t i = 0, n = 1 + draw() % 24; i < n; ++i)
      prompt.push_back(static_cast<int32_t>(draw() % 90));
  }
  request.maxNewTokens = 1 + static_cast<int64_t>(draw() % 30);
  request.sampling.temperature = draw() % 2 == 0 ? 0.0f : 0.9f;
  request.sampling.seed = draw() % 1000;
  request.stopTokens = {static_cast<int32_t>(draw() % 90)};
  return request;
}

// Of every third prompt the reply ends at its fourth token.
void endSome(GenerateRequest &request, std::vector<int> &tokens) {
  tokens.assign(request.prompts.size(), 0);
  request.onToken = [&tokens](size_t prompt, int32_t) { return prompt % 3 != 0 || ++tokens[prompt] < 4; };
}

void expectTheSame(const Options &options, uint64_t seed, size_t prompts) {
  GenerateRequest request = requestOf(seed, prompts);
  std::vector<int> tokens;
  endSome(request, tokens);
  Served whole(options, {0});
  const auto wanted = generate(whole.runtime(0), request);
  ASSERT_TRUE(wanted.ok()) << wanted.status();
  for (const std::vector<int64_t> &cut : {std::vector<int64_t>{0, 3}, {0, 2, 3, 4}}) {
    const StagedSeats seats = stagedSeats(whole.plans().front(), cut.size(), {});
    Served stages(options, cut, seats.microBatches);
    ASSERT_FALSE(testing::Test::HasFailure());
    const int64_t free = stages.stages().freeBlocks(0);
    endSome(request, tokens);
    const auto made = generateStaged(stages.stages(), seats, request);
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_EQ(made->tokens, wanted->tokens) << "seed " << seed << ", " << cut.size() << " stages";
    EXPECT_EQ(made->ends, wanted->ends);
    for (uint32_t i = 0; i < options.miniBatches; ++i)
      EXPECT_EQ(stages.stages().freeBlocks(i), free);
  }
}

TEST(StagedBatch, EachPromptGetsWhatItGetsAlone) {
  const uint64_t rounds = longRun() ? 60 : 4;
  for (uint64_t seed = 1; seed <= rounds; ++seed) {
    expectTheSame({.sequences = 4}, seed, 23);
    expectTheSame({.sequences = 4, .interval = 2, .resident = 9}, seed, 11);
    expectTheSame({.miniBatches = 2, .sequences = 3, .interval = 1}, seed, 17);
    expectTheSame({.miniBatches = 2, .sequences = 2, .attendsOnCpu = true}, seed, 9);
  }
}

// Ten thousand iterations in virtual time.
TEST(StagedBatch, NoBlockIsLostInALongRun) {
  const Options options{.sequences = 6};
  Served stages(options, {0, 2, 4}, 3, /*virtualTime=*/true);
  const StagedSeats seats = stagedSeats(stages.plans().front(), 3, {});
  const int64_t free = stages.stages().freeBlocks(0);
  uint64_t iterations = 0;
  for (uint64_t seed = 1; iterations < 10'000; ++seed) {
    GenerateRequest request = requestOf(seed, 200);
    std::vector<int> tokens;
    endSome(request, tokens);
    int asked = 0;
    request.isInterrupted = [&] { return seed % 5 == 0 && ++asked > 100; };
    const auto made = generateStaged(stages.stages(), seats, request);
    ASSERT_TRUE(made.ok()) << made.status();
    iterations += made->iterations;
    EXPECT_EQ(stages.stages().freeBlocks(0), free) << seed;
    EXPECT_EQ(stages.stages().underWay(), 0u);
    if (seed % 5 == 0) {
      EXPECT_THAT(made->ends, testing::Contains(EndReason::Cancelled));
    }
  }
}

TEST(StagedBatch, RefusesWhatStagesHaveNot) {
  Served stages({}, {0, 3}, 2);
  const auto refusal = [&](const std::function<void(GenerateRequest &)> &change) {
    GenerateRequest request = requestOf(1, 2);
    change(request);
    return std::string(generateStaged(stages.stages(), {2, 1}, request).status().message());
  };
  EXPECT_EQ(refusal([](GenerateRequest &r) { r.sampling.repetitionPenalty = 2; }),
            "penalties beside stages: expected none: no stage has the ids of all tokens");
  EXPECT_EQ(refusal([](GenerateRequest &r) { r.keepLogits = true; }),
            "logits that are kept beside stages: expected none");
  EXPECT_EQ(refusal([](GenerateRequest &r) { r.batching = Batching::Static; }),
            "static batching beside stages: expected continuous batching");
  EXPECT_EQ(refusal([](GenerateRequest &r) { r.chunkedPrefill = false; }),
            "prompts apart from decoding beside stages: expected chunks beside what decodes");
  EXPECT_THAT(refusal([](GenerateRequest &r) { r.prompts[1].clear(); }), HasSubstr("prompt 1"));
}

TEST(StagedBatch, SplitsTheBatchAmongAsManyMicroBatchesAsStages) {
  const plan::Plan plan = core::compiled(core::modelOf({}), {.sequences = 6});
  const auto seats = [&](size_t stages, const StagedLimits &limits = {}) {
    const StagedSeats of = stagedSeats(plan, stages, limits);
    std::vector<int64_t> parts;
    for (size_t i = 0; i < of.microBatches; ++i)
      parts.push_back(of.of(i));
    return parts;
  };
  using Parts = std::vector<int64_t>;
  EXPECT_EQ(seats(2), (Parts{3, 3}));
  EXPECT_EQ(seats(4), (Parts{2, 2, 1, 1}));
  EXPECT_EQ(seats(8), (Parts{1, 1, 1, 1, 1, 1})); // no more than sequences
  EXPECT_EQ(seats(3, {.microBatches = 2, .sequences = 9}), (Parts{3, 3}));
  EXPECT_EQ(seats(3, {.sequences = 2}), (Parts{1, 1}));
}

} // namespace
} // namespace headrace::serve
