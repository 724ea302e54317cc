// SPDX-License-Identifier: Apache-2.0
//
// Requests are submitted and cancelled by several threads while the engine's own runs.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <thread>

#include "runtime/serve/engine/Engine.h"
#include "tests/conformance/DevicesUnderTest.h"
#include "tests/support/TinyPlan.h"

namespace headrace::serve {
namespace {

class EngineThreads : public testing::TestWithParam<std::tuple<core::DeviceUnderTest, Batching>> {};

// Four threads with 40 requests each, of which every fifth is cancelled by the next thread, at whatever moment that is.
TEST_P(EngineThreads, SubmitAndCancelWhileItRuns) {
  const plan::Plan plan = core::tinyPlan({.spec = core::tinyLlama(2), .offloaded = {1}});
  const core::DeviceUnderTest &under = std::get<0>(GetParam());
  const auto device = under.make();
  const auto weights = model::syntheticWeights(1);
  const auto runtime = core::Runtime::load(plan, *device, {}, weights.get(), {});
  ASSERT_TRUE(runtime.ok()) << runtime.status();

  constexpr int kThreads = 4, kRequests = 40;
  // A request by its prompt's first two tokens: of the thread and the number.
  const auto requestOf = [](int thread, int number) {
    return EngineRequest{.prompt = {thread, number, 5, 7}, .maxNewTokens = 1 + number % 9};
  };
  std::map<uint64_t, std::vector<int32_t>> tokens; // the engine's thread's
  std::map<uint64_t, EndReason> ends;
  EngineOptions options{.batching = std::get<1>(GetParam())};
  options.onToken = [&](const EngineToken &token) { tokens[token.request].push_back(token.token); };
  options.onEnd = [&](const EngineEnd &end) {
    EXPECT_TRUE(ends.emplace(end.request, end.reason).second) << "request " << end.request << " ended twice";
  };
  auto engine = Engine::create(**runtime, options);
  ASSERT_TRUE(engine.ok()) << engine.status();

  std::array<std::array<std::atomic<uint64_t>, kRequests>, kThreads> ids{};
  std::atomic<int> submitting{kThreads};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int n = 0; n < kRequests; ++n) {
        const auto id = (*engine)->submit(requestOf(t, n));
        EXPECT_TRUE(id.ok()) << id.status();
        ids[static_cast<size_t>(t)][static_cast<size_t>(n)] = *id;
        if (const uint64_t other = ids[static_cast<size_t>((t + 1) % kThreads)][static_cast<size_t>(n)];
            n % 5 == 0 && other != 0)
          if (const absl::Status status = (*engine)->cancel(other); !status.ok()) {
            EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status; // it has ended
          }
      }
      if (--submitting == 0)
        (*engine)->shutdown();
    });
  for (bool more = true; more || submitting > 0;) {
    const auto stepped = (*engine)->step();
    EXPECT_TRUE(stepped.ok()) << stepped.status();
    more = stepped.value_or(false);
    if (!stepped.ok())
      break;
  }
  for (std::thread &thread : threads)
    thread.join();
  for (bool more = true; more;) { // what came last
    const auto stepped = (*engine)->step();
    ASSERT_TRUE(stepped.ok()) << stepped.status();
    more = *stepped;
  }

  EXPECT_EQ((*engine)->submit(requestOf(0, 0)).status().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_EQ(ends.size(), size_t{kThreads * kRequests});
  EXPECT_EQ((*runtime)->kvBlocks().endOfUse(), 1);
  size_t whole = 0;
  for (size_t t = 0; t < kThreads; ++t)
    for (size_t n = 0; n < kRequests; ++n) {
      const uint64_t id = ids[t][n];
      const auto most = static_cast<size_t>(1 + n % 9);
      whole += ends.at(id) == EndReason::Length;
      EXPECT_TRUE(ends.at(id) == EndReason::Length ? tokens[id].size() == most
                                                   : n % 5 == 0 && tokens[id].size() <= most);
    }
  EXPECT_GE(whole, size_t{kThreads * kRequests * 4 / 5});
  if (!under.holdsData)
    return;
  engine->reset();
  for (size_t t = 0; t < kThreads; ++t) { // the longest of each thread, alone
    const auto alone = generate(**runtime, {.prompts = {requestOf(static_cast<int>(t), 8).prompt}, .maxNewTokens = 9});
    ASSERT_TRUE(alone.ok()) << alone.status();
    EXPECT_EQ(tokens[ids[t][8]], alone->tokens[0]);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, EngineThreads,
                         testing::Combine(testing::ValuesIn(core::kDevices),
                                          testing::Values(Batching::Continuous, Batching::Static)),
                         [](const auto &info) {
                           return std::string(std::get<0>(info.param).name) +
                                  (std::get<1>(info.param) == Batching::Static ? "Static" : "");
                         });

} // namespace
} // namespace headrace::serve
