// SPDX-License-Identifier: Apache-2.0
//
// Preemption by swapping. Random traffic on random plans: tests/conformance/EngineTest.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "runtime/host/HostDevice.h"
#include "runtime/plan/value/CacheMap.h"
#include "runtime/serve/engine/Engine.h"
#include "runtime/sim/SimDevice.h"
#include "tests/support/TinyPlan.h"

namespace headrace::serve {
namespace {

using testing::HasSubstr;
using Ids = std::vector<int32_t>;

// Four layers, blocks of 4 tokens and 1 KiB a layer: a slot has 4 x 1024 + 4 x 4 = 4,112 bytes. Six blocks.
constexpr uint64_t kSlot = 4112;

class EngineSwap : public testing::TestWithParam<bool> {
protected:
  EngineSwap() : plan_(core::tinyPlan({.offloaded = {1}})) { load(1000, 31000); }
  // With these predictions of an iteration without prompts, and of one with them.
  void load(uint64_t decodeNs, uint64_t mixedNs) {
    engine_.reset();
    runtime_.reset();
    plan_.variants[0].predictedNs = decodeNs;
    plan_.variants[1].predictedNs = mixedNs;
    if (GetParam())
      device_ = sim::makeSimDevice();
    else
      device_ = host::makeHostDevice({.unpaced = true});
    const auto weights = model::syntheticWeights(1);
    auto runtime = core::Runtime::load(plan_, *device_, {}, weights.get(), {});
    EXPECT_TRUE(runtime.ok()) << runtime.status();
    runtime_ = *std::move(runtime);
  }
  void start(EngineOptions options, int64_t blocks = 6) {
    engine_.reset();
    ASSERT_TRUE(runtime_->kvBlocks().setLimit(blocks + 1).ok());
    tokens_.clear();
    rows_ = 0;
    options.onToken = [this](const EngineToken &token) { tokens_[token.request].push_back(token.token); };
    options.onEnd = [this](const EngineEnd &end) {
      if (onEnd_)
        onEnd_(end);
    };
    options.onIteration = [this](const EngineIteration &iteration) { rows_ += iteration.tokens; };
    auto made = Engine::create(*runtime_, std::move(options));
    ASSERT_TRUE(made.ok()) << made.status();
    engine_ = *std::move(made);
  }
  // 4 tokens and 16 new ones: rows for 19 of them, in 5 blocks.
  uint64_t submit(int32_t first) {
    const auto id = engine_->submit({.prompt = {first, 2, 3, 4}, .maxNewTokens = 16});
    EXPECT_TRUE(id.ok()) << id.status();
    return id.value_or(0);
  }
  void toEnd() {
    for (int steps = 0;; ++steps) {
      ASSERT_LT(steps, 10000);
      const auto more = engine_->step();
      ASSERT_TRUE(more.ok()) << more.status();
      if (!*more)
        return;
    }
  }
  void toFirstSwap() { // which has begun in the last step
    for (int steps = 0; counters().swapsOut == 0; ++steps) {
      ASSERT_LT(steps, 10000);
      ASSERT_TRUE(engine_->step().ok());
    }
    ASSERT_TRUE(engine_->swapping());
  }
  int64_t inUse() const { return runtime_->kvBlocks().blocksInUseAbove(0); }
  const EngineCounters &counters() const { return engine_->counters(); }

  plan::Plan plan_;
  std::unique_ptr<core::Device> device_;
  std::unique_ptr<core::Runtime> runtime_;
  std::unique_ptr<Engine> engine_; // goes before them
  std::map<uint64_t, Ids> tokens_;
  std::function<void(const EngineEnd &)> onEnd_;
  int64_t rows_ = 0; // computed
};

// Two of five blocks each in six: the younger is away while the older ends. No row is computed twice.
TEST_P(EngineSwap, WhoIsSwappedGoesOnWhereItWas) {
  EXPECT_EQ(plan::movedBlockBytes(plan_), kSlot);
  std::map<uint64_t, Ids> apart;
  start({.preemption = Preemption::Recompute});
  submit(1);
  toEnd();
  submit(7);
  toEnd();
  apart = tokens_;
  start({.preemption = Preemption::Swap, .swapBytes = 6 * kSlot + 1});
  const core::DeviceCounters before = device_->counters();
  submit(1);
  submit(7);
  toEnd();
  EXPECT_EQ(tokens_, apart);
  EXPECT_GE(counters().swapsOut, 1u);
  EXPECT_EQ(counters().swapsOut, counters().preemptions);
  EXPECT_EQ(counters().swapsIn, counters().swapsOut);
  EXPECT_EQ(counters().swapFallbacks, 0u);
  EXPECT_EQ(counters().swapOutBytes, counters().swapInBytes);
  EXPECT_EQ(counters().swapOutBytes % kSlot, 0u);
  EXPECT_EQ(rows_, 2 * 19);
  EXPECT_EQ(inUse(), 0);
  EXPECT_EQ(device_->counters().d2hBytes - before.d2hBytes, counters().swapOutBytes); // nothing else goes to the host
}

TEST_P(EngineSwap, WhereSwapMemoryIsFullTokensAreComputedAnew) {
  start({.preemption = Preemption::Swap, .swapBytes = kSlot});
  submit(1);
  submit(7);
  toEnd();
  EXPECT_EQ(counters().swapsOut, 0u); // it has two blocks or more by then
  EXPECT_GE(counters().preemptions, 1u);
  EXPECT_EQ(counters().swapFallbacks, counters().preemptions);
  EXPECT_GT(rows_, 2 * 19);
  EXPECT_EQ(inUse(), 0);
}

// Three blocks are 12,336 bytes, a nanosecond each, there and back, and a microsecond each way; in iterations of 7 rows
// 12 tokens take two with prompts instead of without.
TEST_P(EngineSwap, AutoTakesTheCheaperWay) {
  EXPECT_EQ(SwapPrice(plan_).swapNs(3 * kSlot), 2u * 12336 + 2 * 1000);
  for (const uint64_t mixedNs : {31000, 2000}) {
    load(1000, mixedNs);
    EXPECT_EQ(SwapPrice(plan_).recomputeNs(0, 12, 7), 2 * (mixedNs - 1000));
    EXPECT_EQ(SwapPrice(plan_).pays(0, 12, 7, 3 * kSlot), mixedNs == 31000);
    start({.preemption = Preemption::Auto, .swapBytes = 6 * kSlot});
    submit(1);
    submit(7);
    toEnd();
    EXPECT_GE(counters().preemptions, 1u);
    EXPECT_EQ(mixedNs == 31000 ? counters().swapsOut : counters().swapFallbacks, counters().preemptions);
    EXPECT_EQ(inUse(), 0);
  }
}

// Cancelled so many steps after its swap-out began: while its blocks are on their way out, away, on their way back, and
// while it runs again. The third waits for a seat, and runs beside the copies back.
TEST_P(EngineSwap, WhoIsCancelledWhileItIsAwayGivesAllBack) {
  int out = 0, away = 0, back = 0, again = 0;
  for (int after = 0; again == 0; ++after) {
    SCOPED_TRACE(after);
    ASSERT_LT(after, 1000);
    start({.maxNumSeqs = 2, .preemption = Preemption::Swap, .swapBytes = 6 * kSlot});
    const uint64_t older = submit(1), younger = submit(7);
    const uint64_t third = engine_->submit({.prompt = {3}, .maxNewTokens = 4}).value_or(0);
    toFirstSwap();
    for (int left = after; left > 0; --left)
      ASSERT_TRUE(engine_->step().ok());
    const bool comesBack = counters().swapsIn > 0;
    ++(engine_->swapping() ? comesBack ? back : out : comesBack ? again : away);
    ASSERT_TRUE(engine_->cancel(younger).ok());
    toEnd();
    EXPECT_EQ(tokens_[older].size(), 16u);
    EXPECT_LT(tokens_[younger].size(), 16u);
    EXPECT_EQ(tokens_[third].size(), 4u);
    EXPECT_FALSE(engine_->swapping());
    EXPECT_EQ(inUse(), 0);
  }
  // On the host a copy may be over before the step that began it is.
  EXPECT_GE(GetParam() ? std::min({out, away, back}) : out + away + back, 1);
}

// Of nine blocks the older takes its five, and the younger wants a fifth behind its 16 rows: it is swapped out itself.
// Cancelled in that step it keeps the four blocks, and of its 17 tokens, with one more behind them, 16 are there.
TEST_P(EngineSwap, AConversationThatIsCancelledOnItsWayOutKeepsItsBlocks) {
  start({.preemption = Preemption::Swap, .swapBytes = 9 * kSlot}, 9);
  std::vector<EngineEnd> ends;
  onEnd_ = [&](const EngineEnd &end) { ends.push_back(end); };
  submit(1);
  EngineRequest turn{.prompt = {7, 2, 3, 4}, .maxNewTokens = 16, .keepBlocks = true};
  const uint64_t cancelled = engine_->submit(turn).value_or(0);
  toFirstSwap();
  ASSERT_TRUE(engine_->cancel(cancelled).ok());
  toEnd();
  ASSERT_EQ(tokens_[cancelled].size(), 13u);
  EXPECT_EQ(counters().swapsIn, 0u);
  EXPECT_EQ(inUse(), 4);
  turn.prompt.insert(turn.prompt.end(), tokens_[cancelled].begin(), tokens_[cancelled].end());
  turn.prompt.push_back(5);
  turn.maxNewTokens = 2;
  turn.keepBlocks = false;
  const uint64_t alone = engine_->submit(turn).value_or(0);
  toEnd();
  turn.continues = cancelled;
  const uint64_t goesOn = engine_->submit(turn).value_or(0);
  toEnd();
  ASSERT_EQ(ends.size(), 4u); // which came in this order, the first two in any
  EXPECT_EQ(ends.back().request, goesOn);
  EXPECT_EQ(ends.back().reusedTokens, 16);
  EXPECT_EQ(tokens_[goesOn], tokens_[alone]);
  EXPECT_EQ(inUse(), 0);
}

TEST_P(EngineSwap, AnEngineMayGoWhileSequencesAreAway) {
  for (int steps = 1; steps < 60; ++steps) {
    start({.preemption = Preemption::Swap, .swapBytes = 6 * kSlot});
    submit(1);
    submit(7);
    for (int i = 0; i < steps; ++i)
      ASSERT_TRUE(engine_->step().ok());
    engine_.reset();
    EXPECT_EQ(inUse(), 0) << steps;
  }
}

TEST_P(EngineSwap, RefusesSwapMemoryThatHoldsNothing) {
  for (const uint64_t bytes : {uint64_t{0}, kSlot - 1}) {
    const auto refused = Engine::create(*runtime_, {.preemption = Preemption::Swap, .swapBytes = bytes});
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("expected at least 4112, a KV block"));
  }
  const auto lacks = Engine::create(*runtime_, {.preemption = Preemption::Swap, .swapBytes = uint64_t{1} << 42});
  EXPECT_EQ(lacks.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(lacks.status().message()), HasSubstr("swap memory"));
}

INSTANTIATE_TEST_SUITE_P(Devices, EngineSwap, testing::Bool(),
                         [](const auto &info) { return info.param ? "sim" : "host"; });

// Blocks of 4. The first has used its two up and needs a third.
TEST(SchedulerWithSwaps, WhoCanDoWithBlocksThatComeWaitsForThem) {
  const Scheduler scheduler({.maxNumSeqs = 4, .blockTokens = 4});
  const SequenceView first{.prefill = 4, .rows = 8, .blocks = 2}, second{.prefill = 4, .rows = 5, .blocks = 2};
  Composition next;
  scheduler.compose(std::vector{first, second}, 8, 0, next);
  EXPECT_EQ(next.preempted, 1u); // nothing comes
  scheduler.compose(std::vector{first, second}, 8, 0, next, /*comingBlocks=*/1);
  EXPECT_EQ(next.preempted, 0u);
  EXPECT_EQ(next.rows, (std::vector<int64_t>{0, 1}));
}

// Two of three have used their two blocks up, and one block comes: it is the first one's. For the second the youngest
// gives up its two.
TEST(SchedulerWithSwaps, ABlockThatComesIsWaitedForByOneOnly) {
  const Scheduler scheduler({.maxNumSeqs = 4, .blockTokens = 4});
  const SequenceView full{.prefill = 4, .rows = 8, .blocks = 2}, youngest{.prefill = 4, .rows = 5, .blocks = 2};
  Composition next;
  scheduler.compose(std::vector{full, full, youngest}, 8, 0, next, /*comingBlocks=*/1);
  EXPECT_EQ(next.rows, (std::vector<int64_t>{0, 1, 0}));
  EXPECT_EQ(next.preempted, 1u);
  scheduler.compose(std::vector{full, full, youngest}, 8, 0, next, /*comingBlocks=*/2); // one each
  EXPECT_EQ(next.rows, (std::vector<int64_t>{0, 0, 1}));
  EXPECT_EQ(next.preempted, 0u);
}

// Prompts of 8 of which 4 are there, without a block to go on with. Where nothing comes the youngest gives its own up.
TEST(SchedulerWithSwaps, PromptsThatHaveNoBlockWaitForWhatComes) {
  const Scheduler scheduler({.maxNumSeqs = 4, .blockTokens = 4});
  const SequenceView prompt{.prefill = 8, .rows = 4, .blocks = 1};
  SequenceView comes = prompt;
  comes.moving = true;
  Composition next;
  scheduler.compose(std::vector{prompt, prompt}, 8, 0, next);
  EXPECT_EQ(next.rows, (std::vector<int64_t>{4, 0}));
  EXPECT_EQ(next.preempted, 1u);
  scheduler.compose(std::vector{prompt, prompt}, 8, 0, next, /*comingBlocks=*/1);
  EXPECT_EQ(next.rows, (std::vector<int64_t>{0, 0}));
  EXPECT_EQ(next.preempted, 0u);
  scheduler.compose(std::vector{prompt, comes}, 8, 0, next); // which has rows then, and may end
  EXPECT_EQ(next.rows, (std::vector<int64_t>{0, 0}));
  EXPECT_EQ(next.preempted, 0u);
}

// Decodes wait for prompts that are brought in, not for one that is on its way back with rows to bring.
TEST(SchedulerWithSwaps, DecodesDoNotWaitForAPromptThatIsBroughtBack) {
  const Scheduler scheduler({.maxNumSeqs = 4, .blockTokens = 4, .prefill = Prefill::Separate});
  const SequenceView runs{.prefill = 4, .rows = 5, .blocks = 2};
  SequenceView prompt{.prefill = 8, .rows = 4, .blocks = 1};
  Composition next;
  scheduler.compose(std::vector{runs, prompt}, 8, 4, next);
  EXPECT_EQ(next.rows, (std::vector<int64_t>{0, 4}));
  prompt.moving = true;
  scheduler.compose(std::vector{runs, prompt}, 8, 4, next);
  EXPECT_EQ(next.rows, (std::vector<int64_t>{1, 0}));
}

// The youngest is on its way back: its two blocks are free once that has ended, and not before.
TEST(SchedulerWithSwaps, BlocksOfOneThatIsBroughtBackAreNotFreeYet) {
  const Scheduler scheduler({.maxNumSeqs = 4, .blockTokens = 4});
  const SequenceView full{.prefill = 4, .rows = 8, .blocks = 2};
  SequenceView comes{.prefill = 4, .rows = 6, .blocks = 2};
  comes.moving = true;
  Composition next;
  scheduler.compose(std::vector{full, comes}, 8, 0, next);
  EXPECT_EQ(next.rows, (std::vector<int64_t>{0, 0}));
  EXPECT_EQ(next.preempted, 1u);
  scheduler.compose(std::vector{full, full, comes}, 8, 0, next); // one for each of both
  EXPECT_EQ(next.rows, (std::vector<int64_t>{0, 0, 0}));
  EXPECT_EQ(next.preempted, 1u);
  comes.moving = false; // it is there: its blocks are free at once, and one is left for the second
  scheduler.compose(std::vector{full, full, comes}, 8, 0, next);
  EXPECT_EQ(next.rows, (std::vector<int64_t>{1, 1, 0}));
  EXPECT_EQ(next.preempted, 1u);
}

TEST(SchedulerWithSwaps, WhoIsBroughtBackHasNoRowsYet) {
  const Scheduler scheduler({.maxNumSeqs = 4, .blockTokens = 4});
  const SequenceView runs{.prefill = 4, .rows = 5, .blocks = 2};
  SequenceView comes{.prefill = 4, .rows = 6, .blocks = 2};
  comes.moving = true;
  Composition next;
  scheduler.compose(std::vector{runs, comes}, 8, 4, next);
  EXPECT_EQ(next.rows, (std::vector<int64_t>{1, 0}));
  scheduler.compose(std::vector{comes}, 8, 4, next);
  EXPECT_EQ(next.tokens, 0);
  EXPECT_EQ(next.preempted, 0u);
}

// It needs 2 blocks for its 6 rows and the next one; the one that runs needs a third for its next row.
TEST(SchedulerWithSwaps, WhoComesBackLeavesTheOthersTheirNextBlocks) {
  const Scheduler scheduler({.maxNumSeqs = 4, .blockTokens = 4});
  const SequenceView runs{.prefill = 4, .rows = 8, .blocks = 2}, away{.prefill = 4, .rows = 6};
  EXPECT_FALSE(scheduler.mayJoin(std::vector{runs}, away, 2));
  EXPECT_TRUE(scheduler.mayJoin(std::vector{runs}, away, 3));
  // One that goes on in the blocks of the turn before was preempted for nobody: it needs one for its 12 tokens.
  const SequenceView turn{.prefill = 12, .rows = 8, .blocks = 2};
  EXPECT_TRUE(scheduler.mayJoin(std::vector{runs}, turn, 1));
  EXPECT_FALSE(scheduler.mayJoin(std::vector{runs}, turn, 0));
}

} // namespace
} // namespace headrace::serve
