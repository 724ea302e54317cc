// SPDX-License-Identifier: Apache-2.0
#include "bench/figures/Furthest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headrace::bench {
namespace {

Json cellFigure(const char *model, const char *placement, double ratio) {
  return {{"model", model}, {"cell", "decode"}, {"placement", placement}, {"sequences", 2}, {"ratio", ratio}};
}

std::string listOf(const std::vector<Far> &far) {
  std::string text;
  for (const Far &one : far)
    text += one.model + " " + one.placement + ", ";
  return text;
}

TEST(Furthest, AllAboveTheTargetAndAtLeastSoMany) {
  Json figures = Json::array();
  figures.push_back(cellFigure("a", "interval 1", 1.00));
  figures.push_back(cellFigure("b", "interval 1", 1.05));
  figures.push_back(cellFigure("a", "interval 2", 1.04));
  figures.push_back(cellFigure("b", "interval 2", 1.03)); // not above it
  figures.push_back(cellFigure("b", "interval 4", 1.031));
  figures.push_back({{"model", "b"}, {"cell", "decode"}, {"placement", "resident"}, {"ms", 3.0}}); // bounds others
  figures.push_back({{"name", "a, load"}, {"seconds", 3.0}});
  EXPECT_EQ(listOf(furthest(figures, 1, 1.03)), "b interval 1, b interval 4, a interval 2, ");
  EXPECT_EQ(listOf(furthest(figures, 4, 1.03)), "b interval 1, b interval 4, b interval 2, a interval 2, ");
  EXPECT_EQ(furthest(figures, 9, 1.03).size(), 5u);
  EXPECT_EQ(listOf(furthest(figures, 2, 2)), "b interval 1, a interval 2, ");
  EXPECT_EQ(furthest(figures, 0, 2).size(), 0u);
  EXPECT_EQ(furthest(figures, 1, 1.03).front().sequences, 2);
}

} // namespace
} // namespace headrace::bench
