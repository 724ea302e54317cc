// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/fleet/KvHandover.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/host/HostDevice.h"
#include "runtime/serve/engine/BatchEngine.h"
#include "runtime/serve/engine/Engine.h"
#include "runtime/sim/SimDevice.h"
#include "tests/support/TinyPlan.h"

namespace headrace::serve {
namespace {

using testing::HasSubstr;

// A plan on a device, ready to generate.
struct Loaded {
  explicit Loaded(const core::TinyPlanOptions &options,
                  std::unique_ptr<core::Device> on = host::makeHostDevice({.unpaced = true}))
      : plan(core::tinyPlan(options)), device(std::move(on)) {
    const auto weights = model::syntheticWeights(1);
    auto loaded = core::Runtime::load(plan, *device, {}, weights.get(), {});
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    runtime = *std::move(loaded);
    EXPECT_TRUE(KvHandover::reserve(*runtime).ok());
  }
  const plan::Plan plan;
  const std::unique_ptr<core::Device> device;
  std::unique_ptr<core::Runtime> runtime;
};

GenerateRequest smallRequest() {
  GenerateRequest request;
  request.prompts = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {42}, {7, 7, 149}};
  request.maxNewTokens = 8;
  request.sampling = {.temperature = 1, .topP = 0.9f, .seed = 3};
  request.sampling.repetitionPenalty = 1.5f; // of ids that are handed over, too
  request.sampling.frequencyPenalty = 0.5f;
  return request;
}

// Prefills on one runtime and decodes on another one of a different placement.
TEST(KvHandover, AnotherInstanceDecodesWhatOneHasPrefilled) {
  Loaded whole({}), left({}), right({.offloaded = {0, 2}, .wrap = true});
  const GenerateRequest request = smallRequest();
  const auto expected = generate(*whole.runtime, request);
  ASSERT_TRUE(expected.ok()) << expected.status();
  std::vector<std::vector<int32_t>> tokens(3);
  const auto made = [&](core::Runtime &runtime) {
    EngineOptions options{.watermark = 0, .depth = 1};
    options.onToken = [&](const EngineToken &token) { tokens[token.request - 1].push_back(token.token); };
    return *Engine::create(runtime, std::move(options));
  };
  const auto of = [&](size_t s, int64_t newTokens) {
    Sampling sampling = request.sampling;
    sampling.seed += s;
    return EngineRequest{
        .prompt = request.prompts[s], .maxNewTokens = newTokens, .sampling = sampling, .keepBlocks = newTokens == 1};
  };
  const std::unique_ptr<Engine> prefill = made(*left.runtime), decode = made(*right.runtime);
  for (size_t s = 0; s < 3; ++s)
    ASSERT_EQ(*prefill->submit(of(s, 1)), s + 1);
  while (*prefill->launch({}))
    ASSERT_TRUE(prefill->read().ok());
  // Some blocks are taken there, so that numbers differ.
  std::vector<int32_t> taken;
  ASSERT_TRUE(right.runtime->kvBlocks().grow(taken, 4).ok());
  KvHandover handover;
  for (size_t s = 0; s < 3; ++s) {
    ASSERT_EQ(*decode->submitPrefilled(of(s, 8), tokens[s].at(0)), s + 1);
    ASSERT_TRUE(handover.move(*left.runtime, prefill->blocksOf(s + 1), *right.runtime, decode->blocksOf(s + 1)).ok());
  }
  while (*decode->launch({}))
    ASSERT_TRUE(decode->read().ok());
  EXPECT_EQ(tokens, expected->tokens);
}

TEST(KvHandover, CountsWholeBlocks) {
  // 4 layers x (K and V) x 32 rows x 4 tokens x 4 bytes = 4096 a block.
  const plan::Plan plan = core::tinyPlan({});
  EXPECT_EQ(plan::movedBlockBytes(plan), 4096u + 4 * 4); // with the ids of 4 tokens
  EXPECT_EQ(handoverBlocks(plan, {1, 4, 5}), 4u);
  EXPECT_EQ(handoverBytes(plan, 4), 4 * (4096u + 4 * 4));
}

TEST(KvHandover, RefusesCachesThatDifferAndBlocksThatAreNone) {
  Loaded left({}), right({}), wide({.blockTokens = 8}), opt({.spec = core::tinyOpt(4)});
  KvHandover handover;
  const int32_t one[] = {1}, two[] = {1, 2}, scratch[] = {0}, beyond[] = {9999};
  EXPECT_THAT(std::string(handover.move(*left.runtime, one, *wide.runtime, one).message()),
              HasSubstr("tokens a block 4 and 8"));
  EXPECT_THAT(std::string(handover.move(*left.runtime, one, *opt.runtime, one).message()), HasSubstr("models"));
  EXPECT_THAT(std::string(handover.move(*left.runtime, one, *right.runtime, two).message()),
              HasSubstr("1 blocks into 2"));
  EXPECT_THAT(std::string(handover.move(*left.runtime, scratch, *right.runtime, one).message()),
              HasSubstr("KV block 0"));
  EXPECT_THAT(std::string(handover.move(*left.runtime, one, *right.runtime, beyond).message()),
              HasSubstr("KV block 9999: expected 1 to"));
  Loaded virtualOne({}, sim::makeSimDevice());
  EXPECT_TRUE(handover.move(*left.runtime, one, *virtualOne.runtime, one).ok()); // nothing to move
}

} // namespace
} // namespace headrace::serve
