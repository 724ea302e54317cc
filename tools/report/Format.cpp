// SPDX-License-Identifier: Apache-2.0
#include "tools/report/Format.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace headrace::tools {
namespace {

// Three significant digits from 1 to 999, no point where there is nothing behind it.
std::string threeDigits(double value) {
  if (value >= 99.95)
    return absl::StrFormat("%.0f", value);
  return value >= 9.995 ? absl::StrFormat("%.1f", value) : absl::StrFormat("%.2f", value);
}

std::string scaled(double value, double base, const std::vector<const char *> &units) {
  size_t unit = 0;
  while (unit + 1 < units.size() && value >= base - 0.5) {
    value /= base;
    ++unit;
  }
  return absl::StrFormat("%s %s", unit == 0 ? absl::StrFormat("%.0f", value) : threeDigits(value), units[unit]);
}

} // namespace

std::string formatBytes(uint64_t bytes) {
  return scaled(static_cast<double>(bytes), 1024, {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"});
}

std::string formatNs(uint64_t ns) { return scaled(static_cast<double>(ns), 1000, {"ns", "us", "ms", "s"}); }

std::string formatCount(double amount) {
  std::string text = scaled(amount, 1000, {"", "k", "M", "G", "T", "P"});
  while (!text.empty() && text.back() == ' ')
    text.pop_back();
  return text;
}

std::string formatTable(const std::vector<std::vector<std::string>> &rows) {
  std::vector<size_t> widths;
  for (const auto &row : rows) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (size_t c = 0; c < row.size(); ++c)
      widths[c] = std::max(widths[c], row[c].size());
  }
  std::string out;
  for (const auto &row : rows) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string padding(widths[c] - row[c].size(), ' ');
      line += (c == 0 ? "" : "  ") + (c == 0 ? row[c] + padding : padding + row[c]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

namespace {

constexpr size_t kWhole = 24, kFirst = 12, kLast = 4;

bool folds(size_t count, bool all) { return !all && count > kWhole; }

std::string foldLine(size_t count, std::string_view what, std::string_view how) {
  return absl::StrFormat("... %d more %s: %s\n", count - kFirst - kLast, what, how);
}

} // namespace

std::string foldTable(const std::vector<std::vector<std::string>> &rows, bool all, std::string_view what,
                      std::string_view how) {
  if (rows.empty() || !folds(rows.size() - 1, all))
    return formatTable(rows);
  std::vector<std::vector<std::string>> shown(rows.begin(), rows.begin() + 1 + kFirst);
  shown.insert(shown.end(), rows.end() - kLast, rows.end());
  std::string table = formatTable(shown);
  size_t at = 0;
  for (size_t line = 0; line < 1 + kFirst; ++line)
    at = table.find('\n', at) + 1;
  return table.insert(at, foldLine(rows.size() - 1, what, how));
}

std::string foldLines(const std::vector<std::string> &lines, bool all, std::string_view what, std::string_view how) {
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (!folds(lines.size(), all) || i < kFirst || i >= lines.size() - kLast)
      out += lines[i];
    else if (i == kFirst)
      out += foldLine(lines.size(), what, how);
  }
  return out;
}

std::string wrapLines(std::string_view text, size_t width) {
  constexpr size_t kLongestName = 18, kNarrowest = 20;
  constexpr size_t kNone = std::string_view::npos;
  std::string out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t gap = line.find("  ", std::min(line.find_first_not_of(' '), line.size()));
    const size_t value = gap < kLongestName ? line.find_first_not_of(' ', gap) : kNone;
    if (line.size() > width && value != kNone && value + kNarrowest < width && line.find("  ", value) == kNone &&
        line.substr(value, 9) != "headrace ") {
      out.append(line.substr(0, value));
      line.remove_prefix(value);
      const size_t room = width - value;
      while (line.size() > room) {
        size_t cut = line.rfind(' ', room);
        if (cut == kNone || cut == 0) // a word that is longer than the line
          cut = line.find(' ');
        if (cut == kNone)
          break;
        out.append(line.substr(0, cut)).append("\n").append(value, ' ');
        line.remove_prefix(cut + 1);
      }
    }
    out.append(line).append("\n");
  }
  return out;
}

} // namespace headrace::tools
