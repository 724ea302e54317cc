// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/engine/Engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>

#include "runtime/host/HostDevice.h"
#include "runtime/sim/SimDevice.h"
#include "tests/support/TinyPlan.h"
#include "tests/support/WrongWeights.h"

namespace headrace::serve {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

// An engine on a small plan, and what it has told: context 40, batch 3, 30 blocks of 4 tokens, iterations of 7 rows.
class Served {
public:
  explicit Served(EngineOptions options = {}, std::unique_ptr<core::Device> device = nullptr,
                  std::vector<core::ChangedValue> wrong = {})
      : plan_(core::tinyPlan({.offloaded = {1}})),
        device_(device != nullptr ? std::move(device) : host::makeHostDevice({.unpaced = true})) {
    const core::WrongWeights weights(1, std::move(wrong));
    auto runtime = core::Runtime::load(plan_, *device_, {}, &weights, {});
    EXPECT_TRUE(runtime.ok()) << runtime.status();
    runtime_ = *std::move(runtime);
    options.onToken = [this](const EngineToken &token) {
      tokens[token.request].push_back(token.token);
      logits[token.request].insert(logits[token.request].end(), token.logits.begin(), token.logits.end());
    };
    options.onEnd = [this](const EngineEnd &end) {
      EXPECT_TRUE(ends.emplace(end.request, end).second) << "request " << end.request << " ended twice";
      order.push_back(end.request);
    };
    options.onIteration = [this](const EngineIteration &iteration) { iterations.push_back(iteration); };
    made_ = Engine::create(*runtime_, std::move(options));
  }
  const absl::Status &made() const { return made_.status(); }
  Engine &engine() { return **made_; }
  core::Runtime &runtime() { return *runtime_; }
  uint64_t submit(EngineRequest request) {
    const auto id = engine().submit(std::move(request));
    EXPECT_TRUE(id.ok()) << id.status();
    return id.value_or(0);
  }
  void toEnd() {
    for (int steps = 0;; ++steps) {
      ASSERT_LT(steps, 10000);
      const auto more = engine().step();
      ASSERT_TRUE(more.ok()) << more.status();
      if (!*more)
        break;
    }
    EXPECT_EQ(runtime_->kvBlocks().endOfUse(), 1);
    EXPECT_EQ(engine().running() + engine().waiting(), 0u);
  }

  std::map<uint64_t, std::vector<int32_t>> tokens;
  std::map<uint64_t, std::vector<float>> logits;
  std::map<uint64_t, EngineEnd> ends;
  std::vector<uint64_t> order; // of ends
  std::vector<EngineIteration> iterations;

private:
  const plan::Plan plan_;
  const std::unique_ptr<core::Device> device_;
  std::unique_ptr<core::Runtime> runtime_;
  absl::StatusOr<std::unique_ptr<Engine>> made_;
};

EngineRequest request(std::vector<int32_t> prompt, int64_t newTokens = 8) {
  return {.prompt = std::move(prompt), .maxNewTokens = newTokens};
}

std::vector<int32_t> alone(const EngineRequest &asked) {
  Served served;
  const uint64_t id = served.submit(asked);
  served.toEnd();
  return served.tokens[id];
}

TEST(Engine, RefusesOptionsByName) {
  const auto refusal = [](EngineOptions options) { return std::string(Served(std::move(options)).made().message()); };
  EXPECT_EQ(refusal({}), "");
  EXPECT_EQ(refusal({.maxNumSeqs = 4}), "max_num_seqs = 4, expected 1 to the plan's batch of 3");
  EXPECT_EQ(refusal({.maxNumSeqs = -1}), "max_num_seqs = -1, expected 1 to the plan's batch of 3");
  EXPECT_EQ(refusal({.maxNumBatchedTokens = 2}),
            "max_num_batched_tokens = 2, expected max_num_seqs = 3 to the plan's largest mixed bucket of 7");
  EXPECT_THAT(refusal({.maxNumBatchedTokens = 8}), StartsWith("max_num_batched_tokens = 8, expected"));
  EXPECT_EQ(refusal({.watermark = 1}), "watermark = 1, expected 0 or more and less than 1");
  EXPECT_THAT(refusal({.watermark = std::numeric_limits<double>::quiet_NaN()}), StartsWith("watermark = nan"));
  EXPECT_EQ(refusal({.depth = 3}), "depth = 3, expected 1 or 2 iterations in flight");
}

TEST(Engine, RefusesRequestsByName) {
  Served served;
  const auto refusal = [&](const EngineRequest &asked) {
    return std::string(served.engine().submit(asked).status().message());
  };
  EXPECT_EQ(refusal(request({})), "the prompt is empty, expected at least one token id");
  EXPECT_EQ(refusal(request({1, 150})),
            "the prompt: token id 150 at position 1 is outside the vocabulary, expected 0 to 149");
  EXPECT_EQ(refusal(request({1}, 0)), "max new tokens = 0, expected at least 1");
  EXPECT_EQ(refusal(request({1}, 40)), "the prompt: 1 tokens and 40 new ones are more than the plan's context of 40");
  EXPECT_THAT(refusal({.prompt = {1}, .sampling = {.temperature = -1}}), HasSubstr("temperature = -1"));
  EXPECT_THAT(refusal({.prompt = {1}, .keepLogits = true}), HasSubstr("the engine was made without"));
  EXPECT_EQ(served.engine().submit(request({1}, 39)).value_or(0), 1u); // refusals take no id
}

TEST(Engine, APromptThatIsNotCutMustFitAnIteration) {
  Served served({.maxNumBatchedTokens = 6, .prefill = Prefill::Whole});
  EXPECT_EQ(served.engine().submit(request({1, 2, 3, 4, 5, 6, 7})).status().message(),
            "the prompt has 7 tokens, without chunked prefill an iteration holds 6");
  EXPECT_TRUE(served.engine().submit(request({1, 2, 3, 4, 5, 6})).ok());
}

TEST(Engine, CancelKnowsItsIds) {
  Served served;
  EXPECT_EQ(served.engine().cancel(1).message(), "request 1 is not known: it was not submitted, or has ended");
  const uint64_t id = served.submit(request({1, 2}));
  EXPECT_TRUE(served.engine().cancel(id).ok());
  EXPECT_TRUE(served.engine().cancel(id).ok()); // not taken in yet
  served.toEnd();
  EXPECT_EQ(served.ends.at(id).reason, EndReason::Cancelled);
  EXPECT_EQ(served.engine().counters().iterations, 0u);
  EXPECT_EQ(served.engine().cancel(id).code(), absl::StatusCode::kNotFound);
}

TEST(Engine, TakesNothingAfterShutdownAndRunsWhatItHas) {
  Served served;
  const uint64_t id = served.submit(request({1, 2}));
  served.engine().shutdown();
  EXPECT_EQ(served.engine().submit(request({1})).status().message(),
            "the engine was shut down, it takes no more requests");
  served.toEnd();
  EXPECT_EQ(served.ends.at(id).reason, EndReason::Length);
  EXPECT_EQ(served.tokens.at(id).size(), 8u);
}

TEST(Engine, SequencesJoinAndLeaveAtAnyEdge) {
  Served served({.maxNumSeqs = 2});
  const std::vector<EngineRequest> asked{request({1, 2, 3}, 4), request({4, 5}, 9), request({6}, 2),
                                         request({7, 8}, 3)};
  for (const EngineRequest &one : asked)
    served.submit(one);
  served.toEnd();
  for (size_t i = 0; i < asked.size(); ++i)
    EXPECT_EQ(served.tokens.at(i + 1), alone(asked[i]));
  // 1: iterations 1 to 4, 2: 1 to 9, 3: 5 and 6, 4: 7 to 9. Of those that end together the one that decodes first
  // comes first in the iteration.
  EXPECT_THAT(served.order, ElementsAre(1, 3, 2, 4));
  EXPECT_EQ(served.engine().counters().iterations, 9u);
  EXPECT_EQ(served.engine().counters().prefillIterations, 3u);
  EXPECT_EQ(served.engine().counters().thrownAwayRows, 0u);
  for (const EngineIteration &iteration : served.iterations)
    EXPECT_EQ(iteration.sequences, 2);
}

// Two seats: 1 and 2 start with iteration 1, 3 with iteration 5, when 1 has ended; 4 is cancelled while it waits.
TEST(Engine, AnEndSaysWhenItsRequestStarted) {
  Served served({.maxNumSeqs = 2});
  for (const int64_t newTokens : {4, 9, 2, 3})
    served.submit(request({1, 2}, newTokens));
  ASSERT_TRUE(served.engine().step().ok());
  ASSERT_TRUE(served.engine().cancel(4).ok());
  served.toEnd();
  EXPECT_EQ(served.ends.at(1).startNs, served.iterations[0].launchNs);
  EXPECT_EQ(served.ends.at(2).startNs, served.iterations[0].launchNs);
  EXPECT_EQ(served.ends.at(3).startNs, served.iterations[4].launchNs);
  EXPECT_EQ(served.ends.at(4).startNs, -1);
}

TEST(Engine, ARequestThatComesLaterJoinsTheNextIteration) {
  Served served;
  served.submit(request({1, 2, 3}, 20));
  for (int steps = 0; steps < 6; ++steps)
    ASSERT_TRUE(served.engine().step().ok());
  const EngineRequest second = request({9, 9, 9, 9, 9, 9, 9, 9}, 3);
  const uint64_t launched = served.engine().counters().iterations;
  const uint64_t id = served.submit(second);
  served.toEnd();
  EXPECT_EQ(served.tokens.at(id), alone(second));
  // 6 rows beside the decode, then 2.
  EXPECT_EQ(served.iterations[launched].tokens, 7);
  EXPECT_EQ(served.iterations[launched + 1].tokens, 3);
  EXPECT_EQ(served.engine().counters().iterations, 20u);
}

// A stop is seen when the next iteration is launched already: two in flight, one row thrown away.
TEST(Engine, StopTokensKeepTwoInFlight) {
  const std::vector<int32_t> free = alone(request({1, 2, 3}, 12));
  size_t at = 3; // of a token that does not come before
  while (at < 10 && std::count(free.begin(), free.begin() + static_cast<ptrdiff_t>(at), free[at]) > 0)
    ++at;
  ASSERT_LT(at, 10u);
  for (const size_t depth : {size_t{1}, size_t{2}}) {
    Served served({.depth = depth});
    EngineRequest asked = request({1, 2, 3}, 12);
    asked.stopTokens = {free[at]};
    served.submit(asked);
    size_t most = 0;
    while (served.ends.empty()) {
      ASSERT_TRUE(served.engine().step().ok());
      most = std::max(most, served.engine().inFlight());
    }
    // The stop is told at once; blocks go back when the row behind it was read.
    EXPECT_EQ(served.engine().inFlight(), depth - 1);
    EXPECT_EQ(served.runtime().kvBlocks().endOfUse() == 1, depth == 1);
    served.toEnd();
    EXPECT_EQ(most, depth);
    EXPECT_EQ(served.ends.at(1).reason, EndReason::Stop);
    EXPECT_EQ(served.tokens.at(1), std::vector<int32_t>(free.begin(), free.begin() + static_cast<ptrdiff_t>(at) + 1));
    // One iteration a token, the first of them with the prompt.
    EXPECT_EQ(served.engine().counters().iterations, at + 1 + (depth - 1));
    EXPECT_EQ(served.engine().counters().thrownAwayRows, depth - 1);
  }
}

TEST(Engine, ACancelledSequenceLeavesAtOnceAndItsRowsInFlightAreThrownAway) {
  Served served;
  const uint64_t gone = served.submit(request({1, 2, 3}, 30)), other = served.submit(request({4}, 10));
  while (served.tokens[gone].size() < 3)
    ASSERT_TRUE(served.engine().step().ok());
  EXPECT_EQ(served.engine().inFlight(), 1u);
  ASSERT_TRUE(served.engine().cancel(gone).ok());
  ASSERT_TRUE(served.engine().step().ok());
  EXPECT_EQ(served.ends.at(gone).reason, EndReason::Cancelled);
  EXPECT_EQ(served.engine().running(), 1u);
  served.toEnd();
  EXPECT_EQ(served.tokens.at(gone).size(), 3u);
  EXPECT_EQ(served.tokens.at(other), alone(request({4}, 10)));
  EXPECT_EQ(served.engine().counters().thrownAwayRows, 1u);
}

// Two are in flight but for the time that a request runs which keeps its logits.
TEST(Engine, LogitsAreKeptOfThoseThatAskForThem) {
  EngineRequest keeps = request({4, 5}, 5);
  keeps.keepLogits = true;
  Served lone({.logits = true});
  lone.submit(keeps);
  lone.toEnd();
  ASSERT_EQ(lone.logits.at(1).size(), size_t{5 * 150});

  Served served({.logits = true});
  const uint64_t other = served.submit(request({1, 2, 3}, 20));
  std::map<bool, size_t> most; // in flight, while logits are kept or not
  uint64_t id = 0;
  for (bool more = true; more;) {
    if (served.tokens[other].size() == 4 && id == 0)
      id = served.submit(keeps);
    const auto stepped = served.engine().step();
    ASSERT_TRUE(stepped.ok()) << stepped.status();
    more = *stepped;
    size_t &of = most[id != 0 && !served.tokens[id].empty() && served.ends.count(id) == 0];
    of = std::max(of, served.engine().inFlight());
  }
  EXPECT_EQ(most[true], 1u);
  EXPECT_EQ(most[false], 2u);
  EXPECT_EQ(served.logits.at(id), lone.logits.at(1));
  EXPECT_TRUE(served.logits.at(other).empty());
  EXPECT_EQ(served.tokens.at(other), alone(request({1, 2, 3}, 20)));
}

// 8 blocks of 4 tokens. Each request has 8 tokens and brings 15 more: 23 rows, 6 blocks. With 4 blocks each, at 16
// rows, the first needs another: the second is preempted, and comes back, with 5 blocks, once the first has ended.
TEST(Engine, APreemptedSequenceIsPrefilledAnewAndItsTokensAreTheSame) {
  for (const float temperature : {0.0f, 0.9f}) {
    std::vector<EngineRequest> asked{request({1, 2, 3, 4, 5, 6, 7, 8}, 16), request({9, 8, 7, 6, 5, 4, 3, 2}, 16)};
    Served served({.watermark = 0});
    ASSERT_TRUE(served.runtime().kvBlocks().setLimit(9).ok());
    for (EngineRequest &one : asked) {
      one.sampling = {.temperature = temperature, .topP = 0.9f, .seed = one.prompt[0] * 100u};
      served.submit(one);
    }
    served.toEnd();
    EXPECT_EQ(served.engine().counters().preemptions, 1u);
    EXPECT_EQ(served.ends.at(1).preemptions, 0u);
    EXPECT_EQ(served.ends.at(2).preemptions, 1u);
    EXPECT_EQ(served.ends.at(2).startNs, served.iterations[1].launchNs); // 7 rows an iteration
    EXPECT_THAT(served.order, ElementsAre(1, 2));
    EXPECT_EQ(served.tokens.at(1), alone(asked[0]));
    EXPECT_EQ(served.tokens.at(2), alone(asked[1]));
  }
}

TEST(Engine, ARequestThatThePresentBlocksCannotHoldAloneFails) {
  Served served;
  ASSERT_TRUE(served.runtime().kvBlocks().setLimit(4).ok()); // 12 rows
  const uint64_t large = served.submit(request({1, 2, 3, 4, 5, 6, 7, 8}, 16)), small = served.submit(request({4}, 10));
  served.toEnd();
  EXPECT_EQ(served.ends.at(large).reason, EndReason::Failed);
  EXPECT_EQ(served.ends.at(large).why.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(served.ends.at(large).why.message()),
              StartsWith("position 12: the request has 3 KV blocks and needs one more, placement"));
  EXPECT_EQ(served.tokens.at(large).size(), 5u); // of rows 8 to 12
  EXPECT_EQ(served.tokens.at(small), alone(request({4}, 10)));
}

TEST(Engine, WrongNumbersEndTheirRequestAlone) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  Served served({}, nullptr, {{"embedding", model::TensorRole::TokenTable, 7, 3, kNan}});
  // Token 7 comes from the second prompt only.
  const std::vector<EngineRequest> asked{request({1, 2, 3}, 6), request({4, 7, 5}, 6), request({5}, 6)};
  for (const EngineRequest &one : asked) {
    const std::vector<int32_t> tokens = alone(one);
    ASSERT_EQ(std::count(tokens.begin(), tokens.end(), 7), 0);
    served.submit(one);
  }
  served.toEnd();
  EXPECT_EQ(served.ends.at(2).reason, EndReason::Failed);
  EXPECT_EQ(served.ends.at(2).why.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(served.ends.at(2).why.message(),
            "position 3: the logits are not finite (NaN or infinite), so there is no token; the first step that made "
            "such numbers: embed embedding, at position 1, column 3 (nan)");
  EXPECT_EQ(served.tokens.count(2), 0u);
  EXPECT_EQ(served.tokens.at(1), alone(asked[0]));
  EXPECT_EQ(served.tokens.at(3), alone(asked[2]));
}

// 3 seats of 30 blocks of 4 tokens, iterations of 7 rows. The first batch: prompts of 5, 2 and 3 tokens padded to 5, 15
// rows in iterations of 7, 7 and 1; outputs of 3, 9 and 1: 8 iterations of decode for all three. The second batch: one
// prompt of 2 tokens, 2 outputs.
TEST(Engine, AStaticBatchIsPaddedAndEndsTogether) {
  for (const size_t depth : {size_t{1}, size_t{2}}) {
    Served served({.batching = Batching::Static, .depth = depth});
    const std::vector<EngineRequest> asked{request({1, 2, 3, 4, 5}, 3), request({6, 7}, 9), request({8, 9, 10}, 1),
                                           request({11, 12}, 2)};
    for (const EngineRequest &one : asked)
      served.submit(one);
    served.toEnd();
    for (size_t i = 0; i < asked.size(); ++i)
      EXPECT_EQ(served.tokens.at(i + 1), alone(asked[i]));
    EXPECT_THAT(served.order, ElementsAre(3, 1, 2, 4));
    std::vector<int64_t> tokens;
    for (const EngineIteration &iteration : served.iterations)
      tokens.push_back(iteration.tokens);
    EXPECT_THAT(tokens, ElementsAre(7, 7, 1, 3, 3, 3, 3, 3, 3, 3, 3, 2, 1));
    EXPECT_EQ(served.engine().counters().paddedRows, 5u);
    // Of 8 rows of decode each, the first needs 2, the third none.
    EXPECT_EQ(served.engine().counters().thrownAwayRows, 14u);
    EXPECT_EQ(served.engine().counters().preemptions, 0u);
  }
}

// 19 blocks: 24 rows each for the longest prompt with the longest output are 6 blocks, so three fit; of 31 two do.
TEST(Engine, AStaticBatchIsAsLargeAsItsBlocks) {
  for (const int64_t longest : {16, 23}) {
    Served served({.batching = Batching::Static});
    ASSERT_TRUE(served.runtime().kvBlocks().setLimit(20).ok());
    for (const int64_t output : {int64_t{4}, longest, int64_t{4}})
      served.submit(request({1, 2, 3, 4, 5, 6, 7, 8}, output));
    served.toEnd();
    EXPECT_EQ(served.iterations.back().sequences, longest == 16 ? 3 : 1);
    EXPECT_EQ(served.engine().counters().preemptions, 0u);
  }
}

// Stop tokens and cancellation end a request at once; its seat is free when the batch is over.
TEST(Engine, AStaticBatchKeepsTheSeatsOfThoseThatHaveEnded) {
  const std::vector<int32_t> free = alone(request({1, 2, 3}, 12));
  Served served({.maxNumSeqs = 2, .batching = Batching::Static});
  EngineRequest stops = request({1, 2, 3}, 12);
  stops.stopTokens = {free[0]};
  const uint64_t stopped = served.submit(stops), gone = served.submit(request({4, 5}, 30)),
                 next = served.submit(request({6}, 2));
  while (served.tokens[gone].size() < 5) {
    ASSERT_TRUE(served.engine().step().ok());
    EXPECT_EQ(served.engine().waiting(), 1u);
  }
  EXPECT_EQ(served.ends.at(stopped).reason, EndReason::Stop);
  EXPECT_EQ(served.engine().running(), 2u);
  ASSERT_TRUE(served.engine().cancel(gone).ok());
  served.toEnd();
  EXPECT_EQ(served.ends.at(gone).reason, EndReason::Cancelled);
  EXPECT_EQ(served.tokens.at(next), alone(request({6}, 2)));
}

TEST(Engine, CallbacksMaySubmitAndCancel) {
  const plan::Plan plan = core::tinyPlan({});
  const auto device = sim::makeSimDevice();
  const auto runtime = core::Runtime::load(plan, *device, {}, nullptr, {});
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  std::unique_ptr<Engine> engine;
  std::vector<EndReason> ends;
  EngineOptions options;
  options.onToken = [&](const EngineToken &token) {
    if (token.request == 2) {
      EXPECT_TRUE(engine->cancel(2).ok());
    }
  };
  options.onEnd = [&](const EngineEnd &end) {
    ends.push_back(end.reason);
    EXPECT_EQ(engine->cancel(end.request).code(), absl::StatusCode::kNotFound);
    if (end.request == 1) {
      EXPECT_EQ(engine->submit(request({3}, 10)).value_or(0), 2u);
    }
  };
  engine = *Engine::create(**runtime, options);
  ASSERT_TRUE(engine->submit(request({1}, 2)).ok());
  for (absl::StatusOr<bool> more = true; *more; more = engine->step())
    ASSERT_TRUE(more.ok());
  EXPECT_THAT(ends, ElementsAre(EndReason::Length, EndReason::Cancelled));
}

} // namespace
} // namespace headrace::serve
