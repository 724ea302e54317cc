// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/traffic/Metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace headrace::serve {
namespace {

using namespace std::chrono_literals;
using testing::DoubleNear;
using testing::ElementsAre;

constexpr int64_t kMs = 1'000'000;

RequestTimes served(int64_t arrival, int64_t start, int64_t first, int64_t last, int64_t prompt, int64_t output) {
  return {.arrivalNs = arrival * kMs,
          .startNs = start * kMs,
          .firstTokenNs = first * kMs,
          .lastTokenNs = last * kMs,
          .promptTokens = prompt,
          .outputTokens = output};
}

// numpy.percentile([10, 20, 30, 40], [0, 50, 90, 100]) = [10, 25, 37, 40]; deviation sqrt(125).
TEST(SummarizeNs, IsNumpys) {
  const LatencySummary of = summarizeNs({40 * kMs, 10 * kMs, 30 * kMs, 20 * kMs}, {0, 50, 90, 100});
  EXPECT_EQ(of.count, 4u);
  EXPECT_EQ(of.meanMs, 25);
  EXPECT_EQ(of.medianMs, 25);
  EXPECT_NEAR(of.stdMs, std::sqrt(125), 1e-12);
  EXPECT_EQ(of.maxMs, 40);
  EXPECT_THAT(of.percentilesMs, ElementsAre(10, 25, DoubleNear(37, 1e-12), 40));
  EXPECT_THAT(summarizeNs({7 * kMs}, {0, 99, 100}).percentilesMs, ElementsAre(7, 7, 7));
  const LatencySummary none = summarizeNs({}, {50, 99});
  EXPECT_EQ(none.count, 0u);
  EXPECT_THAT(none.percentilesMs, ElementsAre(0, 0));
}

// Two requests in two seconds, 5 and 1 tokens, one refused, one failed after 2 tokens.
TrafficResult traffic() {
  TrafficResult result;
  result.requests = {served(0, 10, 100, 500, 30, 5),
                     served(100, 100, 2000, 2000, 10, 1),
                     {.arrivalNs = 5 * kMs, .why = absl::InvalidArgumentError("too long")},
                     served(10, 20, 30, 40, 8, 2)};
  result.requests[3].reason = EndReason::Failed;
  result.requests[3].why = absl::AbortedError("not finite");
  result.requests[0].preemptions = 2;
  result.requests[3].preemptions = 1;
  result.itlNs = {100 * kMs, 100 * kMs, 50 * kMs, 150 * kMs};
  result.durationNs = 2000 * kMs;
  result.kvBlocks = 100;
  result.peakKvBlocks = 60;
  return result;
}

TEST(Summarize, CountsWhatWasCompleted) {
  const TrafficMetrics of = summarize(traffic(), {});
  EXPECT_EQ(of.requests, 4u);
  EXPECT_EQ(of.completed, 2u);
  EXPECT_EQ(of.refused, 1u);
  EXPECT_EQ(of.failed, 1u);
  EXPECT_EQ(of.inputTokens, 40);
  EXPECT_EQ(of.outputTokens, 6);
  EXPECT_EQ(of.durationS, 2);
  EXPECT_EQ(of.requestThroughput, 1);
  EXPECT_EQ(of.outputThroughput, 3);
  EXPECT_EQ(of.totalThroughput, 23);
  EXPECT_EQ(of.requestGoodput, 0);
  EXPECT_EQ(of.ttft.meanMs, (100 + 1900) / 2.0);
  EXPECT_EQ(of.tpot.count, 1u); // one token has none
  EXPECT_EQ(of.tpot.meanMs, 100);
  EXPECT_EQ(of.itl.count, 4u);
  EXPECT_EQ(of.itl.meanMs, 100);
  EXPECT_THAT(of.itl.percentilesMs, ElementsAre(100, DoubleNear(148.5, 1e-9))); // 50, 100, 100, 150: rank 2.97
  EXPECT_EQ(of.e2el.meanMs, (500 + 1900) / 2.0);
  EXPECT_EQ(of.queueing.meanMs, 5);
  EXPECT_EQ(of.preemptions, 3u);
  EXPECT_EQ(of.preemptedRequests, 2u);
  EXPECT_EQ(of.peakKvBlocks, 60);
  EXPECT_EQ(of.kvBlocks, 100);
  EXPECT_EQ(of.peakConcurrency, 2u); // from 100 to 500 ms
}

// Eight requests, one a second. Each takes `seconds` alone, one after the other.
TrafficMetrics oneByOne(int64_t seconds) {
  constexpr int64_t kSecond = 1'000'000'000;
  TrafficResult result;
  for (int64_t i = 0; i < 8; ++i) {
    const int64_t start = std::max(i, i * seconds) * kSecond;
    result.requests.push_back({.arrivalNs = i * kSecond,
                               .startNs = start,
                               .firstTokenNs = start + seconds * kSecond,
                               .lastTokenNs = start + seconds * kSecond,
                               .promptTokens = 1,
                               .outputTokens = 1});
  }
  result.durationNs = result.requests.back().lastTokenNs;
  return summarize(result, {});
}

TEST(Summarize, AQueueThatGrewAsLongAsRequestsCameIsOverload) {
  const TrafficMetrics kept = oneByOne(1);
  EXPECT_EQ(kept.offeredRate, 1);
  EXPECT_EQ(kept.waitingAtLastArrival, 0u);
  EXPECT_FALSE(kept.overloaded());
  // At 7 s the last one comes, and those that start at 8, 10, 12 and 14 s wait.
  const TrafficMetrics missed = oneByOne(2);
  EXPECT_EQ(missed.offeredRate, 1);
  EXPECT_EQ(missed.requestThroughput, 0.5);
  EXPECT_EQ(missed.waitingAtLastArrival, 4u);
  EXPECT_TRUE(missed.overloaded());
}

TEST(Summarize, WhatComesAtOnceIsNoOverload) {
  TrafficResult result;
  for (int64_t i = 0; i < 8; ++i)
    result.requests.push_back({.startNs = i, .firstTokenNs = i + 1, .lastTokenNs = i + 1, .outputTokens = 1});
  result.durationNs = 8;
  EXPECT_EQ(summarize(result, {}).offeredRate, 0);
  EXPECT_FALSE(summarize(result, {}).overloaded());
}

// The first: TTFT 100, TPOT 100, end to end 500. The second: 1900, 0, 1900.
TEST(Summarize, GoodputIsOfThoseWithinAllObjectives) {
  const auto goodput = [](GoodputObjectives objectives) {
    return summarize(traffic(), {.goodput = objectives}).requestGoodput;
  };
  EXPECT_EQ(goodput({.ttft = 100ms}), 0.5);
  EXPECT_EQ(goodput({.ttft = 99'900us}), 0);
  EXPECT_EQ(goodput({.ttft = 1900ms}), 1);
  EXPECT_EQ(goodput({.tpot = 99ms}), 0.5); // one token meets any TPOT
  EXPECT_EQ(goodput({.ttft = 1900ms, .tpot = 99ms, .e2el = 500ms}), 0);
  EXPECT_EQ(goodput({.e2el = 500ms}), 0.5);
}

TEST(Summarize, NothingCompletedIsZeroEverywhere) {
  TrafficResult result;
  result.requests = {{.why = absl::InvalidArgumentError("too long")}};
  const TrafficMetrics of = summarize(result, {.goodput = {.ttft = 1ms}});
  EXPECT_EQ(of.refused, 1u);
  EXPECT_EQ(of.requestThroughput, 0);
  EXPECT_EQ(of.requestGoodput, 0);
  EXPECT_EQ(of.ttft.meanMs, 0);
  EXPECT_EQ(of.peakConcurrency, 0u);
}

TEST(ParseGoodput, TakesVllmsWordsAndRefusesOthersByName) {
  const std::vector<std::string> words{"ttft:200", "tpot:12.5ms", "e2el:5s"};
  const auto parsed = parseGoodput(words);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->ttft, 200ms);
  EXPECT_EQ(parsed->tpot, 12'500us);
  EXPECT_EQ(parsed->e2el, 5s);
  EXPECT_FALSE(parseGoodput({})->any());
  const auto refusal = [](const std::vector<std::string> &bad) {
    return std::string(parseGoodput(bad).status().message());
  };
  EXPECT_EQ(refusal({"itl:5"}), "goodput \"itl:5\": expected ttft:MS, tpot:MS or e2el:MS");
  EXPECT_EQ(refusal({"ttft"}), "goodput \"ttft\": expected ttft:MS, tpot:MS or e2el:MS");
  EXPECT_EQ(refusal({"ttft:1", "ttft:2"}), "goodput \"ttft:2\": ttft stands twice");
  for (const char *const ms : {"0", "-1", "nan", "inf", "", "0s", "5m", "1e-7", "1e300"})
    EXPECT_EQ(refusal({std::string("tpot:") + ms}),
              std::string("goodput \"tpot:") + ms +
                  "\": expected milliseconds above zero, or such a time with its unit, such as 0.5s");
}

TEST(ParsePercentiles, TakesAListAndRefusesOthersByName) {
  EXPECT_THAT(*parsePercentiles("50,99,99.9"), ElementsAre(50, 99, 99.9));
  EXPECT_THAT(*parsePercentiles("0"), ElementsAre(0));
  for (const auto &[text, word] : std::vector<std::pair<std::string, std::string>>{
           {"", ""}, {"50,", ""}, {"101", "101"}, {"50,-1", "-1"}, {"p99", "p99"}, {"nan", "nan"}})
    EXPECT_EQ(parsePercentiles(text).status().message(),
              "percentile \"" + word + "\": expected a number from 0 to 100");
}

} // namespace
} // namespace headrace::serve
