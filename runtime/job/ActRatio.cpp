// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/ActRatio.h"

#include <charconv>
#include <numeric>

namespace headrace::model {
namespace {

// Digits only, at most seven of them.
std::optional<int64_t> whole(std::string_view digits) {
  int64_t value = 0;
  if (digits.empty() || digits.size() > 7 || digits.find_first_not_of("0123456789") != std::string_view::npos)
    return std::nullopt;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

std::optional<ActRatio> lowest(int64_t num, int64_t den) {
  if (den < 1 || num < 0 || num > den)
    return std::nullopt;
  const int64_t common = std::gcd(num, den);
  return ActRatio{num / common, den / common};
}

} // namespace

ActRatio actRatioOf(int64_t act, int64_t kv) {
  for (; act > kMaxActDenominator || kv > kMaxActDenominator - act; act /= 2)
    kv /= 2;
  return act + kv == 0 ? ActRatio() : *lowest(act, act + kv);
}

std::optional<ActRatio> actRatioFromText(std::string_view text) {
  if (text == "auto")
    return kAutoActRatio;
  const auto both = [&](size_t at, size_t behind) {
    return std::pair(whole(text.substr(0, at)), whole(text.substr(behind)));
  };
  if (const size_t slash = text.find('/'); slash != std::string_view::npos) {
    const auto [num, den] = both(slash, slash + 1);
    if (!num || !den || *den > kMaxActDenominator)
      return std::nullopt;
    return lowest(*num, *den);
  }
  const size_t point = std::min(text.find('.'), text.size());
  const std::string_view behind = text.substr(std::min(point + 1, text.size()));
  const std::optional<int64_t> ones = whole(text.substr(0, point));
  const std::optional<int64_t> parts = point == text.size() ? std::optional<int64_t>(0) : whole(behind);
  if (!ones || !parts || behind.size() > 6 || *ones > 1)
    return std::nullopt;
  int64_t den = 1;
  for (size_t i = 0; i < behind.size(); ++i)
    den *= 10;
  return lowest(*ones * den + *parts, den);
}

std::string actRatioText(const ActRatio &share) {
  if (share.isAuto())
    return "auto";
  return share.den == 1 ? std::to_string(share.num) : std::to_string(share.num) + "/" + std::to_string(share.den);
}

} // namespace headrace::model
