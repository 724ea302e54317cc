// SPDX-License-Identifier: Apache-2.0
#include "tools/BarChart.h"

#include <gmock/gmock.h>

#include "tools/BenchReport.h"

namespace headrace::tools {
namespace {

using testing::HasSubstr;
using testing::Not;

size_t count(const std::string &text, const std::string &what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1))
    ++n;
  return n;
}

BarChart chartOf(std::vector<std::vector<std::optional<double>>> values) {
  BarChart chart;
  chart.title = "a < b";
  chart.categories = {"batch 1", "batch 2"};
  chart.series = {"x", "y"};
  chart.panels.push_back({"TPOT, ms", std::move(values), {}, ""});
  return chart;
}

TEST(BarChart, OneBarAValueAndACrossWhereThereIsNone) {
  const std::string svg = barChartSvg(chartOf({{10.0, 20.0}, {std::nullopt, 40.0}}));
  EXPECT_EQ(count(svg, "\xc3\x97"), 1U);
  // Background, two keys of the legend, three bars.
  EXPECT_EQ(count(svg, "<rect"), 1U + 2U + 3U);
  EXPECT_THAT(svg, HasSubstr("a &lt; b"));
  EXPECT_THAT(svg, Not(HasSubstr("stroke-dasharray")));
}

TEST(BarChart, HeightsAreInProportion) {
  // The axis ends at 40: a panel is 150 high, so 10 is 37.5 and 40 is 150.
  const std::string svg = barChartSvg(chartOf({{10.0, 40.0}, {0.0, 0.0}}));
  EXPECT_THAT(svg, HasSubstr("height=\"37.5\""));
  EXPECT_THAT(svg, HasSubstr("height=\"150.0\""));
}

TEST(BarChart, ALimitIsALineAndPartOfTheScale) {
  BarChart chart = chartOf({{0.5, 0.5}, {0.5, 0.5}});
  chart.panels[0].limit = 1.0;
  chart.panels[0].limitName = "objective";
  const std::string svg = barChartSvg(chart);
  EXPECT_EQ(count(svg, "stroke-dasharray"), 1U);
  EXPECT_THAT(svg, HasSubstr("objective"));
  EXPECT_THAT(svg, HasSubstr("height=\"75.0\"")); // half of the panel: the axis ends at the limit
}

TEST(BarChart, NothingToDrawIsStillAPicture) { EXPECT_THAT(barChartSvg({}), HasSubstr("</svg>")); }

TEST(BenchReport, QuantilesAreOfTheNearestRank) {
  std::vector<int64_t> samples;
  for (int64_t i = 200; i > 0; --i)
    samples.push_back(i);
  EXPECT_EQ(spreadOf(samples).p50Ns, 100); // 200 x 0.50 = 100th
  EXPECT_EQ(spreadOf(samples).p99Ns, 198); // 200 x 0.99 = 198th
  EXPECT_EQ(spreadOf({7}).p50Ns, 7);
  EXPECT_EQ(spreadOf({7}).p99Ns, 7);
}

BenchRow row(const std::string &policy, int64_t tpotNs, double sloNs) {
  BenchRow r;
  r.policy = policy;
  r.batch = 8;
  r.ttft = {3000000, 3000000};
  r.tpot = {tpotNs, tpotNs};
  r.tpotSloNs = sloNs;
  r.tpotHeld = static_cast<double>(tpotNs) <= sloNs ? 1 : 0;
  r.maxTokens = 4096;
  return r;
}

TEST(BenchReport, TableSaysWhatWasHeldAndWhatDidNotRun) {
  BenchReport report;
  report.model = "m";
  report.hardware = "h";
  report.device = "sim";
  report.rows = {row("select-n", 40000000, 50000000), row("deepspeed", 100000000, 50000000)};
  report.rows.push_back({});
  report.rows.back().policy = "none";
  report.rows.back().batch = 8;
  report.rows.back().refused = "the minimum is 12 bytes";
  const std::string text = report.text();
  EXPECT_THAT(text, HasSubstr("TPOT/SLO"));
  EXPECT_THAT(text, HasSubstr("0.800"));
  EXPECT_THAT(text, HasSubstr("2.000"));
  EXPECT_THAT(text, HasSubstr("none, batch 8: no run: the minimum is 12 bytes"));
  const std::string json = report.json();
  EXPECT_THAT(json, HasSubstr("\"tpot_over_slo\": 2.0"));
  EXPECT_THAT(json, HasSubstr("\"refused\": \"the minimum is 12 bytes\""));
  // Three policies in each panel, one of them without a run.
  EXPECT_EQ(count(report.svg(), "\xc3\x97"), count(report.svg(), "font-weight=\"600\"") - 1);
}

} // namespace
} // namespace headrace::tools
