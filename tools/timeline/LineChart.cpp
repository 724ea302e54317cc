// SPDX-License-Identifier: Apache-2.0
#include "tools/timeline/LineChart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "absl/strings/str_format.h"
#include "tools/timeline/Svg.h"

namespace headrace::tools {
namespace {

constexpr double kLeft = 62, kRight = 26, kPlot = 520, kPanel = 170, kPanelGap = 74, kTop = 92;
constexpr double kEdge = 24; // between the plot's ends and its first and last x
constexpr std::array kColours = {"#3b76c4", "#e08a2c", "#d64545", "#8b5cc4", "#2e9b6b", "#7d8590"};
constexpr double kDecades = 20; // most over least from which on an axis is logarithmic

// The nearest of 1, 2 or 5 times a power of ten that is at most `value`, or at least.
double roundOff(double value, bool up) {
  const double power = std::pow(10, std::floor(std::log10(value)));
  double below = power;
  for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
    if (factor * power >= value * (1 - 1e-12))
      return up || factor * power <= value * (1 + 1e-12) ? factor * power : below;
    below = factor * power;
  }
  return below;
}

// A panel's y axis.
class Scale {
public:
  explicit Scale(const LinePanel &panel) {
    double least = std::numeric_limits<double>::infinity();
    const auto take = [&](double value) {
      most_ = std::max(most_, value);
      if (value > 0)
        least = std::min(least, value);
    };
    for (const Line &line : panel.lines)
      for (const std::optional<double> &value : line.values)
        if (value && std::isfinite(*value))
          take(*value);
    if (panel.limit)
      take(*panel.limit);
    logarithmic_ = panel.spreads && most_ > kDecades * least;
    if (logarithmic_) {
      least_ = roundOff(least, /*up=*/false);
      most_ = roundOff(most_, /*up=*/true);
    } else {
      most_ = axisTop(most_);
    }
  }

  bool logarithmic() const { return logarithmic_; }
  double share(double value) const { // of the panel's height
    const double at =
        logarithmic_ ? std::log10(std::max(value, least_) / least_) / std::log10(most_ / least_) : value / most_;
    return std::clamp(at, 0.0, 1.0);
  }
  std::vector<double> ticks() const {
    std::vector<double> out;
    if (logarithmic_)
      for (double tick = std::pow(10, std::ceil(std::log10(least_) - 1e-9)); tick <= most_ * 1.001; tick *= 10)
        out.push_back(tick);
    else
      for (int quarter = 0; quarter <= 4; ++quarter)
        out.push_back(most_ * quarter / 4);
    return out;
  }

private:
  bool logarithmic_ = false;
  double least_ = 0, most_ = 0;
};

class Drawing {
public:
  explicit Drawing(const LineChart &chart) : chart_(chart) {}

  std::string draw() {
    body_.text(16, 26, chart_.title, R"(font-size="17" font-weight="600" fill="#1f2328")");
    body_.text(16, 45, chart_.subtitle, R"(font-size="12" fill="#57606a")");
    const auto columns = static_cast<size_t>(std::max(chart_.columns, 1));
    const size_t rows = (chart_.panels.size() + columns - 1) / columns;
    constexpr double kWidth = kLeft + kPlot + kRight;
    for (size_t p = 0; p < chart_.panels.size(); ++p) {
      const size_t row = p / columns, column = p % columns;
      left_ = static_cast<double>(column) * kWidth + kLeft;
      drawPanel(chart_.panels[p], kTop + static_cast<double>(row) * (kPanel + kPanelGap));
    }
    return svgDocument("bench", static_cast<double>(columns) * kWidth,
                       kTop + static_cast<double>(rows) * (kPanel + kPanelGap) - 30, body_.text());
  }

private:
  // Logarithmic; an infinite x is one of as many even steps behind the largest.
  double xOf(size_t i) const {
    const size_t finite = chart_.x.size() - (!chart_.x.empty() && std::isinf(chart_.x.back()));
    const double from = left_ + kEdge, to = left_ + kPlot - kEdge;
    if (chart_.x.size() < 2)
      return (from + to) / 2;
    const double beyond = finite < chart_.x.size() ? (to - from) / static_cast<double>(chart_.x.size() - 1) : 0;
    if (i >= finite)
      return to;
    if (finite == 1)
      return from;
    const double share = std::log(chart_.x[i] / chart_.x[0]) / std::log(chart_.x[finite - 1] / chart_.x[0]);
    return from + share * (to - from - beyond);
  }

  void drawPanel(const LinePanel &panel, double top) {
    const Scale scale(panel);
    const double bottom = top + kPanel, right = left_ + kPlot;
    const auto yOf = [&](double value) { return bottom - kPanel * scale.share(value); };
    body_.text(left_ - kLeft + 16, top - 14, panel.title + (scale.logarithmic() ? " (log)" : ""),
               R"(font-size="12" font-weight="600" fill="#1f2328")");
    for (const double tick : scale.ticks()) {
      const double y = yOf(tick);
      body_.line(left_, y, right, y, "stroke=\"#e6e8eb\"");
      body_.text(left_ - 6, y + 4, axisLabel(tick), R"(text-anchor="end" fill="#57606a")");
    }
    body_.line(left_, bottom, right, bottom, "stroke=\"#57606a\"");
    for (size_t i = 0; i < chart_.x.size(); ++i) {
      body_.line(xOf(i), bottom, xOf(i), bottom + 4, "stroke=\"#57606a\"");
      body_.text(xOf(i), bottom + 16, std::isinf(chart_.x[i]) ? "inf" : absl::StrFormat("%g", chart_.x[i]),
                 R"(text-anchor="middle" fill="#57606a")");
    }
    body_.text((left_ + right) / 2, bottom + 32, chart_.xName + (chart_.x.size() > 1 ? " (log)" : ""),
               R"(text-anchor="middle" fill="#57606a")");
    if (panel.limit)
      body_.line(left_, yOf(*panel.limit), right, yOf(*panel.limit), R"(stroke="#1f2328" stroke-dasharray="5 4")");
    for (const Line &line : panel.lines)
      drawLine(line, yOf);
    drawKey(panel, right, top - 14);
  }

  template <typename Y> void drawLine(const Line &line, const Y &yOf) {
    const std::string colour = kColours[line.colour % kColours.size()];
    std::string d;
    bool on = false;
    for (size_t i = 0; i < line.values.size() && i < chart_.x.size(); ++i) {
      if (line.values[i])
        absl::StrAppendFormat(&d, "%s%.1f %.1f", on ? "L" : "M", xOf(i), yOf(*line.values[i]));
      on = line.values[i].has_value();
    }
    body_.path(d, "fill=\"none\" stroke-width=\"2\" stroke=\"" + colour + "\"");
    for (size_t i = 0; i < line.values.size() && i < chart_.x.size(); ++i) {
      if (!line.values[i])
        continue;
      body_.beginGroup(absl::StrFormat("%s at %g: %g", line.name, chart_.x[i], *line.values[i]));
      body_.rect(xOf(i) - 3, yOf(*line.values[i]) - 3, 6, 6, "rx=\"3\" fill=\"" + colour + "\"");
      body_.endGroup();
    }
  }

  // From the right: the limit, then the lines, the first of them leftmost.
  void drawKey(const LinePanel &panel, double right, double y) {
    constexpr double kCharacter = 6.4;
    double at = right;
    const auto name = [&](const std::string &what) {
      body_.text(at, y, what, R"(text-anchor="end" fill="#1f2328")");
      at -= kCharacter * static_cast<double>(what.size()) + 8;
    };
    if (panel.limit) {
      name(panel.limitName);
      body_.line(at - 18, y - 4, at, y - 4, R"(stroke="#1f2328" stroke-dasharray="5 4")");
      at -= 30;
    }
    for (auto line = panel.lines.rbegin(); line != panel.lines.rend(); ++line) {
      name(line->name);
      body_.rect(at - 14, y - 6, 14, 4, absl::StrFormat("fill=\"%s\"", kColours[line->colour % kColours.size()]));
      at -= 26;
    }
  }

  const LineChart &chart_;
  SvgBody body_;
  double left_ = kLeft; // of the panel that is drawn
};

} // namespace

std::string lineChartSvg(const LineChart &chart) { return Drawing(chart).draw(); }

} // namespace headrace::tools
