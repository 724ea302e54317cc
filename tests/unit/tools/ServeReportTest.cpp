// SPDX-License-Identifier: Apache-2.0
#include "tools/report/ServeReport.h"

#include <limits>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

namespace headrace::tools {
namespace {

using serve::RequestTimes;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kMs = 1'000'000;

RequestTimes served(int64_t arrivalMs, int64_t startMs, int64_t firstMs, int64_t lastMs, int64_t tokens) {
  return {.arrivalNs = arrivalMs * kMs,
          .startNs = startMs * kMs,
          .firstTokenNs = firstMs * kMs,
          .lastTokenNs = lastMs * kMs,
          .promptTokens = 10,
          .outputTokens = tokens};
}
RequestTimes refused(int64_t arrivalMs, const std::string &why) {
  return {.arrivalNs = arrivalMs * kMs, .why = absl::InvalidArgumentError(why)};
}

ServeReport reportOf(std::vector<RequestTimes> requests, std::vector<double> rates = {2}) {
  ServeReport report;
  report.model = "m";
  report.hardware = "h";
  report.device = "sim";
  report.offloaded = "nothing";
  report.maxNumSeqs = 8;
  report.maxNumBatchedTokens = 64;
  report.prefill = "chunked prefill";
  report.dataset = "random";
  report.lengths = "10 tokens in, 5 out";
  report.numPrompts = static_cast<int64_t>(requests.size());
  report.percentiles = {50, 99};
  report.metrics.assign(serveMetrics().begin(), serveMetrics().end());
  report.goodput.ttft = std::chrono::milliseconds(100);
  serve::TrafficResult result;
  result.requests = std::move(requests);
  result.durationNs = 2000 * kMs;
  result.kvBlocks = 10;
  result.peakKvBlocks = 5;
  for (const double rate : rates)
    report.runs.push_back({rate, serve::summarize(result, {report.percentiles, report.goodput}), result});
  return report;
}

TEST(ServeReport, AFigureALineAndATableOfLatencies) {
  // Two requests of 5 tokens in 2 s; TTFT 50 and 150 ms, of which one is within 100.
  const std::string text = reportOf({served(0, 10, 50, 450, 5), served(100, 200, 250, 2000, 5)}).text(false);
  EXPECT_THAT(text, HasSubstr("traffic          2 requests, 10 tokens in, 5 out, 2 requests/s, seed 0\n"));
  EXPECT_THAT(text, HasSubstr("requests         2 successful\n"));
  EXPECT_THAT(text, HasSubstr("throughput       1.00 requests/s, 5.00 output tokens/s, 15.0 tokens/s in all\n"));
  EXPECT_THAT(text, HasSubstr("goodput          0.500 requests/s: 1 of 2 within TTFT 100 ms\n"));
  EXPECT_THAT(text, HasSubstr("KV cache         at most 5 of 10 blocks in use (50%)\n"));
  EXPECT_THAT(text, HasSubstr("\nms            mean    median       p99\n"));
  EXPECT_THAT(text, HasSubstr("\nTTFT       100.000   100.000   149.000\n")); // 50 + 0.99 x 100
  EXPECT_THAT(text, HasSubstr("\nITL              -         -         -\n"));
  EXPECT_THAT(text, HasSubstr("\nqueueing    55.000    55.000    99.100\n"));
}

TEST(ServeReport, PreemptionsAndTheRequestsThatHadThem) {
  RequestTimes twice = served(0, 10, 50, 450, 5);
  twice.preemptions = 2;
  EXPECT_THAT(reportOf({twice, served(0, 10, 50, 450, 5)}).text(false),
              HasSubstr("preemptions      2 by recompute, in 1 request\n"));
}

TEST(ServeReport, RefusalsAreTheSameButForTheirNumbers) {
  const std::vector<RequestTimes> requests = {refused(0, "unknown"), refused(1, "10 tokens, the plan has 8"),
                                              refused(2, "12 tokens, the plan has 8"), served(0, 0, 1, 2, 2)};
  const std::vector<ServeRefusal> refusals = refusalsOf(requests);
  ASSERT_EQ(refusals.size(), 2U);
  EXPECT_EQ(refusals[0].count, 2U);
  EXPECT_EQ(refusals[0].first, "10 tokens, the plan has 8");
  EXPECT_FALSE(refusals[0].started);
  EXPECT_EQ(refusals[1].first, "unknown");
  const ServeReport report = reportOf(requests);
  EXPECT_THAT(report.text(false), HasSubstr("requests         1 successful, 3 refused\n"
                                            "refused          2, the first: 10 tokens, the plan has 8\n"
                                            "refused          1: unknown\n"));
  const nlohmann::json json = nlohmann::json::parse(report.json());
  EXPECT_EQ(json["results"][0]["refused"], 3);
  EXPECT_EQ(json["results"][0]["refusals"][0]["count"], 2);
}

TEST(ServeReport, ThreeReasonsAreSaidAndTheOthersCounted) {
  const std::string three = reportOf({refused(0, "a"), refused(1, "b"), refused(2, "c")}).text(false);
  EXPECT_THAT(three, HasSubstr("refused          1: c\n"));
  EXPECT_THAT(three, Not(HasSubstr("more reasons")));
  const std::string five =
      reportOf({refused(0, "a"), refused(1, "b"), refused(2, "c"), refused(3, "d"), refused(4, "e")}).text(false);
  EXPECT_THAT(five, HasSubstr("refused          1: c\nrefused          2 more reasons: --json has them\n"));
}

TEST(ServeReport, OneThatFailedIsNotOneThatWasRefused) {
  RequestTimes failed = served(0, 10, 50, -1, 1);
  failed.lastTokenNs = -1;
  failed.reason = serve::EndReason::Failed;
  failed.why = absl::ResourceExhaustedError("no block");
  const std::string text = reportOf({failed}).text(false);
  EXPECT_THAT(text, HasSubstr("0 successful, 1 failed\nfailed           1: no block\n"));
}

// From 50 to 450 ms there are four gaps between five tokens. One token has none: no TPOT, which is not one of 0 ms.
TEST(ServeReport, WhatARequestDoesNotHaveIsNull) {
  ServeReport report = reportOf({served(0, 10, 50, 450, 5), served(0, 10, 50, 50, 1), refused(0, "unknown")});
  report.detailed = true;
  const nlohmann::json each = nlohmann::json::parse(report.json())["results"][0]["each"];
  EXPECT_EQ(each[0]["tpot_ms"], 100);
  EXPECT_EQ(each[0]["e2el_ms"], 450);
  EXPECT_EQ(each[1]["tpot_ms"], nullptr);
  EXPECT_EQ(each[1]["ttft_ms"], 50);
  EXPECT_EQ(each[1]["e2el_ms"], 50);
  for (const char *key : {"queueing_ms", "ttft_ms", "tpot_ms", "e2el_ms"})
    EXPECT_EQ(each[2][key], nullptr) << key;
  EXPECT_EQ(each[2]["error"], "unknown");
}

TEST(ServeReport, SeveralRatesAreARowEach) {
  const ServeReport report = reportOf({served(0, 10, 50, 450, 5)}, {1, std::numeric_limits<double>::infinity()});
  const std::string text = report.text(false);
  EXPECT_THAT(text,
              HasSubstr("requests/s  successful  refused  done/s  goodput/s  output tokens/s  KV peak  preempted"));
  EXPECT_THAT(text, HasSubstr("\n1                    1        0   0.500      0.500             2.50      50%"));
  EXPECT_THAT(text, HasSubstr("\ninf                  1 "));
  EXPECT_THAT(report.svg(), HasSubstr(">requests/s asked for (log)<"));
  EXPECT_THAT(report.svg(), HasSubstr(">objective<"));
  EXPECT_THAT(report.svg(), HasSubstr("1 request a rate, 10 tokens in, 5 out, seed 0; vllm, at most 8 sequences and 64 "
                                      "tokens an iteration, chunked prefill<"));
  const nlohmann::json json = nlohmann::json::parse(report.json());
  EXPECT_EQ(json["results"][0]["request_rate_per_second"], 1.0);
  EXPECT_EQ(json["results"][1]["request_rate_per_second"], "inf");
}

TEST(ServeReport, MetricsThatAreNotAskedForAreNotThere) {
  ServeReport report = reportOf({served(0, 10, 50, 450, 5)});
  report.metrics.resize(1);
  report.percentiles = {};
  EXPECT_THAT(report.text(false), HasSubstr("\nms      mean  median\nTTFT  50.000  50.000\n"));
  const nlohmann::json json = nlohmann::json::parse(report.json());
  EXPECT_TRUE(json["results"][0].contains("ttft_ms"));
  EXPECT_FALSE(json["results"][0].contains("tpot_ms"));
  report.metrics.clear();
  EXPECT_THAT(report.text(false), Not(HasSubstr("mean")));
}

TEST(ServeReport, TheTrafficInWords) {
  ServeReport report = reportOf({served(0, 10, 50, 450, 5)});
  EXPECT_EQ(report.trafficText(2), "1 request, 10 tokens in, 5 out, 2 requests/s");
  EXPECT_EQ(report.trafficText(1), "1 request, 10 tokens in, 5 out, 1 request/s");
  report.traceClock = "arrival_s in seconds";
  EXPECT_EQ(report.trafficText(0), "1 request, 10 tokens in, 5 out, at its times (arrival_s in seconds)");
  report.traceDropped = 2;
  EXPECT_EQ(report.trafficText(0),
            "1 request, 10 tokens in, 5 out, 2 rows of zero tokens dropped, at its times (arrival_s in seconds)");
  report.traceDropped = 0;
  EXPECT_EQ(report.trafficText(std::numeric_limits<double>::infinity()), "1 request, 10 tokens in, 5 out, all at once");
  report.burstiness = 0.5;
  report.maxConcurrency = 4;
  EXPECT_EQ(report.trafficText(2),
            "1 request, 10 tokens in, 5 out, 2 requests/s (burstiness 0.5), at most 4 at a time");
}

} // namespace
} // namespace headrace::tools
