// SPDX-License-Identifier: Apache-2.0
#include "bench/figures/Summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headrace::bench {
namespace {

TEST(Summary, ARatioIsToTheLargerOfComputeAndLink) {
  const Bounded link = bounded(102, 60, 100, 120);
  EXPECT_DOUBLE_EQ(link.ratio, 1.02);
  EXPECT_TRUE(link.byLink);
  EXPECT_DOUBLE_EQ(link.error, -0.15); // 102 / 120 - 1
  const Bounded compute = bounded(66, 60, 30, 60);
  EXPECT_DOUBLE_EQ(compute.ratio, 1.1);
  EXPECT_FALSE(compute.byLink);
  EXPECT_DOUBLE_EQ(compute.error, 66.0 / 60 - 1);
  EXPECT_EQ(bounded(1, 0, 0, 0).ratio, 0);
}

Json figure(const char *model, const char *cell, const char *placement, double ms, double link, double predicted) {
  return {{"name", std::string(model) + ", " + cell + ", " + placement},
          {"model", model},
          {"cell", cell},
          {"placement", placement},
          {"ms", ms},
          {"link ms", link},
          {"predicted ms", predicted}};
}

TEST(Summary, ALineAFigureAndALineAModel) {
  Json figures = Json::array();
  figures.push_back(figure("a", "decode", "resident", 50, 0, 40)); // 25% slower than predicted
  figures.push_back(figure("a", "decode", "interval 2", 104, 100, 100));
  figures.push_back(figure("a", "decode", "interval 4", 51, 50, 51));
  figures.push_back(figure("b", "decode", "interval 2", 10, 5, 10)); // nothing to hold it against
  figures.push_back({{"name", "a, load"}, {"seconds", 3.0}});
  figures.push_back({{"name", "a, decode, interval 8"}, {"failed", "no"}});
  const auto lines = summarise(figures);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0].first, "a, decode, resident");
  EXPECT_DOUBLE_EQ(lines[0].second["prediction error"].get<double>(), 0.25);
  EXPECT_DOUBLE_EQ(lines[1].second["ratio"].get<double>(), 1.04);
  EXPECT_EQ(lines[1].second["bound by"], "link");
  EXPECT_DOUBLE_EQ(lines[2].second["ratio"].get<double>(), 1.02);
  EXPECT_EQ(lines[2].second["bound by"], "compute"); // as long as each other
  EXPECT_EQ(lines[3].first, "a, all");
  EXPECT_EQ(lines[3].second["iterations that move bytes"], 2);
  EXPECT_EQ(lines[3].second["within 1.03"], 1);
  EXPECT_DOUBLE_EQ(lines[3].second["ratio, worst"].get<double>(), 1.04);
  EXPECT_DOUBLE_EQ(lines[3].second["|prediction error|, median"].get<double>(), 104.0 / 100 - 1);
  EXPECT_DOUBLE_EQ(lines[3].second["|prediction error|, worst"].get<double>(), 0.25);
}

} // namespace
} // namespace headrace::bench
