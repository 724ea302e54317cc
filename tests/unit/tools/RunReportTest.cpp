// SPDX-License-Identifier: Apache-2.0
#include "tools/RunReport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/unit/tools/TestPlan.h"

namespace headrace::tools {
namespace {

using testing::HasSubstr;

RunReport made() {
  RunReport report;
  report.planPath = "out.plan";
  report.device = "host";
  report.result.tokens = {{1, 2, 3}, {4, 5}};
  report.result.firstTokenNs = {2'000'000, 4'000'000};
  report.result.ttftMs = 3;
  report.result.tpotMs = 1.5;
  report.result.iterations = 4;
  report.result.prefillIterations = 1;
  report.result.counters.h2dBytes = 960;
  report.result.counters.stallNs = 250'000;
  report.result.counters.peakDeviceBytes = 6144;
  report.prefill.add(2'000'000, 3'000'000);
  report.decode.add(1'000'000, 1'100'000);
  report.decode.add(1'000'000, 1'300'000);
  report.decode.finish();
  report.prefill.finish();
  return report;
}

TEST(RunReport, JsonHasTheFieldsByName) {
  core::Manifest manifest;
  manifest.loaded = manifest.planned = {1792, 1024, 0};
  const auto json = nlohmann::json::parse(runJson(testPlan(), 0, manifest, made()));
  EXPECT_EQ(json["tokens"], nlohmann::json::parse("[[1,2,3],[4,5]]"));
  EXPECT_EQ(json["ttft_ms"], 3);
  EXPECT_EQ(json["tpot_ms"], 1.5);
  EXPECT_EQ(json["first_token_ms"][1], 4);
  EXPECT_EQ(json["peak_device_bytes"], 6144);
  EXPECT_EQ(json["h2d_bytes"], 960);
  EXPECT_EQ(json["stall_ms"], 0.25);
  EXPECT_EQ(json["offloaded_layers"], 1);
  EXPECT_EQ(json["predicted_tpot_ms"], 1);
  EXPECT_DOUBLE_EQ(json["measured_over_predicted"], 1.2);
  EXPECT_EQ(json["prefill"]["ratio"], 1.5);
  EXPECT_EQ(json["iterations"], 4);
  EXPECT_EQ(json["manifest"]["loaded"]["host"], 1024);
}

TEST(RunReport, WithoutDecodeIterationsThereIsNoPrediction) {
  RunReport report = made();
  report.decode = {};
  const auto json = nlohmann::json::parse(runJson(testPlan(), 0, {}, report));
  EXPECT_TRUE(json["predicted_tpot_ms"].is_null());
  EXPECT_TRUE(json["decode"].is_null());
}

TEST(RunReport, TextHasTokensTimesAndTheComparison) {
  const std::string text = runText(testPlan(), 0, made());
  EXPECT_THAT(text, HasSubstr("tokens 0         1,2,3\ntokens 1         4,5\n"));
  EXPECT_THAT(text, HasSubstr("TTFT             3.000 ms\nTPOT             1.500 ms\n"));
  EXPECT_THAT(text, HasSubstr("decode           predicted 1.000 ms, measured 1.200 ms (1.20 x) over 2 iterations\n"));
  EXPECT_THAT(text, HasSubstr("stalls           0.250 ms"));
}

} // namespace
} // namespace headrace::tools
