// SPDX-License-Identifier: Apache-2.0
#include "tools/timeline/BarChart.h"

#include <gmock/gmock.h>

#include "tests/unit/tools/CountText.h"
#include "tools/report/BenchReport.h"

namespace headrace::tools {
namespace {

using testing::HasSubstr;
using testing::Not;

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

// Twelve bars in 440 x 0.8 / 2 are 14.7 wide, and five letters some 29: all of the panel's are turned, above their
// bars.
TEST(BarChart, LabelsThatAreWiderThanTheirBarsStandUpright) {
  BarChart chart = chartOf({std::vector<std::optional<double>>(12, 0.667), std::vector<std::optional<double>>(12, 1)});
  chart.series.assign(12, "x");
  chart.columns = 2;
  const std::string svg = barChartSvg(chart);
  EXPECT_EQ(count(svg, "rotate(-90"), 24U);
  EXPECT_THAT(svg,
              HasSubstr("height=\"93.8\"")); // of 150: the axis ends at 1.6, so that the highest has its label above it
  EXPECT_EQ(count(barChartSvg(chartOf({{0.667, 1.0}, {0.667, 1.0}})), "rotate("), 0U);
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
  BenchPhase p;
  p.batch = 8;
  p.time = {tpotNs, tpotNs};
  p.samples = 1;
  p.sloNs = sloNs;
  p.held = static_cast<double>(tpotNs) <= sloNs ? 1 : 0;
  p.maxTokens = 4096;
  r.decode = p;
  return r;
}

BenchReport reportOf(std::vector<BenchRow> rows) {
  BenchReport report;
  report.model = "m";
  report.hardware = "h";
  report.device = "sim";
  report.instances = "apart";
  report.rows = std::move(rows);
  return report;
}

TEST(BenchReport, TableSaysWhatWasHeldAndWhatDidNotRun) {
  BenchReport report = reportOf({row("select-n", 40000000, 50000000), row("deepspeed", 100000000, 50000000)});
  report.rows.push_back(row("none", 0, 0));
  report.rows.back().decode->refused = "the minimum is 12 bytes";
  const std::string text = report.text(false);
  EXPECT_THAT(text, HasSubstr("TPOT/SLO"));
  EXPECT_THAT(text, HasSubstr("0.800"));
  EXPECT_THAT(text, HasSubstr("2.000"));
  EXPECT_THAT(text, HasSubstr("none, batch 8: no run: the minimum is 12 bytes"));
  EXPECT_THAT(text, Not(HasSubstr("TTFT"))); // no row has a prefill
  const std::string json = report.json();
  EXPECT_THAT(json, HasSubstr("\"over_slo\": 2.0"));
  EXPECT_THAT(json, HasSubstr("\"prefill\": null"));
  EXPECT_THAT(json, HasSubstr("\"refused\": \"the minimum is 12 bytes\""));
  // A title and one for each panel; three policies in each panel, one of them without a run; one cross explains it.
  EXPECT_EQ(count(report.svg(), "\xc3\x97"), count(report.svg(), "font-weight=\"600\"") - 1 + 1);
}

TEST(BenchReport, WithoutAnObjectiveTimesAreTimes) {
  const BenchReport report = reportOf({row("none", 40000000, 0)});
  EXPECT_THAT(report.text(false), Not(HasSubstr("SLO")));
  EXPECT_THAT(report.json(), HasSubstr("\"over_slo\": null"));
  EXPECT_THAT(report.svg(), HasSubstr("decode: TPOT (p50), ms"));
}

TEST(BenchReport, PhasesStandBesideEachOther) {
  BenchRow both = row("none", 40000000, 50000000);
  both.prefill = both.decode;
  const std::string svg = reportOf({both}).svg(), one = reportOf({row("none", 40000000, 50000000)}).svg();
  const auto size = [](const std::string &text, const std::string &what) {
    const size_t at = text.find(what + "=\"") + what.size() + 2;
    return std::stod(text.substr(at));
  };
  // As many panels again in a second column: the picture is no higher.
  EXPECT_EQ(size(svg, "height"), size(one, "height"));
  EXPECT_EQ(count(svg, "stroke-dasharray"), 2 * count(one, "stroke-dasharray"));
}

TEST(BenchReport, TheLargestBatchIsACategoryAndANumber) {
  BenchRow filled = row("none", 40000000, 50000000);
  filled.batch = 0;
  const BenchReport report = reportOf({filled});
  EXPECT_THAT(report.svg(), HasSubstr("decode: batch"));
  EXPECT_THAT(report.json(), HasSubstr("\"batch\": \"largest\""));
  EXPECT_THAT(report.json(), HasSubstr("\"batch\": 8"));
}

TEST(BarChart, ColumnsAreFilledOneAfterAnother) {
  BarChart chart = chartOf({{1.0, 1.0}, {1.0, 1.0}});
  chart.panels.resize(4, chart.panels[0]);
  const std::string one = barChartSvg(chart);
  chart.columns = 2;
  const std::string two = barChartSvg(chart);
  EXPECT_EQ(count(two, "<rect"), count(one, "<rect"));
  EXPECT_NE(one, two);
}

} // namespace
} // namespace headrace::tools
