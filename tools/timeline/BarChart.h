// SPDX-License-Identifier: Apache-2.0
//
// Grouped bars as SVG: one panel a quantity, one group a category, one bar a series.
//
//   panel title
//   |      _                 - - - limit (dashed)
//   |  _  | |   _
//   |_| |_| |__| |__ _ _ _
//     batch 8    batch 16         colours: policies, the same in all panels
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace headrace::tools {

struct BarPanel {
  std::string title; // with the unit
  // values[category][series]; none: no bar, a cross where it would stand.
  std::vector<std::vector<std::optional<double>>> values;
  std::optional<double> limit; // a dashed line across
  std::string limitName;
};

struct BarChart {
  std::string title, subtitle;
  std::vector<std::string> categories, series;
  std::vector<BarPanel> panels;
  int columns = 1;             // of panels, filled column by column
  std::vector<size_t> colours; // of the series, into fifteen; by their order where there are fewer than series
};

// The same chart gives the same text. Every panel has one list a category with one value a series.
std::string barChartSvg(const BarChart &chart);

} // namespace headrace::tools
