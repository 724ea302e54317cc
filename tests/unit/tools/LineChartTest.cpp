// SPDX-License-Identifier: Apache-2.0
#include "tools/timeline/LineChart.h"

#include <limits>

#include <gmock/gmock.h>

#include "tests/unit/tools/CountText.h"
#include "tools/timeline/Svg.h"

namespace headrace::tools {
namespace {

using testing::HasSubstr;
using testing::Not;

LineChart chartOf(std::vector<double> x, std::vector<std::optional<double>> values, bool spreads = false) {
  LineChart chart;
  chart.title = "a < b";
  chart.xName = "requests/s";
  chart.x = std::move(x);
  LinePanel panel;
  panel.title = "TTFT, ms";
  panel.lines.push_back({"p50", std::move(values), 0});
  panel.spreads = spreads;
  chart.panels.push_back(panel);
  return chart;
}

// A panel's plot is 520 x 170 from (62, 92) on; the first and the last x are 24 from its ends: 86 and 558.
TEST(LineChart, PointsStandByTheLogarithmOfTheirX) {
  const std::string svg = lineChartSvg(chartOf({1, 2, 4}, {10.0, 20.0, 40.0}));
  // 2 is half-way between 1 and 4: 322. The axis ends at 40: 10 is a quarter, 92 + 170 - 42.5.
  EXPECT_THAT(svg, HasSubstr("M86.0 219.5L322.0 177.0L558.0 92.0"));
  EXPECT_EQ(count(svg, "<rect"), 1U + 3U + 1U); // background, points, key
  EXPECT_THAT(svg, HasSubstr("a &lt; b"));
  EXPECT_THAT(svg, HasSubstr(">requests/s (log)<"));
  EXPECT_THAT(svg, HasSubstr(">TTFT, ms<"));
}

TEST(LineChart, AnInfiniteXStandsBehindTheLargest) {
  const std::string svg = lineChartSvg(chartOf({1, 4, std::numeric_limits<double>::infinity()}, {40.0, 40.0, 40.0}));
  EXPECT_THAT(svg, HasSubstr("M86.0 92.0L322.0 92.0L558.0 92.0"));
  EXPECT_THAT(svg, HasSubstr(">inf<"));
}

TEST(LineChart, ALineIsBrokenWhereThereIsNoValue) {
  const std::string svg = lineChartSvg(chartOf({1, 2, 4}, {40.0, std::nullopt, 40.0}));
  EXPECT_THAT(svg, HasSubstr("M86.0 92.0M558.0 92.0"));
  EXPECT_EQ(count(svg, "<rect"), 1U + 2U + 1U);
}

TEST(LineChart, OrdersOfMagnitudeTakeALogarithmicAxis) {
  // 10 to 1000, two decades: 100 is half-way up, 92 + 85.
  const std::string svg = lineChartSvg(chartOf({1, 2, 4}, {10.0, 100.0, 1000.0}, /*spreads=*/true));
  EXPECT_THAT(svg, HasSubstr("M86.0 262.0L322.0 177.0L558.0 92.0"));
  EXPECT_THAT(svg, HasSubstr(">TTFT, ms (log)<"));
  // From 20 to 2000, 200 half-way; only powers of ten are written.
  const std::string rounded = lineChartSvg(chartOf({1, 2, 4}, {20.0, 200.0, 1500.0}, /*spreads=*/true));
  EXPECT_THAT(rounded, HasSubstr("M86.0 262.0L322.0 177.0L"));
  EXPECT_THAT(rounded, HasSubstr(">100<"));
  EXPECT_THAT(rounded, Not(HasSubstr(">20<")));
  // 40 over 10 is less than twenty times: from 0 to 40.
  EXPECT_THAT(lineChartSvg(chartOf({1, 2, 4}, {10.0, 20.0, 40.0}, /*spreads=*/true)), HasSubstr("M86.0 219.5"));
}

TEST(LineChart, ALimitIsALineAndPartOfTheScale) {
  LineChart chart = chartOf({1, 2}, {10.0, 20.0});
  EXPECT_THAT(lineChartSvg(chart), Not(HasSubstr("stroke-dasharray")));
  chart.panels[0].limit = 40;
  chart.panels[0].limitName = "objective";
  const std::string svg = lineChartSvg(chart);
  EXPECT_EQ(count(svg, "stroke-dasharray"), 2U); // and its key
  EXPECT_THAT(svg, HasSubstr(">objective<"));
  EXPECT_THAT(svg, HasSubstr("L558.0 177.0")); // 20 of 40
}

TEST(LineChart, NothingToDrawIsStillAPicture) {
  EXPECT_THAT(lineChartSvg({}), HasSubstr("</svg>"));
  EXPECT_THAT(lineChartSvg(chartOf({1}, {std::nullopt})), HasSubstr("</svg>"));
  EXPECT_THAT(lineChartSvg(chartOf({1}, {0.0}, /*spreads=*/true)), HasSubstr("</svg>"));
}

TEST(Svg, AxesEndAtRoundNumbers) {
  EXPECT_EQ(axisTop(0), 1);
  EXPECT_EQ(axisTop(7), 8);
  EXPECT_EQ(axisTop(85), 100);
  EXPECT_EQ(axisTop(100), 100);
  EXPECT_EQ(timeTick(95), 10U); // 0 to 90
  EXPECT_EQ(timeTick(100), 20U);
  EXPECT_EQ(timeLabel(2'000'000'000, 9'000'000'000), "2 s");
  EXPECT_EQ(timeLabel(500'000'000, 9'000'000'000), "0.5 s");
}

} // namespace
} // namespace headrace::tools
