// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/Nearest.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "runtime/base/Text.h"

namespace headrace::model {
namespace {

constexpr size_t kLongestWord = 64, kShortestPart = 3, kMostNames = 3;
constexpr size_t kLetter = 2, kSign = 1; // what one costs

size_t costOf(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) ? kLetter : kSign; }

// What letters cost that are inserted, left out, changed, or swapped with their neighbour.
size_t distanceOf(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i)
    for (size_t j = 0; j <= b.size(); ++j) {
      size_t least = i + j == 0 ? 0 : SIZE_MAX;
      if (i > 0)
        least = std::min(least, d[i - 1][j] + costOf(a[i - 1]));
      if (j > 0)
        least = std::min(least, d[i][j - 1] + costOf(b[j - 1]));
      if (i > 0 && j > 0)
        least = std::min(least, d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : kLetter));
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        least = std::min(least, d[i - 2][j - 2] + kLetter);
      d[i][j] = least;
    }
  return d[a.size()][b.size()];
}

} // namespace

std::string didYouMean(std::string_view word, const std::vector<std::string> &names) {
  if (word.empty() || word.size() > kLongestWord)
    return "";
  const std::string wanted = absl::AsciiStrToLower({word.data(), word.size()});
  size_t least = std::max(kLetter, kLetter * wanted.size() / 3);
  std::vector<std::string> nearest, containing;
  for (const std::string &name : names) {
    const std::string lower = absl::AsciiStrToLower(name);
    if (const size_t distance = distanceOf(wanted, lower); distance <= least && distance < kLetter * lower.size()) {
      if (distance < least)
        nearest.clear();
      least = distance;
      nearest.push_back(name);
    }
    if (wanted.size() >= kShortestPart && lower.find(wanted) != std::string::npos)
      containing.push_back(name);
  }
  std::vector<std::string> &found = nearest.empty() ? containing : nearest;
  found.resize(std::min(found.size(), kMostNames));
  return found.empty() ? "" : cat("; did you mean ", absl::StrJoin(found, " or "), "?");
}

} // namespace headrace::model
