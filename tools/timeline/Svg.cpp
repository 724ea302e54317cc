// SPDX-License-Identifier: Apache-2.0
#include "tools/timeline/Svg.h"

#include "absl/strings/str_format.h"

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

} // namespace headrace::tools
