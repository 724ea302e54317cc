// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/Percent.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>
#include <vector>

#include "runtime/base/Text.h"

namespace headrace::model {
namespace {

constexpr std::string_view kSix = "six numbers, wg wc cg cc hg hc, such as \"55 45 0 100 0 100\"";

struct Pair {
  const char *device, *host;
  double Percent::*onDevice, Percent::*onHost;
};
constexpr Pair kPairs[] = {{"wg", "wc", &Percent::wg, &Percent::wc},
                           {"cg", "cc", &Percent::cg, &Percent::cc},
                           {"hg", "hc", &Percent::hg, &Percent::hc}};

} // namespace

std::optional<Percent> percentFromText(std::string_view text, std::string &expected) {
  std::vector<double> numbers;
  constexpr std::string_view kBetween = " ,\t";
  for (size_t at = text.find_first_not_of(kBetween); at != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(kBetween, at), text.size());
    const std::string_view word = text.substr(at, end - at);
    double number = 0;
    const auto [read, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (error != std::errc() || read != word.data() + word.size() || !std::isfinite(number)) {
      expected = cat(kSix, ", not \"", escaped(word), "\"");
      return std::nullopt;
    }
    numbers.push_back(number);
    at = text.find_first_not_of(kBetween, end);
  }
  if (numbers.size() != 6) {
    expected = cat(kSix, ", not ", numbers.size());
    return std::nullopt;
  }
  const Percent percent{numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5]};
  expected = percentRefusal(percent);
  return expected.empty() ? std::optional(percent) : std::nullopt;
}

std::string percentRefusal(const Percent &percent) {
  for (const Pair &pair : kPairs) {
    const double device = percent.*pair.onDevice, host = percent.*pair.onHost;
    for (const auto &[name, share] : {std::pair{pair.device, device}, {pair.host, host}})
      if (!(share >= 0))
        return cat(name, " from 0 to 100, not ", share);
    if (!(std::abs(device + host - 100) <= 1e-6))
      return cat(pair.device, " + ", pair.host, " = 100, not ", device + host, ": nothing is kept on disk");
  }
  if (percent.hg != 0 && percent.hg != 100)
    return cat("hg = 0 or 100, not ", percent.hg, ": hidden states are one buffer");
  return "";
}

absl::Status checkPercent(const Percent &percent, std::string_view what) {
  const std::string expected = percentRefusal(percent);
  return expected.empty() ? absl::OkStatus() : absl::InvalidArgumentError(cat(what, ": expected ", expected));
}

std::string percentText(const Percent &p) { return cat(p.wg, " ", p.wc, " ", p.cg, " ", p.cc, " ", p.hg, " ", p.hc); }

} // namespace headrace::model
