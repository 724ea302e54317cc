// SPDX-License-Identifier: Apache-2.0
//
// Requests that go on where another has ended, in its KV blocks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "runtime/host/HostDevice.h"
#include "runtime/serve/engine/Engine.h"
#include "tests/support/TinyPlan.h"

namespace headrace::serve {
namespace {

using testing::HasSubstr;
using Ids = std::vector<int32_t>;

// An engine on a small plan with a layer away: context 40, batch 3, 30 blocks of 4 tokens, iterations of 7 rows.
class Talk {
public:
  explicit Talk(EngineOptions options = {})
      : plan_(core::tinyPlan({.offloaded = {1}})), device_(host::makeHostDevice({.unpaced = true})) {
    const auto weights = model::syntheticWeights(1);
    auto runtime = core::Runtime::load(plan_, *device_, {}, weights.get(), {});
    EXPECT_TRUE(runtime.ok()) << runtime.status();
    runtime_ = *std::move(runtime);
    options.onToken = [this](const EngineToken &token) {
      tokens[token.request].push_back(token.token);
      if (onToken)
        onToken(token);
    };
    options.onEnd = [this](const EngineEnd &end) { ends.emplace(end.request, end); };
    options.onIteration = [this](const EngineIteration &iteration) { rows += iteration.tokens; };
    auto made = Engine::create(*runtime_, std::move(options));
    EXPECT_TRUE(made.ok()) << made.status();
    engine = *std::move(made);
  }

  uint64_t submit(const Ids &prompt, uint64_t continues = 0, int64_t newTokens = 6) {
    const auto id =
        engine->submit({.prompt = prompt, .maxNewTokens = newTokens, .keepBlocks = true, .continues = continues});
    EXPECT_TRUE(id.ok()) << id.status();
    return id.value_or(0);
  }
  void cancel(uint64_t id) { EXPECT_TRUE(engine->cancel(id).ok()); }
  void toEnd() {
    for (int steps = 0;; ++steps) {
      ASSERT_LT(steps, 10000);
      const auto more = engine->step();
      ASSERT_TRUE(more.ok()) << more.status();
      if (!*more)
        break;
    }
  }
  int64_t blocksInUse() const { return plan_.kvBlocks - 1 - runtime_->kvBlocks().freeBlocks(); }

  std::map<uint64_t, Ids> tokens;
  std::map<uint64_t, EngineEnd> ends;
  std::function<void(const EngineToken &)> onToken;
  int64_t rows = 0; // computed

private:
  const plan::Plan plan_;
  const std::unique_ptr<core::Device> device_;
  std::unique_ptr<core::Runtime> runtime_;

public:
  std::unique_ptr<Engine> engine; // goes before them
};

Ids operator+(Ids a, const Ids &b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// The tokens of a prompt on an engine of its own.
Ids alone(const Ids &prompt, int64_t newTokens = 6) {
  Talk talk;
  const uint64_t id = talk.submit(prompt, 0, newTokens);
  talk.toEnd();
  return talk.tokens[id];
}

TEST(ContinuedRequests, WhatIsInTheCacheIsNotComputedAgain) {
  Talk talk;
  const Ids first = {1, 2, 3, 4, 5};
  const uint64_t one = talk.submit(first);
  talk.toEnd();
  EXPECT_EQ(talk.rows, 10); // 5 of the prompt, and the first 5 of 6 tokens
  EXPECT_EQ(talk.blocksInUse(), 3);
  const Ids second = first + talk.tokens[one] + Ids{7, 8};
  talk.rows = 0;
  const uint64_t two = talk.submit(second, one);
  talk.toEnd();
  EXPECT_EQ(talk.ends.at(two).reusedTokens, 10);
  EXPECT_EQ(talk.rows, 13 - 10 + 5);
  EXPECT_EQ(talk.tokens[two], alone(second));
  EXPECT_EQ(talk.blocksInUse(), 5); // 18 tokens: one request's, the other's are its
  talk.engine->releaseBlocks(one);  // nothing is there any more
  EXPECT_EQ(talk.blocksInUse(), 5);
  talk.engine->releaseBlocks(two);
  EXPECT_EQ(talk.blocksInUse(), 0);
}

TEST(ContinuedRequests, OnlyTheCommonBeginningIsTakenOver) {
  Talk talk;
  const Ids first = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  const uint64_t one = talk.submit(first);
  talk.toEnd();
  Ids second = first + talk.tokens[one];
  second[6] = 11; // 6 are common: two blocks of 4 stay, the second is written from its third row on
  const uint64_t two = talk.submit(second, one);
  talk.toEnd();
  EXPECT_EQ(talk.ends.at(two).reusedTokens, 6);
  EXPECT_EQ(talk.tokens[two], alone(second));
  const uint64_t three = talk.submit({12, 2, 3}, two);
  talk.toEnd();
  EXPECT_EQ(talk.ends.at(three).reusedTokens, 0);
  EXPECT_EQ(talk.tokens[three], alone({12, 2, 3}));
}

TEST(ContinuedRequests, ThePromptItselfIsSampledFromAgain) {
  Talk talk;
  const Ids prompt = {1, 2, 3, 4};
  const uint64_t one = talk.submit(prompt);
  talk.toEnd();
  const uint64_t two = talk.submit(prompt, one);
  talk.toEnd();
  EXPECT_EQ(talk.ends.at(two).reusedTokens, 3); // the last row gives the logits
  EXPECT_EQ(talk.tokens[two], talk.tokens[one]);
}

// Cancelled with two iterations in flight: rows of tokens that nobody was told are in the cache, and do not count.
TEST(ContinuedRequests, OneThatWasCancelledIsContinuedFromTheTokensThatWereTold) {
  Talk talk;
  const Ids first = {1, 2, 3};
  talk.onToken = [&](const EngineToken &token) {
    if (talk.tokens[token.request].size() == 4 && talk.ends.empty())
      talk.cancel(token.request);
  };
  const uint64_t one = talk.submit(first, 0, 20);
  talk.toEnd();
  EXPECT_EQ(talk.ends.at(one).reason, EndReason::Cancelled);
  ASSERT_EQ(talk.tokens[one].size(), 4u);
  const Ids second = first + talk.tokens[one] + Ids{9};
  const uint64_t two = talk.submit(second, one);
  talk.toEnd();
  EXPECT_EQ(talk.ends.at(two).reusedTokens, 7);
  EXPECT_EQ(talk.tokens[two], alone(second));
}

// It stopped in iteration N, and N + 1 has a row of it.
TEST(ContinuedRequests, WaitsForWhatIsStillInFlight) {
  Talk talk;
  const Ids first = {1, 2, 3};
  const int32_t stop = alone(first)[4];
  const uint64_t one =
      *talk.engine->submit({.prompt = first, .maxNewTokens = 20, .stopTokens = {stop}, .keepBlocks = true});
  while (talk.ends.empty())
    ASSERT_TRUE(talk.engine->step().ok());
  ASSERT_GT(talk.engine->inFlight(), 0u);
  const Ids second = first + talk.tokens[one] + Ids{9};
  const uint64_t two = talk.submit(second, one);
  talk.toEnd();
  EXPECT_EQ(talk.ends.at(two).reusedTokens, static_cast<int64_t>(second.size()) - 1); // the stop token's row as well
  EXPECT_EQ(talk.tokens[two], alone(second));
}

TEST(ContinuedRequests, RefusesOneThatHasNotEnded) {
  Talk talk;
  const uint64_t one = talk.submit({1, 2, 3});
  const auto two = talk.engine->submit({.prompt = {1, 2, 3, 4}, .maxNewTokens = 1, .continues = one});
  EXPECT_EQ(two.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(two.status().message()), HasSubstr("request 1, which is to be continued, has not ended"));
  talk.toEnd();
}

TEST(ContinuedRequests, StaticBatchesContinueNothing) {
  Talk talk({.batching = Batching::Static});
  const auto id = talk.engine->submit({.prompt = {1, 2}, .maxNewTokens = 1, .continues = 1});
  EXPECT_THAT(std::string(id.status().message()), HasSubstr("expected continuous batching"));
}

// Three conversations at once, of turns that keep, change or cut what was said, some of which are cancelled: every turn
// has the tokens of its prompt alone.
TEST(ContinuedRequests, ConversationsSideBySideAreEachTheirOwn) {
  std::mt19937 random(1);
  const auto draw = [&](int n) { return static_cast<int32_t>(random() % static_cast<uint32_t>(n)); };
  int64_t reused = 0, cancelled = 0;
  for (int round = 0; round < 12; ++round) {
    Talk talk({.depth = static_cast<size_t>(1 + round % 2)});
    std::map<uint64_t, Ids> prompts;
    std::map<uint64_t, size_t> cancelAt;
    talk.onToken = [&](const EngineToken &token) {
      const auto at = cancelAt.find(token.request);
      if (at != cancelAt.end() && talk.tokens[token.request].size() == at->second)
        talk.cancel(token.request);
    };
    std::vector<uint64_t> last(3, 0);
    for (int turn = 0; turn < 4; ++turn) {
      for (uint64_t &id : last) {
        Ids prompt = id == 0 ? Ids{} : prompts[id] + talk.tokens[id];
        if (prompt.size() > 1 && draw(3) == 0)
          prompt.resize(static_cast<size_t>(1 + draw(static_cast<int>(prompt.size()) - 1)));
        for (int more = 1 + draw(4); more > 0; --more)
          prompt.push_back(draw(13));
        if (prompt.size() > 34)
          prompt.resize(34);
        id = talk.submit(prompt, id, 1 + draw(6));
        prompts[id] = prompt;
        if (draw(4) == 0)
          cancelAt[id] = static_cast<size_t>(1 + draw(3));
      }
      talk.toEnd();
    }
    for (const auto &[id, prompt] : prompts) {
      const Ids whole = alone(prompt, 6);
      const Ids &told = talk.tokens[id];
      EXPECT_EQ(told, Ids(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(told.size()))) << "request " << id;
      reused += talk.ends.at(id).reusedTokens;
      cancelled += talk.ends.at(id).reason == EndReason::Cancelled;
    }
    for (const uint64_t id : last)
      talk.engine->releaseBlocks(id);
    EXPECT_EQ(talk.blocksInUse(), 0);
  }
  EXPECT_GT(reused, 300);
  EXPECT_GT(cancelled, 5);
}

} // namespace
} // namespace headrace::serve
