// SPDX-License-Identifier: Apache-2.0
#include "tools/timeline/TrafficSvg.h"

#include "tests/unit/tools/CountText.h"
#include <gmock/gmock.h>

namespace headrace::tools {
namespace {

using serve::EngineSample;
using serve::RequestTimes;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kSecond = 1'000'000'000;

RequestTimes request(int64_t arrival, int64_t start, int64_t first, int64_t last) {
  return {.arrivalNs = arrival * kSecond,
          .startNs = start * kSecond,
          .firstTokenNs = first * kSecond,
          .lastTokenNs = last * kSecond,
          .promptTokens = 8,
          .outputTokens = last > first ? 2 : 1};
}

// 1096 pixels from 76 on are 8 s: a second is 137.
TEST(TrafficSvg, ARowIsQueueingPrefillAndDecode) {
  serve::TrafficResult result;
  result.requests = {request(0, 1, 2, 8), request(1, 1, 3, 3)};
  result.durationNs = 8 * kSecond;
  const std::string svg = trafficSvg("m on h", "two requests", result);
  EXPECT_THAT(svg, HasSubstr(R"(<rect x="76.0" y="106.0" width="137.0" height="13.0" fill="#b4bcc6"/>)"));
  EXPECT_THAT(svg, HasSubstr(R"(<rect x="213.0" y="106.0" width="137.0" height="13.0" fill="#e08a2c"/>)"));
  EXPECT_THAT(svg, HasSubstr(R"(<rect x="350.0" y="106.0" width="822.0" height="13.0" fill="#3b76c4"/>)"));
  // The second did not wait, and has one token: background, three keys, three parts, queueing of nothing and prefill.
  EXPECT_EQ(count(svg, "<rect"), 1U + 3U + 3U + 2U);
  EXPECT_THAT(svg, HasSubstr("request 1: 8 tokens in, 2 out; arrived at 0 ns\nqueueing 1.00 s, TTFT 2.00 s, TPOT 6.00 "
                             "s, end to end 8.00 s"));
  EXPECT_THAT(svg, Not(HasSubstr("refused")));
  EXPECT_THAT(svg, Not(HasSubstr("KV cache")));
}

TEST(TrafficSvg, RefusedAndPreemptedAreMarked) {
  serve::TrafficResult result;
  result.requests = {request(0, 1, 2, 8), {.arrivalNs = 9 * kSecond}};
  result.requests[0].preemptions = 2;
  result.requests[1].why = absl::InvalidArgumentError("a context of 2 < 3");
  result.durationNs = 8 * kSecond;
  const std::string svg = trafficSvg("m on h", "", result);
  EXPECT_EQ(count(svg, "stroke=\"#d64545\""), 2U); // the cross and its key
  EXPECT_EQ(count(svg, "fill=\"#d64545\""), 2U);
  EXPECT_THAT(svg, HasSubstr("preempted 2 x"));
  EXPECT_THAT(svg, HasSubstr("a context of 2 &lt; 3"));
  EXPECT_THAT(svg, HasSubstr("M1169.0")); // the axis goes on to the one at 9 s: 76 + 1096 - 3
}

TEST(TrafficSvg, OfThousandsOneOfSeveralIsDrawn) {
  serve::TrafficResult result;
  for (int64_t i = 0; i < 1000; ++i)
    result.requests.push_back(request(i, i, i + 1, i + 2));
  result.durationNs = 1002 * kSecond;
  const std::string svg = trafficSvg("m on h", "", result);
  EXPECT_THAT(svg, HasSubstr("one of every 4 in order of arrival")); // 520 pixels are 260 rows of two
  EXPECT_EQ(count(svg, "<g>"), 250U);
  EXPECT_THAT(svg, HasSubstr("request 997:"));
  EXPECT_THAT(svg, Not(HasSubstr("request 998:")));
}

TEST(TrafficSvg, WhatTheEngineHadStandsBelow) {
  serve::TrafficResult result;
  result.requests = {request(0, 0, 4, 8)};
  result.durationNs = 8 * kSecond;
  result.kvBlocks = 10;
  result.samples = {{0, 5, 1, 0}, {4 * kSecond, 10, 1, 3}};
  const std::string svg = trafficSvg("m on h", "", result);
  EXPECT_THAT(svg, HasSubstr("KV cache in use, of 10 blocks"));
  // Half of the height until the middle, then all of it.
  EXPECT_THAT(svg, HasSubstr("M76.0 224.0H624.0V176.0H1172.0"));
}

TEST(TrafficSvg, NothingToDrawIsStillAPicture) { EXPECT_THAT(trafficSvg("", "", {}), HasSubstr("</svg>")); }

TEST(TrafficSvg, OfSeveralSamplesTheMostIsKept) {
  const std::vector<EngineSample> samples = {{0, 1, 5, 0}, {1, 4, 2, 1}, {2, 2, 2, 2}, {3, 1, 3, 0}};
  const std::vector<EngineSample> two = thinned(samples, 2);
  ASSERT_EQ(two.size(), 2U);
  EXPECT_EQ(two[0].ns, 0);
  EXPECT_EQ(two[0].kvBlocks, 4);
  EXPECT_EQ(two[0].running, 5U);
  EXPECT_EQ(two[0].waiting, 1U);
  EXPECT_EQ(two[1].ns, 2);
  EXPECT_EQ(two[1].running, 3U);
  EXPECT_EQ(thinned(samples, 4).size(), 4U);
}

} // namespace
} // namespace headrace::tools
