// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/engine/BatchRun.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/host/HostDevice.h"
#include "runtime/serve/fleet/KvHandover.h"
#include "runtime/sim/SimDevice.h"
#include "tests/support/TinyPlan.h"

namespace headrace::serve {
namespace {

using testing::ElementsAre;
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
  return request;
}

TEST(BatchRun, StepByStepGivesTheTokensOfOneCall) {
  Loaded whole({}), stepped({});
  const GenerateRequest request = smallRequest();
  const auto expected = generate(*whole.runtime, request);
  ASSERT_TRUE(expected.ok()) << expected.status();
  BatchRun run(*stepped.runtime);
  ASSERT_TRUE(run.begin(request).ok());
  EXPECT_FALSE(run.prefilled());
  std::vector<int64_t> rows;
  while (!run.done()) {
    ASSERT_EQ(*run.launchNext(0), true);
    EXPECT_EQ(run.oldestNumber(), run.lastLaunched().number);
    int64_t count = 0;
    for (const ComposedRows &part : run.lastLaunched().rows)
      count += part.rows;
    rows.push_back(count);
    EXPECT_EQ(run.lastLaunched().prefill, rows.size() <= 2);
    ASSERT_TRUE(run.readOldest().ok());
    EXPECT_EQ(run.lastRead().number, rows.size());
    EXPECT_EQ(run.prefilled(), rows.size() >= 2);
    for (const ReadToken &token : run.lastRead().tokens)
      EXPECT_EQ(token.gapNs < 0, run.tokens()[token.sequence].size() == 1);
  }
  // Buckets of 7 rows: 7 | 3 + 1 + 3 | 3 decode rows, seven times.
  EXPECT_THAT(rows, ElementsAre(7, 7, 3, 3, 3, 3, 3, 3, 3));
  EXPECT_EQ(*run.launchNext(0), false);
  EXPECT_EQ(run.takeResult().tokens, expected->tokens);
  EXPECT_TRUE(run.end().ok());
}

TEST(BatchRun, RunsOneRequestAfterTheOther) {
  Loaded loaded({.offloaded = {1, 3}, .wrap = true});
  const GenerateRequest request = smallRequest();
  const auto expected = generate(*loaded.runtime, request);
  BatchRun run(*loaded.runtime);
  const int64_t free = run.kvBlocks().freeBlocks();
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(run.begin(request).ok());
    while (!run.done()) {
      // As many in flight as the request allows.
      const auto launched = run.launchNext(0);
      ASSERT_TRUE(launched.ok());
      if (!*launched) {
        ASSERT_TRUE(run.readOldest().ok());
      }
    }
    EXPECT_EQ(run.tokens(), expected->tokens);
    EXPECT_TRUE(run.end().ok());
    EXPECT_EQ(run.kvBlocks().freeBlocks(), free);
  }
}

TEST(BatchRun, EndsInTheMiddleWithNothingInFlightAndEveryBlockGivenBack) {
  Loaded loaded({});
  const GenerateRequest request = smallRequest();
  BatchRun run(*loaded.runtime);
  const int64_t free = run.kvBlocks().freeBlocks();
  ASSERT_TRUE(run.begin(request).ok());
  ASSERT_TRUE(*run.launchNext(0));
  ASSERT_TRUE(*run.launchNext(0));
  EXPECT_LT(run.kvBlocks().freeBlocks(), free);
  EXPECT_TRUE(run.end().ok());
  EXPECT_EQ(run.inFlight(), 0u);
  EXPECT_FALSE(run.active());
  EXPECT_EQ(run.kvBlocks().freeBlocks(), free);
}

TEST(BatchRun, RefusesWhatDoesNotFollow) {
  Loaded loaded({});
  BatchRun run(*loaded.runtime);
  EXPECT_EQ(run.launchNext(0).status().code(), absl::StatusCode::kFailedPrecondition);
  const GenerateRequest request = smallRequest();
  ASSERT_TRUE(run.begin(request).ok());
  EXPECT_THAT(std::string(run.begin(request).message()), HasSubstr("another one cannot begin"));
  EXPECT_THAT(std::string(run.launchNext(1).status().message()), HasSubstr("placement 1 asked for"));
  EXPECT_THAT(std::string(run.readOldest().message()), HasSubstr("no iteration is in flight"));
  EXPECT_TRUE(run.end().ok());
  GenerateRequest empty;
  EXPECT_EQ(run.begin(empty).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(run.active());
  EXPECT_THAT(std::string(run.beginPrefilled(request, {1, 2}).message()), HasSubstr("2 first tokens of 3 prompts"));
}

// Prefills on one runtime and decodes on another one of a different placement.
TEST(KvHandover, AnotherInstanceDecodesWhatOneHasPrefilled) {
  Loaded whole({}), left({}), right({.offloaded = {0, 2}, .wrap = true});
  const GenerateRequest request = smallRequest();
  const auto expected = generate(*whole.runtime, request);
  BatchRun prefill(*left.runtime), decode(*right.runtime);
  GenerateRequest first = request;
  first.maxNewTokens = 1;
  prefill.keepBlocks(true);
  ASSERT_TRUE(prefill.begin(first).ok());
  while (!prefill.done()) {
    ASSERT_TRUE(*prefill.launchNext(0));
    ASSERT_TRUE(prefill.readOldest().ok());
  }
  std::vector<int32_t> tokens;
  for (const auto &one : prefill.tokens())
    tokens.push_back(one.at(0));
  // Some blocks are taken there, so that numbers differ.
  std::vector<int32_t> taken;
  ASSERT_TRUE(decode.kvBlocks().grow(taken, 4).ok());
  ASSERT_TRUE(decode.beginPrefilled(request, tokens).ok());
  EXPECT_TRUE(decode.prefilled());
  KvHandover handover;
  for (size_t s = 0; s < 3; ++s)
    ASSERT_TRUE(handover.move(*left.runtime, prefill.blocksOf(s), *right.runtime, decode.blocksOf(s)).ok());
  ASSERT_TRUE(prefill.end().ok());
  while (!decode.done()) {
    ASSERT_TRUE(decode.launchNext(0).ok());
    ASSERT_TRUE(decode.readOldest().ok());
  }
  EXPECT_EQ(decode.tokens(), expected->tokens);
}

TEST(KvHandover, CountsWholeBlocks) {
  // 4 layers x (K and V) x 32 rows x 4 tokens x 4 bytes = 4096 a block.
  const plan::Plan plan = core::tinyPlan({});
  EXPECT_EQ(kvBlockBytesOfAllLayers(plan), 4096u);
  EXPECT_EQ(handoverBytes(plan, {1, 4, 5}), 4 * 4096u);
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
