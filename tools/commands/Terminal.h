// SPDX-License-Identifier: Apache-2.0
//
// What is written where a person reads it.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "absl/types/span.h"

namespace headrace::tools {

// Columns of the terminal that standard output is, at least 60; 0: it is none.
int terminalWidth();

// Writes a report to standard output; on a terminal long lines go on below their value (wrapLines), so that words stay
// whole. Files and pipes have a line as one line. With --json nothing is changed.
void show(std::string_view report, bool json);
// A text as it is, whatever bytes it has: C's functions end at a zero.
void print(std::string_view text, std::FILE *to = stdout);

// A note on standard error, "headrace: NOTE": one line whatever names it holds, clear of a line of progress.
void say(std::string_view note);
void say(absl::Span<const std::string> notes); // a line each

} // namespace headrace::tools
