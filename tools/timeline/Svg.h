// SPDX-License-Identifier: Apache-2.0
//
// What all drawings share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace headrace::tools {

// Text as SVG's character data or attribute; control characters are dropped.
std::string svgEscaped(std::string_view text);
// A whole file of this size around `body`, on white; `kind` ("timeline", "bench") is how Outputs.h knows it again.
// `definitions` (patterns and so on) may be empty.
std::string svgDocument(std::string_view kind, double width, double height, std::string_view body,
                        std::string_view definitions = {});

// Elements, one behind the other. Styles are attributes as they stand in the file; text and tips are escaped here.
class SvgBody {
public:
  void text(double x, double y, std::string_view what, std::string_view style);
  void line(double x1, double y1, double x2, double y2, std::string_view style);
  void rect(double x, double y, double width, double height, std::string_view style);
  void path(std::string_view d, std::string_view style);
  void beginGroup(std::string_view tip); // elements that follow have it as their tooltip
  void endGroup();
  const std::string &text() const { return text_; }

private:
  std::string text_;
};

// Ends of axes. The least of 1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8 times a power of ten that is at least `value`; each has
// four even quarters. 1 of what is not above zero.
double axisTop(double value);
// A tick of such an axis: "0.25", "1.20 k".
std::string axisLabel(double value);
// Ticks of time: 1, 2 or 5 times a power of ten, such that the span has at most ten of them; every one in the unit of
// the whole axis.
uint64_t timeTick(uint64_t spanNs);
std::string timeLabel(uint64_t ns, uint64_t spanNs);

} // namespace headrace::tools
