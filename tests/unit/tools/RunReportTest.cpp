// SPDX-License-Identifier: Apache-2.0
#include "tools/report/RunReport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "tests/unit/tools/TestPlan.h"

namespace headrace::tools {
namespace {

using testing::HasSubstr;
using testing::Not;

// The plan in units of 10 us, with an objective: an iteration takes 3 ms, its tokens are there after 2.5.
const plan::Plan &slowPlan() {
  static const plan::Plan plan = [] {
    plan::Plan p = testPlan();
    for (uint64_t &ns : p.variants[0].durationsNs)
      ns *= 10'000;
    p.choices.push_back({0, 3'500'000, 2'000'000, 0, 0});
    return p;
  }();
  return plan;
}

RunReport made(bool decodes = true) {
  RunReport report{.planPath = "out.plan", .device = "host", .times = RunTimes(slowPlan(), 0, 0)};
  report.result.tokens = {{1, 2, 3}, {4, 5}};
  report.result.firstTokenNs = {2'000'000, 4'000'000};
  report.promptTokens = {3, 8};
  report.result.durationNs = 8'000'000;
  report.result.ttftMs = 3;
  report.result.tpotMs = 1.5;
  report.result.iterations = 4;
  report.result.prefillIterations = 1;
  report.result.counters.h2dBytes = 960;
  report.result.counters.stallNs = 250'000;
  report.result.counters.peakDeviceBytes = 6144;
  report.times.add({.variant = 0, .ns = 3'750'000, .prefill = true}); // of 2.5 ms
  if (decodes) {
    report.times.add({.variant = 0, .ns = 3'300'000, .gapNs = 3'300'000, .waitedNs = 9'000'000}); // of 3 ms each
    report.times.add({.variant = 0, .ns = 3'900'000, .gapNs = 3'900'000});
  }
  return report;
}

TEST(RunReport, JsonHasTheFieldsByName) {
  core::Manifest manifest;
  manifest.loaded = manifest.planned = {1792, 1024};
  manifest.kv = {512, 2048};
  const auto json = nlohmann::json::parse(runJson(slowPlan(), 0, manifest, made()));
  EXPECT_EQ(json["tokens"], nlohmann::json::parse("[[1,2,3],[4,5]]"));
  EXPECT_EQ(json["tokens_made_up"], false);
  EXPECT_EQ(json["manifest"]["kv"]["device"], 512);
  EXPECT_EQ(json["manifest"]["kv"]["host"], 2048);
  EXPECT_EQ(json["ttft_ms"], 3);
  EXPECT_EQ(json["tpot_ms"], 1.5);
  EXPECT_EQ(json["first_token_ms"][1], 4);
  EXPECT_EQ(json["duration_ms"], 8);
  EXPECT_EQ(json["output_tokens_per_second"], 625);
  EXPECT_EQ(json["total_tokens_per_second"], 2000);
  EXPECT_EQ(json["peak_device_bytes"], 6144);
  EXPECT_EQ(json["h2d_bytes"], 960);
  EXPECT_EQ(json["stall_ms"], 0.25);
  EXPECT_EQ(json["offloaded_layers"], 1);
  EXPECT_DOUBLE_EQ(json["predicted_tpot_ms"], 3);
  EXPECT_DOUBLE_EQ(json["measured_over_predicted"], 1.2);
  EXPECT_DOUBLE_EQ(json["prefill"]["ratio"], 1.5);
  EXPECT_TRUE(json["changes"].is_null());
  EXPECT_EQ(json["gaps"]["gaps"], 2);
  EXPECT_EQ(json["gaps"]["late"], 1);
  EXPECT_DOUBLE_EQ(json["gaps"]["longest_ms"], 3.9);
  EXPECT_DOUBLE_EQ(json["gaps"]["objective_ms"], 3.5);
  EXPECT_FALSE(json["gaps"]["longest_is_change"].get<bool>());
  EXPECT_DOUBLE_EQ(json["gaps"]["longest_in_prefill_ms"], 9);
  EXPECT_DOUBLE_EQ(json["gaps"]["steady_p99_over_median"], 3.9 / 3.3);
  EXPECT_EQ(json["iterations"], 4);
  EXPECT_EQ(json["manifest"]["loaded"]["host"], 1024);
}

TEST(RunReport, WithoutDecodeIterationsThereIsNoPrediction) {
  const auto json = nlohmann::json::parse(runJson(slowPlan(), 0, {}, made(/*decodes=*/false)));
  EXPECT_TRUE(json["predicted_tpot_ms"].is_null());
  EXPECT_TRUE(json["decode"].is_null());
  EXPECT_TRUE(json["gaps"]["longest_ms"].is_null());
}

TEST(RunReport, TextHasTokensTimesAndTheComparison) {
  const std::string text = runText(slowPlan(), 0, made());
  EXPECT_THAT(text, HasSubstr("tokens 0         1,2,3\ntokens 1         4,5\n"));
  EXPECT_THAT(text, HasSubstr("TTFT             3.000 ms\nTPOT             1.500 ms\n"));
  EXPECT_THAT(text,
              HasSubstr("throughput       625 output tokens/s, 2.00 k tokens/s in all\n")); // 5, and 11 of prompts
  EXPECT_THAT(text, HasSubstr("decode           predicted 3.000 ms, measured 3.600 ms (1.20 x) over 2 iterations\n"));
  EXPECT_THAT(text,
              HasSubstr("gaps             longest 3.900 ms, 1.114 x its objective of 3.500 ms; 1 of 2 were longer; "
                        "steady ones spread by 1.18 x (p99 / median)\n"
                        "gaps in prefill  longest 9.000 ms: beside prompts that were not done yet\n"));
  EXPECT_THAT(text, HasSubstr("stalls           0.250 ms"));
  EXPECT_THAT(text, Not(HasSubstr("made up")));
  EXPECT_THAT(text, Not(HasSubstr("left out")));
  RunReport few = made();
  few.leftOutVariants = 1;
  EXPECT_THAT(runText(slowPlan(), 0, few), HasSubstr("left out         1 of 1 variants, for --graph-memory or "));
}

TEST(RunReport, TokensOfADeviceWithoutDataAreSaidToBeMadeUp) {
  RunReport report = made();
  report.device = "sim";
  report.madeUp = true;
  EXPECT_THAT(runText(slowPlan(), 0, report),
              HasSubstr("tokens 1         4,5\n                 made up: the sim device computes nothing\n"));
  EXPECT_EQ(nlohmann::json::parse(runJson(slowPlan(), 0, {}, report))["tokens_made_up"], true);
}

} // namespace
} // namespace headrace::tools
