// SPDX-License-Identifier: Apache-2.0
#include "tools/timeline/BarChart.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_format.h"
#include "tools/timeline/Svg.h"

namespace headrace::tools {
namespace {

constexpr double kLeft = 62, kRight = 22, kPanel = 150, kPanelGap = 66, kTop = 108;
// Of one column's plot, and of all columns together.
constexpr double kOnly = 834, kSeveral = 440;
constexpr std::array kColours = {"#7d8590", "#d64545", "#e08a2c", "#c4a03b", "#3b76c4", "#2e9b6b", "#8b5cc4", "#1f9aa8",
                                 "#b85c8e", "#9c6b3f", "#5a7d2a", "#2b4f81", "#cc7a6f", "#6f6fd1", "#4a4a4a"};

// Of a bar's label: the height of its letters, and about the width of one.
constexpr double kLabel = 9, kLetter = 5.8;

std::string labelOf(double value) {
  return value >= 1000 ? absl::StrFormat("%.3gk", value / 1000) : absl::StrFormat("%.3g", value);
}

class Drawing {
public:
  explicit Drawing(const BarChart &chart) : chart_(chart) {}

  std::string draw() {
    text(16, 26, chart_.title, "font-size=\"17\" font-weight=\"600\" fill=\"#1f2328\"");
    text(16, 45, chart_.subtitle, "font-size=\"12\" fill=\"#57606a\"");
    double at = 16;
    for (size_t s = 0; s < chart_.series.size(); ++s) {
      absl::StrAppendFormat(&body_, "<rect x=\"%.1f\" y=\"58\" width=\"12\" height=\"12\" rx=\"2\" fill=\"%s\"/>\n", at,
                            colour(s));
      text(at + 17, 68, chart_.series[s], "fill=\"#1f2328\"");
      at += 36 + 6.4 * static_cast<double>(chart_.series[s].size());
    }
    const size_t columns = static_cast<size_t>(std::max(chart_.columns, 1));
    const size_t rows = (chart_.panels.size() + columns - 1) / columns;
    plot_ = columns == 1 ? kOnly : kSeveral;
    const double width = kLeft + plot_ + kRight;
    for (size_t p = 0; p < chart_.panels.size(); ++p) {
      const size_t column = p / rows;
      left_ = static_cast<double>(column) * width + kLeft;
      drawPanel(chart_.panels[p], kTop + static_cast<double>(p % rows) * (kPanel + kPanelGap));
    }
    return svgDocument("bench", static_cast<double>(columns) * width,
                       kTop + static_cast<double>(rows) * (kPanel + kPanelGap) - 30, body_);
  }

private:
  const char *colour(size_t series) const {
    return kColours[(series < chart_.colours.size() ? chart_.colours[series] : series) % kColours.size()];
  }

  void text(double x, double y, const std::string &what, const char *more) {
    absl::StrAppendFormat(&body_, "<text x=\"%.1f\" y=\"%.1f\" %s>%s</text>\n", x, y, more, svgEscaped(what));
  }

  void drawPanel(const BarPanel &panel, double top) {
    double most = panel.limit.value_or(0), longest = 0;
    for (const auto &group : panel.values)
      for (const std::optional<double> &value : group)
        if (value) {
          most = std::max(most, *value);
          longest = std::max(longest, kLetter * static_cast<double>(labelOf(*value).size()));
        }
    const double group = plot_ / static_cast<double>(std::max<size_t>(chart_.categories.size(), 1));
    const double bar = std::min(34.0, group * 0.8 / static_cast<double>(std::max<size_t>(chart_.series.size(), 1)));
    // Where one is wider than its bar all stand upright, and have room above the highest.
    turned_ = longest > bar;
    const double scale = axisTop(turned_ ? most * kPanel / (kPanel - longest - 4) : most);
    const double bottom = top + kPanel, right = left_ + plot_;
    const auto height = [&](double value) { return kPanel * std::clamp(value / scale, 0.0, 1.0); };
    text(left_ - kLeft + 16, top - 14, panel.title, "font-size=\"12\" font-weight=\"600\" fill=\"#1f2328\"");
    for (int tick = 0; tick <= 4; ++tick) {
      const double value = scale * tick / 4, y = bottom - height(value);
      absl::StrAppendFormat(&body_, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n", left_, y,
                            right, y, tick == 0 ? "#57606a" : "#e6e8eb");
      text(left_ - 6, y + 4, axisLabel(value), "text-anchor=\"end\" fill=\"#57606a\"");
    }
    if (panel.limit) {
      const double y = bottom - height(*panel.limit);
      absl::StrAppendFormat(&body_,
                            "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#1f2328\" "
                            "stroke-dasharray=\"5 4\"/>\n",
                            left_, y, right, y);
      text(right, top - 14, "- - " + panel.limitName, "text-anchor=\"end\" fill=\"#1f2328\"");
    }
    for (size_t c = 0; c < chart_.categories.size(); ++c) {
      const double middle = left_ + group * (static_cast<double>(c) + 0.5);
      double x = middle - bar * static_cast<double>(chart_.series.size()) / 2;
      for (size_t s = 0; s < chart_.series.size(); ++s, x += bar)
        drawBar(panel.values[c][s], x, bar, bottom, height, colour(s));
      text(middle, bottom + 16, chart_.categories[c], "text-anchor=\"middle\" fill=\"#1f2328\"");
    }
  }

  template <typename Height>
  void drawBar(const std::optional<double> &value, double x, double width, double bottom, const Height &height,
               const char *fill) {
    if (!value) {
      text(x + width / 2, bottom - 4, "\xc3\x97", "text-anchor=\"middle\" fill=\"#d64545\"");
      return;
    }
    const double h = height(*value);
    absl::StrAppendFormat(&body_, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n", x + 1,
                          bottom - h, width - 2, h, fill);
    if (turned_ && width < kLabel)
      return; // there is no room for it
    // With a halo, so that the line of a limit does not strike it out.
    std::string style = absl::StrFormat("font-size=\"%g\" fill=\"#24292f\" stroke=\"#ffffff\" stroke-width=\"2.5\" "
                                        "paint-order=\"stroke\"",
                                        kLabel);
    const double middle = x + width / 2 + (turned_ ? kLabel / 3 : 0), above = bottom - h - 3;
    if (turned_)
      absl::StrAppendFormat(&style, " transform=\"rotate(-90 %.1f %.1f)\"", middle, above);
    else
      style += " text-anchor=\"middle\"";
    text(middle, above, labelOf(*value), style.c_str());
  }

  const BarChart &chart_;
  std::string body_;
  double left_ = kLeft, plot_ = kOnly; // of the panel that is drawn
  bool turned_ = false;                // its labels
};

} // namespace

std::string barChartSvg(const BarChart &chart) { return Drawing(chart).draw(); }

} // namespace headrace::tools
