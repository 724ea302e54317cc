// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/Units.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/types/span.h"
#include "runtime/model/Text.h"

namespace headrace::model {
namespace {

struct ByteUnit {
  std::string_view name;
  uint64_t bytes;
};
constexpr ByteUnit kByteUnits[] = {
    {"", 1},
    {"B", 1},
    {"KB", 1000},
    {"MB", 1000 * 1000},
    {"GB", 1000ull * 1000 * 1000},
    {"TB", 1000ull * 1000 * 1000 * 1000},
    {"KiB", 1ull << 10},
    {"MiB", 1ull << 20},
    {"GiB", 1ull << 30},
    {"TiB", 1ull << 40},
};

struct Unit {
  std::string_view name;
  double factor;
};
constexpr Unit kBandwidthUnits[] = {
    {"", 1},        {"B/s", 1},        {"KB/s", 1e3},        {"MB/s", 1e6},           {"GB/s", 1e9},
    {"TB/s", 1e12}, {"KiB/s", 1024.0}, {"MiB/s", 1048576.0}, {"GiB/s", 1073741824.0}, {"TiB/s", 1099511627776.0},
};
constexpr Unit kFlopsUnits[] = {
    {"", 1}, {"FLOP/s", 1}, {"MFLOP/s", 1e6}, {"GFLOP/s", 1e9}, {"TFLOP/s", 1e12}, {"PFLOP/s", 1e15},
};
constexpr Unit kSecondUnits[] = {{"", 1}, {"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}};

absl::Status refuse(std::string_view text, std::string_view what, std::string_view expected) {
  return absl::InvalidArgumentError(cat(what, " = \"", escaped(text, 80), "\": expected ", expected));
}

// Splits "1.5 GiB" into its number and its unit; the number is digits with at most one point, no sign, no exponent.
bool split(std::string_view text, std::string_view &number, std::string_view &unit) {
  const auto trim = [](std::string_view &part) {
    while (!part.empty() && part.front() == ' ')
      part.remove_prefix(1);
    while (!part.empty() && part.back() == ' ')
      part.remove_suffix(1);
  };
  trim(text);
  size_t end = 0;
  while (end < text.size() && (absl::ascii_isdigit(static_cast<unsigned char>(text[end])) || text[end] == '.'))
    ++end;
  number = text.substr(0, end);
  unit = text.substr(end);
  trim(unit);
  return !number.empty() && number.front() != '.' && number.back() != '.' && number.find('.') == number.rfind('.');
}

absl::StatusOr<double> parseWithUnit(std::string_view text, std::string_view what, absl::Span<const Unit> units,
                                     std::string_view expected, bool zeroAllowed) {
  std::string_view number, unit;
  if (!split(text, number, unit))
    return refuse(text, what, expected);
  double value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (error != std::errc() || end != number.data() + number.size())
    return refuse(text, what, expected);
  for (const Unit &candidate : units) {
    if (candidate.name != unit)
      continue;
    value *= candidate.factor;
    if (!std::isfinite(value) || (value <= 0 && !zeroAllowed))
      return refuse(text, what, expected);
    return value;
  }
  return refuse(text, what, expected);
}

} // namespace

absl::StatusOr<uint64_t> parseBytes(std::string_view text, std::string_view what) {
  constexpr std::string_view kExpected = "bytes such as \"8GiB\", \"512MiB\", \"24GB\" or \"4096\", below 2^63";
  std::string_view number, unitName;
  if (!split(text, number, unitName))
    return refuse(text, what, kExpected);
  const ByteUnit *unit = nullptr;
  for (const ByteUnit &candidate : kByteUnits)
    if (candidate.name == unitName)
      unit = &candidate;
  if (unit == nullptr)
    return refuse(text, what, kExpected);

  // Exact integer arithmetic: whole * unit + floor(fraction * unit), the fraction to 18 digits.
  constexpr unsigned __int128 kMax = std::numeric_limits<int64_t>::max();
  unsigned __int128 whole = 0;
  const size_t point = std::min(number.find('.'), number.size());
  for (char digit : number.substr(0, point)) {
    whole = whole * 10 + static_cast<unsigned>(digit - '0');
    if (whole > kMax)
      return refuse(text, what, kExpected);
  }
  unsigned __int128 fraction = 0, scale = 1;
  if (point < number.size()) {
    for (char digit : number.substr(point + 1, 18)) {
      fraction = fraction * 10 + static_cast<unsigned>(digit - '0');
      scale *= 10;
    }
  }
  const unsigned __int128 bytes = whole * unit->bytes + fraction * unit->bytes / scale;
  if (bytes > kMax)
    return refuse(text, what, kExpected);
  return static_cast<uint64_t>(bytes);
}

absl::StatusOr<double> parseBandwidth(std::string_view text, std::string_view what) {
  return parseWithUnit(text, what, kBandwidthUnits,
                       "a positive bandwidth such as \"24GB/s\", \"800MB/s\" or \"1.5GiB/s\"", false);
}

absl::StatusOr<double> parseFlops(std::string_view text, std::string_view what) {
  return parseWithUnit(text, what, kFlopsUnits, "a positive rate such as \"31.2TFLOP/s\" or \"800GFLOP/s\"", false);
}

absl::StatusOr<double> parseSeconds(std::string_view text, std::string_view what) {
  return parseWithUnit(text, what, kSecondUnits, "a time such as \"5us\", \"1.5ms\" or \"2s\"", true);
}

std::string durationText(uint64_t ns) {
  std::string text = cat(ns / 1'000'000);
  if (const uint64_t rest = ns % 1'000'000; rest != 0) {
    std::string digits = cat(1'000'000 + rest).substr(1); // six of them
    digits.erase(digits.find_last_not_of('0') + 1);
    text += "." + digits;
  }
  return text + "ms";
}

} // namespace headrace::model
