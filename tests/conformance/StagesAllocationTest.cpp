// SPDX-License-Identifier: Apache-2.0
//
// An iteration over stages costs no allocation, nor does an engine's step there: this binary counts every call of the
// allocator.
#include "runtime/serve/engine/Engine.h"
#include "tests/conformance/StagesUnderTest.h"
#include "tests/conformance/SteadyLoad.h"
#include "tests/support/CountAllocations.h"

namespace headrace::core {
namespace {

void expectNone(bool virtualTime) {
  Served served({.sequences = 3, .interval = 1}, {0, 2, 4}, 3, virtualTime);
  std::vector<std::vector<int32_t>> blocks(3);
  std::vector<SequenceRows> rows(3);
  std::vector<absl::Span<const SequenceRows>> spans(3);
  std::vector<int64_t> at(3, 0);
  const int32_t id = 1;
  for (std::vector<int32_t> &of : blocks)
    of.reserve(kContext);
  const auto begin = [&](size_t m) {
    EXPECT_TRUE(served.stages().kvBlocks(0).grow(blocks[m], at[m] + 1).ok());
    rows[m] = {.tokens = {&id, 1}, .firstPosition = at[m]++, .blocks = blocks[m], .sample = true};
    spans[m] = {&rows[m], 1};
    EXPECT_TRUE(served.stages().begin({&spans[m], 1}).ok());
  };
  for (size_t m = 0; m < 3; ++m)
    begin(m);
  uint64_t before = 0;
  for (int i = 0; i < 40; ++i) {
    if (i == 5) // what is made once has been
      before = allocations.load();
    for (size_t m = 0; m < 3; ++m) {
      EXPECT_TRUE(served.stages().await().ok());
      if (at[m] == kContext / 2) {
        served.stages().kvBlocks(0).release(blocks[m]);
        at[m] = 0;
      }
      begin(m);
    }
  }
  EXPECT_EQ(allocations.load() - before, 0u);
  for (size_t m = 0; m < 3; ++m)
    EXPECT_TRUE(served.stages().await().ok());
}

TEST(StagesAllocation, NoneOnTheHost) { expectNone(false); }
TEST(StagesAllocation, NoneInVirtualTime) { expectNone(true); }

// Requests join, are preempted, cancelled and end; from the tenth on as many are known as ever will be.
void expectNoneOfAnEngine(bool virtualTime) {
  Served served({.sequences = 4, .interval = 2, .kvTokens = 64}, {0, 2, 4}, 3, virtualTime);
  uint64_t ended = 0, cancelled = 0;
  serve::EngineOptions options;
  options.onEnd = [&](const serve::EngineEnd &end) {
    ++ended;
    cancelled += end.reason == serve::EndReason::Cancelled;
  };
  const auto engine = serve::Engine::create(served.stages(), std::move(options));
  ASSERT_TRUE(engine.ok()) << engine.status();
  serve::Steady steady;
  serve::runSteadily(**engine, {.room = 48, .maxNewTokens = 30, .stopTokens = {}}, ended, steady);
  EXPECT_EQ(steady.allocations, 0u);
  EXPECT_GT(steady.preemptions, 0u);
  EXPECT_GT(cancelled, 3u);
}

TEST(StagesAllocation, NoneOfAnEngineOnTheHost) { expectNoneOfAnEngine(false); }
TEST(StagesAllocation, NoneOfAnEngineInVirtualTime) { expectNoneOfAnEngine(true); }

} // namespace
} // namespace headrace::core
