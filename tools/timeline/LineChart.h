// SPDX-License-Identifier: Apache-2.0
//
// Lines through points as SVG: one panel a quantity, one line a series.
//
//   panel title                  -o- p50  -o- p99
//   |            o
//   |        __/          - - - limit (dashed)
//   |_o___o/_________
//     1   2    4   inf           the x axis is logarithmic; an infinite x stands behind the largest
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace headrace::tools {

struct Line {
  std::string name;
  std::vector<std::optional<double>> values; // one an x; none: no point, and the line is broken there
  size_t colour = 0;                         // into six
};

struct LinePanel {
  std::string title; // with the unit
  std::vector<Line> lines;
  std::optional<double> limit; // a dashed line across
  std::string limitName;
  // Values may differ by orders of magnitude: the axis is logarithmic where they do, and the title then says so.
  bool spreads = false;
};

struct LineChart {
  std::string title, subtitle, xName;
  std::vector<double> x; // ascending, above zero; the last may be infinite
  std::vector<LinePanel> panels;
  int columns = 2; // of panels, filled row by row
};

// The same chart gives the same text.
std::string lineChartSvg(const LineChart &chart);

} // namespace headrace::tools
