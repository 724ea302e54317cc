// SPDX-License-Identifier: Apache-2.0
//
// The engine one edge at a time, as a fleet drives it: context 40, batch 3, 30 blocks of 4 tokens, iterations of 7
// rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "runtime/host/HostDevice.h"
#include "runtime/serve/engine/Engine.h"
#include "tests/support/TinyPlan.h"

namespace headrace::serve {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class EngineEdges : public testing::Test {
protected:
  void SetUp() override {
    const auto weights = model::syntheticWeights(1);
    auto runtime = core::Runtime::load(plan_, *device_, {}, weights.get(), {});
    ASSERT_TRUE(runtime.ok()) << runtime.status();
    runtime_ = *std::move(runtime);
    EngineOptions options{.watermark = 0, .depth = 1, .tellRows = true};
    options.onToken = [this](const EngineToken &token) { tokens_[token.request].push_back(token.token); };
    options.onEnd = [this](const EngineEnd &end) { ended_.push_back(end.request); };
    options.onIteration = [this](const EngineIteration &iteration) {
      rows_.clear();
      for (const EngineRows &rows : iteration.rows)
        rows_.push_back({static_cast<int64_t>(rows.request), rows.firstPosition, rows.count, rows.sample ? 1 : 0});
    };
    auto engine = Engine::create(*runtime_, std::move(options));
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
  }
  uint64_t submit(std::vector<int32_t> prompt, int64_t newTokens = 8, bool keepBlocks = false) {
    const auto id = engine_->submit({.prompt = std::move(prompt), .maxNewTokens = newTokens, .keepBlocks = keepBlocks});
    EXPECT_TRUE(id.ok()) << id.status();
    return id.value_or(0);
  }
  void edge(const EngineEdge &edge) {
    const auto launched = engine_->launch(edge);
    ASSERT_TRUE(launched.ok() && *launched) << launched.status();
    const absl::Status read = engine_->read();
    ASSERT_TRUE(read.ok()) << read;
  }

  const plan::Plan plan_ = core::tinyPlan({.offloaded = {1}});
  const std::unique_ptr<core::Device> device_ = host::makeHostDevice({.unpaced = true});
  std::unique_ptr<core::Runtime> runtime_;
  std::unique_ptr<Engine> engine_;
  std::map<uint64_t, std::vector<int32_t>> tokens_;
  std::vector<uint64_t> ended_;
  std::vector<std::vector<int64_t>> rows_; // of the last iteration: request, position, rows, samples
};

TEST_F(EngineEdges, ABudgetCutsThePromptsBesideThoseThatDecode) {
  submit({1, 2});
  edge({}); // its prompt
  submit({1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  edge({.budget = 5});
  EXPECT_THAT(rows_, ElementsAre(ElementsAre(1, 2, 1, 1), ElementsAre(2, 0, 4, 0)));
  edge({.budget = 3});
  EXPECT_THAT(rows_, ElementsAre(ElementsAre(1, 3, 1, 1), ElementsAre(2, 4, 2, 0)));
  edge({}); // all that an iteration holds
  EXPECT_THAT(rows_, ElementsAre(ElementsAre(1, 4, 1, 1), ElementsAre(2, 6, 4, 1)));
}

TEST_F(EngineEdges, PromptsMayRunAlone) {
  submit({1, 2});
  edge({});
  submit({1, 2, 3});
  edge({.prefill = Prefill::Separate});
  EXPECT_THAT(rows_, ElementsAre(ElementsAre(2, 0, 3, 1)));
}

TEST_F(EngineEdges, LaunchesNothingWhereNothingIsAndNeitherReads) {
  EXPECT_FALSE(*engine_->launch({}));
  EXPECT_EQ(engine_->oldestNumber(), 0u);
  EXPECT_EQ(engine_->read(), absl::FailedPreconditionError("no iteration is in flight"));
  submit({1});
  ASSERT_TRUE(*engine_->launch({}));
  EXPECT_EQ(engine_->oldestNumber(), 1u);
  EXPECT_FALSE(*engine_->launch({})); // one is in flight
  EXPECT_TRUE(engine_->read().ok());
}

TEST_F(EngineEdges, WhatIsCancelledGivesItsBlocksBackWhereItIsTakenIn) {
  const uint64_t id = submit({1, 2, 3, 4, 5});
  edge({});
  EXPECT_EQ(runtime_->kvBlocks().freeBlocks(), 30 - 2);
  ASSERT_TRUE(engine_->cancel(id).ok());
  engine_->takeIn();
  EXPECT_EQ(runtime_->kvBlocks().freeBlocks(), 30);
  EXPECT_THAT(ended_, ElementsAre(id));
}

TEST_F(EngineEdges, BlocksMayOutliveTheirRequest) {
  const uint64_t id = submit({1, 2, 3, 4, 5}, 1, true);
  edge({});
  EXPECT_THAT(ended_, ElementsAre(id));
  EXPECT_THAT(engine_->blocksOf(id), ElementsAre(1, 2));
  EXPECT_EQ(runtime_->kvBlocks().freeBlocks(), 30 - 2);
  engine_->releaseBlocks(id);
  EXPECT_TRUE(engine_->blocksOf(id).empty());
  EXPECT_EQ(runtime_->kvBlocks().freeBlocks(), 30);
}

TEST_F(EngineEdges, APromptThatWasPrefilledElsewhereJoinsWhereThereIsRoom) {
  const EngineRequest request{.prompt = {1, 2, 3, 4, 5}, .maxNewTokens = 3};
  const auto id = engine_->submitPrefilled(request, 7);
  ASSERT_TRUE(id.ok()) << id.status();
  EXPECT_THAT(engine_->blocksOf(*id), ElementsAre(1, 2));
  edge({});
  EXPECT_THAT(rows_, ElementsAre(ElementsAre(1, 5, 1, 1)));
  edge({});
  EXPECT_EQ(tokens_[*id].size(), 2u); // of three one was made elsewhere
  EXPECT_THAT(ended_, ElementsAre(*id));

  EngineRequest one = request;
  one.maxNewTokens = 1;
  EXPECT_THAT(std::string(engine_->submitPrefilled(one, 7).status().message()), HasSubstr("expected at least one"));
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(engine_->submitPrefilled(request, 7).ok());
  EXPECT_EQ(engine_->submitPrefilled(request, 7).status(),
            absl::ResourceExhaustedError("no room to join: 0 of 3 seats and 24 KV blocks are free, 2 wanted"));
}

} // namespace
} // namespace headrace::serve
