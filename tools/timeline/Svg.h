// SPDX-License-Identifier: Apache-2.0
//
// What all drawings share.
#pragma once

#include <string>
#include <string_view>

namespace headrace::tools {

// Text as SVG's character data or attribute; control characters are dropped.
std::string svgEscaped(std::string_view text);
// A whole file of this size around `body`, on white; `kind` ("timeline", "bench") is how Outputs.h knows it again.
// `definitions` (patterns and so on) may be empty.
std::string svgDocument(std::string_view kind, double width, double height, std::string_view body,
                        std::string_view definitions = {});

} // namespace headrace::tools
