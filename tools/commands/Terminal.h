// SPDX-License-Identifier: Apache-2.0
//
// Standard output where a person reads it.
#pragma once

#include <string_view>

namespace headrace::tools {

// Columns of the terminal that standard output is, at least 60; 0: it is none.
int terminalWidth();

// Writes a report to standard output; on a terminal long lines go on below their value (wrapLines), so that words stay
// whole. Files and pipes have a line as one line. With --json nothing is changed.
void show(std::string_view report, bool json);

} // namespace headrace::tools
