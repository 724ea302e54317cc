// SPDX-License-Identifier: Apache-2.0
#include "tools/timeline/Svg.h"

#include <cmath>

#include "absl/strings/str_format.h"
#include "tools/report/Format.h"

namespace headrace::tools {

std::string svgEscaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else if (static_cast<unsigned char>(c) >= 0x20 || c == '\n')
      out += c;
  }
  return out;
}

std::string svgDocument(std::string_view kind, double width, double height, std::string_view body,
                        std::string_view definitions) {
  std::string out =
      absl::StrFormat("<svg xmlns=\"http://www.w3.org/2000/svg\" data-headrace=\"%s\" width=\"%.0f\" height=\"%.0f\" "
                      "viewBox=\"0 0 %.0f %.0f\" "
                      "font-family=\"system-ui, 'Segoe UI', Helvetica, Arial, sans-serif\" font-size=\"11\">\n",
                      absl::string_view(kind.data(), kind.size()), width, height, width, height);
  out += definitions;
  out += "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";
  out += body;
  out += "</svg>\n";
  return out;
}

namespace {

absl::string_view view(std::string_view text) { return {text.data(), text.size()}; }

} // namespace

void SvgBody::text(double x, double y, std::string_view what, std::string_view style) {
  absl::StrAppendFormat(&text_, "<text x=\"%.1f\" y=\"%.1f\" %s>%s</text>\n", x, y, view(style), svgEscaped(what));
}

void SvgBody::line(double x1, double y1, double x2, double y2, std::string_view style) {
  absl::StrAppendFormat(&text_, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x1, y1, x2, y2,
                        view(style));
}

void SvgBody::rect(double x, double y, double width, double height, std::string_view style) {
  absl::StrAppendFormat(&text_, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" %s/>\n", x, y, width,
                        height, view(style));
}

void SvgBody::path(std::string_view d, std::string_view style) {
  absl::StrAppendFormat(&text_, "<path d=\"%s\" %s/>\n", view(d), view(style));
}

void SvgBody::beginGroup(std::string_view tip) {
  absl::StrAppendFormat(&text_, "<g><title>%s</title>\n", svgEscaped(tip));
}

void SvgBody::endGroup() { text_ += "</g>\n"; }

double axisTop(double value) {
  if (!(value > 0) || !std::isfinite(value))
    return 1;
  const double power = std::pow(10, std::floor(std::log10(value)));
  for (const double factor : {1.0, 1.2, 1.6, 2.0, 2.4, 3.2, 4.0, 6.0, 8.0})
    if (factor * power >= value * (1 - 1e-12))
      return factor * power;
  return 10 * power;
}

std::string axisLabel(double value) { return value >= 1000 ? formatCount(value) : absl::StrFormat("%g", value); }

uint64_t timeTick(uint64_t spanNs) {
  for (uint64_t power = 1;; power *= 10)
    for (const uint64_t factor : {1, 2, 5})
      if (spanNs / 10 < power * factor || power > spanNs)
        return power * factor;
}

std::string timeLabel(uint64_t ns, uint64_t spanNs) {
  struct Unit {
    const char *name;
    double ns;
  };
  for (const Unit &unit : {Unit{"s", 1e9}, Unit{"ms", 1e6}, Unit{"us", 1e3}})
    if (static_cast<double>(spanNs) >= unit.ns)
      return absl::StrFormat("%g %s", static_cast<double>(ns) / unit.ns, unit.name);
  return absl::StrFormat("%d ns", ns);
}

} // namespace headrace::tools
