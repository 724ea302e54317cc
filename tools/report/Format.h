// SPDX-License-Identifier: Apache-2.0
//
// Amounts for people's eyes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace headrace::tools {

std::string formatBytes(uint64_t bytes); // "0 B", "512 B", "1.50 KiB", "23.4 GiB": three digits
std::string formatNs(uint64_t ns);       // "850 ns", "12.3 us", "1.50 ms", "2.00 s": three digits
std::string formatCount(double amount);  // "950", "12.3 k", "1.50 M", "2.00 G", "3.20 T"
std::string formatRate(double amount);   // so many a second, to three digits: "0.0538", "5.38", "95.0", "12.3 k"

// Columns with two spaces between; the first column to the left, the others to the right. The first row is the header.
std::string formatTable(const std::vector<std::vector<std::string>> &rows);
// The same, but of more than 24 rows (beside the header) only the first 12 and the last 4, unless `all`: between them
// stands how many `what` ("variants") are left out, and `how` to see them.
std::string foldTable(const std::vector<std::vector<std::string>> &rows, bool all, std::string_view what,
                      std::string_view how);
inline constexpr std::string_view kShowAll = "--all shows them";
// Lines (each with its end) likewise.
std::string foldLines(const std::vector<std::string> &lines, bool all, std::string_view what, std::string_view how);
// A text that may hold names of files and of others, as one line: control characters as "\n", "\000", "\033".
std::string oneLine(std::string_view text);
// For a terminal of `width` columns: longer lines "name   value" go on below the beginning of their value, other text
// below its own, at spaces; wider tables (cells with two spaces or more between them) go on below themselves, with the
// columns that name their rows. Commands stay: they are for copying. 0: all as it is.
std::string wrapLines(std::string_view text, size_t width);

} // namespace headrace::tools
