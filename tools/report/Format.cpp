// SPDX-License-Identifier: Apache-2.0
#include "tools/report/Format.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"

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

std::string formatRate(double amount) {
  constexpr int kMostDecimals = 9;
  if (amount >= 999.5)
    return formatCount(amount);
  if (amount >= 0.9995 || amount <= 0)
    return amount <= 0 ? "0" : threeDigits(amount);
  return absl::StrFormat("%.*f", std::min(kMostDecimals, 2 - static_cast<int>(std::floor(std::log10(amount)))), amount);
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

std::string oneLine(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      out += absl::CEscape(absl::string_view(&c, 1));
    else
      out += c;
  return out;
}

namespace {

constexpr size_t kNone = std::string_view::npos;

std::vector<std::string_view> linesOf(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

bool isFold(std::string_view line) { return line.starts_with("... "); }

// Where a table's columns are, [first, second): between them two or more blanks in all of its lines.
std::vector<std::pair<size_t, size_t>> columnsOf(absl::Span<const std::string_view> table) {
  std::string used; // by any line
  for (const std::string_view line : table) {
    used.resize(std::max(used.size(), isFold(line) ? 0 : line.size()), ' ');
    for (size_t c = 0; c < line.size() && !isFold(line); ++c)
      if (line[c] != ' ')
        used[c] = 'x';
  }
  std::vector<std::pair<size_t, size_t>> columns;
  for (size_t at = used.find('x'); at != kNone;) {
    const size_t end = std::min(used.find("  ", at), used.size());
    columns.emplace_back(at, end);
    at = used.find('x', end);
  }
  return columns;
}

std::string_view cellOf(std::string_view line, std::pair<size_t, size_t> column) {
  return column.first < line.size() ? line.substr(column.first, column.second - column.first) : std::string_view();
}

// So many columns from the left name a row.
size_t keysOf(absl::Span<const std::string_view> table, absl::Span<const std::pair<size_t, size_t>> columns) {
  constexpr size_t kMost = 4;
  for (size_t keys = 1; keys <= std::min(kMost, columns.size() - 1); ++keys) {
    std::set<std::string_view> seen;
    if (std::all_of(table.begin(), table.end(), [&](std::string_view line) {
          return isFold(line) || seen.insert(line.substr(0, columns[keys - 1].second)).second;
        }))
      return keys;
  }
  return 1;
}

// `line` with what does not fit going on below `indent`.
std::string wrapLine(std::string_view line, size_t indent, size_t width) {
  if (line.size() <= std::max(width, indent))
    return std::string(line) + "\n";
  std::string out(line.substr(0, indent));
  line.remove_prefix(indent);
  const size_t room = width - std::min(width, indent);
  while (line.size() > room) {
    size_t cut = line.rfind(' ', room);
    if (cut == kNone || cut == 0) // a word that is longer than the line
      cut = line.find(' ');
    if (cut == kNone)
      break;
    out.append(line.substr(0, cut)).append("\n").append(indent, ' ');
    line.remove_prefix(cut + 1);
  }
  return out.append(line) + "\n";
}

// A table that is wider goes on below itself, the columns that name its rows before each part.
std::string wrapTable(absl::Span<const std::string_view> table, size_t width) {
  const std::vector<std::pair<size_t, size_t>> columns = columnsOf(table);
  const size_t keys = keysOf(table, columns);
  std::string out;
  for (size_t at = keys; at < columns.size();) {
    size_t room = columns[keys - 1].second, end = at;
    for (; end < columns.size(); ++end) {
      const size_t more = columns[end].second - columns[end].first + 2;
      if (end > at && room + more > width)
        break;
      room += more;
    }
    out += out.empty() ? "" : "\n";
    for (const std::string_view line : table) {
      std::string part(isFold(line) ? line : line.substr(0, columns[keys - 1].second));
      for (size_t c = at; c < end && !isFold(line); ++c) {
        part.append(2, ' ').append(cellOf(line, columns[c]));
        part.append(columns[c].second - columns[c].first - cellOf(line, columns[c]).size(), ' ');
      }
      part.erase(part.find_last_not_of(' ') + 1);
      out += end == at + 1 ? wrapLine(part, columns[keys - 1].second + 2, width) : part + "\n"; // a column of text
    }
    at = end;
  }
  return out;
}

// Whether a line begins a table: cells with two or more blanks between them.
bool beginsTable(std::string_view line) {
  constexpr size_t kLeastCells = 4;
  size_t cells = 1;
  for (size_t gap = line.find("  ", std::min(line.find_first_not_of(' '), line.size())); gap != kNone; ++cells)
    gap = line.find("  ", std::min(line.find_first_not_of(' ', gap), line.size()));
  return cells >= kLeastCells;
}

} // namespace

std::string wrapLines(std::string_view text, size_t width) {
  constexpr size_t kLongestName = 18, kNarrowest = 20;
  const std::vector<std::string_view> lines = linesOf(text);
  std::string out;
  size_t indent = 0; // of the values before it
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string_view line = lines[i];
    const size_t gap = line.find("  ", std::min(line.find_first_not_of(' '), line.size()));
    const size_t value = gap < kLongestName ? line.find_first_not_of(' ', gap) : kNone;
    const bool named = value != kNone && line.find("  ", value) == kNone;
    if (named && value + kNarrowest < width)
      indent = value;
    else if (line.size() <= indent || indent == 0 || line[indent - 1] != ' ' || line[indent] == ' ')
      indent = 0; // other text
    if (width > 0 && beginsTable(line) && i + 1 < lines.size() && beginsTable(lines[i + 1])) {
      size_t end = i + 1;
      while (end < lines.size() && !lines[end].empty())
        ++end;
      const auto table = absl::MakeConstSpan(lines).subspan(i, end - i);
      if (std::any_of(table.begin(), table.end(), [&](std::string_view row) { return row.size() > width; })) {
        out += wrapTable(table, width);
        i = end - 1;
        continue;
      }
    }
    const bool command = value != kNone && line.substr(value, 9) == "headrace ";
    out += width == 0 || command ? std::string(line) + "\n" : wrapLine(line, indent, width);
  }
  return out;
}

} // namespace headrace::tools
