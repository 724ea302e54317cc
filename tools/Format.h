// SPDX-License-Identifier: Apache-2.0
//
// Amounts for people's eyes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headrace::tools {

std::string formatBytes(uint64_t bytes); // "0 B", "512 B", "1.50 KiB", "23.4 GiB": three digits
std::string formatNs(uint64_t ns);       // "850 ns", "12.3 us", "1.50 ms", "2.00 s": three digits
std::string formatCount(double amount);  // "950", "12.3 k", "1.50 M", "2.00 G", "3.20 T"

// Columns with two spaces between; the first column to the left, the others to the right. The first row is the header.
std::string formatTable(const std::vector<std::vector<std::string>> &rows);

} // namespace headrace::tools
