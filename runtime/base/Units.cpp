// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/Units.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/types/span.h"
#include "runtime/base/Text.h"

namespace headrace::model {
namespace {

struct ByteUnit {
  std::string_view name;
  uint64_t bytes;
};
constexpr ByteUnit kByteUnits[] = {
    {"B", 1},
    {"KB", 1000},
    {"MB", 1000 * 1000},
    {"GB", 1000ull * 1000 * 1000},
    {"TB", 1000ull * 1000 * 1000 * 1000},
    {"KiB", 1ull << 10},
    {"MiB", 1ull << 20},
    {"GiB", 1ull << 30},
    {"TiB", 1ull << 40},
    {"K", 1ull << 10},
    {"M", 1ull << 20},
    {"G", 1ull << 30},
    {"T", 1ull << 40},
};

struct Unit {
  std::string_view name;
  double factor;
};
constexpr Unit kBandwidthUnits[] = {
    {"B/s", 1},           {"KB/s", 1e3},           {"MB/s", 1e6},
    {"GB/s", 1e9},        {"TB/s", 1e12},          {"KiB/s", 1024.0},
    {"MiB/s", 1048576.0}, {"GiB/s", 1073741824.0}, {"TiB/s", 1099511627776.0},
};
constexpr Unit kFlopsUnits[] = {
    {"FLOP/s", 1}, {"MFLOP/s", 1e6}, {"GFLOP/s", 1e9}, {"TFLOP/s", 1e12}, {"PFLOP/s", 1e15},
};
constexpr Unit kSecondUnits[] = {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}};

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

// All digits, no exponent, the fewest that read back as the same value.
std::string digitsOf(double value) {
  char text[400]; // 1e308 has 309 digits
  return std::string(text, std::to_chars(text, text + sizeof(text), value, std::chars_format::fixed).ptr);
}

std::string rateText(double value, absl::Span<const Unit> units) {
  constexpr size_t kBrief = 7;
  std::string best;
  for (const Unit &unit : units) { // ascending; decimal ones first
    const std::string digits = digitsOf(value / unit.factor);
    double back = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), back);
    if (best.empty() || (value >= unit.factor && digits.size() <= kBrief && back * unit.factor == value &&
                         unit.name.find('i') == std::string_view::npos))
      best = digits + std::string(unit.name);
  }
  return best;
}

} // namespace

std::string bytesText(uint64_t bytes) {
  const ByteUnit *best = &kByteUnits[0];
  for (const ByteUnit &unit : kByteUnits)
    if (bytes != 0 && bytes % unit.bytes == 0 && unit.bytes > best->bytes)
      best = &unit;
  return cat(bytes / best->bytes, best->name);
}

std::string bandwidthText(double bytesPerSecond) { return rateText(bytesPerSecond, kBandwidthUnits); }
std::string flopsText(double flopsPerSecond) { return rateText(flopsPerSecond, kFlopsUnits); }

std::string secondsText(double seconds) {
  std::string best = digitsOf(seconds) + "s";
  for (const Unit &unit : kSecondUnits) {
    const double value = seconds / unit.factor;
    for (const double candidate : {value, std::round(value)}) {
      const std::string text = digitsOf(candidate) + std::string(unit.name);
      double back = 0;
      std::from_chars(text.data(), text.data() + text.size(), back);
      if (candidate >= 1 && back * unit.factor == seconds && text.size() < best.size())
        best = text;
    }
  }
  return best;
}

absl::StatusOr<uint64_t> parseBytes(std::string_view text, std::string_view what) {
  std::string_view number, unitName;
  if (!split(text, number, unitName))
    return refuse(text, what, kBytesExpected);
  const ByteUnit *unit = nullptr;
  for (const ByteUnit &candidate : kByteUnits)
    if (candidate.name == unitName)
      unit = &candidate;
  if (unit == nullptr)
    return refuse(text, what, kBytesExpected);

  // Exact integer arithmetic: whole * unit + floor(fraction * unit), the fraction to 18 digits.
  constexpr unsigned __int128 kMax = std::numeric_limits<int64_t>::max();
  unsigned __int128 whole = 0;
  const size_t point = std::min(number.find('.'), number.size());
  for (char digit : number.substr(0, point)) {
    whole = whole * 10 + static_cast<unsigned>(digit - '0');
    if (whole > kMax)
      return refuse(text, what, kBytesExpected);
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
    return refuse(text, what, kBytesExpected);
  return static_cast<uint64_t>(bytes);
}

absl::StatusOr<double> parseBandwidth(std::string_view text, std::string_view what) {
  return parseWithUnit(text, what, kBandwidthUnits, kBandwidthExpected, false);
}

absl::StatusOr<double> parseFlops(std::string_view text, std::string_view what) {
  return parseWithUnit(text, what, kFlopsUnits, kFlopsExpected, false);
}

absl::StatusOr<double> parseSeconds(std::string_view text, std::string_view what) {
  return parseWithUnit(text, what, kSecondUnits, kSecondsExpected, true);
}

std::optional<int64_t> parseCount(std::string_view text) {
  constexpr std::string_view kDecimal = "kmgt", kBinary = "KMGT";
  std::string_view number, suffix;
  if (!split(text, number, suffix) || suffix.size() != 1)
    return std::nullopt;
  const size_t decimal = kDecimal.find(suffix), binary = kBinary.find(suffix);
  if (decimal == std::string_view::npos && (binary == std::string_view::npos || number.find('.') != number.npos))
    return std::nullopt;
  double value = 0;
  std::from_chars(number.data(), number.data() + number.size(), value);
  for (size_t power = 0; power <= (decimal == std::string_view::npos ? binary : decimal); ++power)
    value *= decimal == std::string_view::npos ? 1024 : 1000;
  constexpr double kExact = 9007199254740992; // 2^53
  return value <= kExact ? std::optional(static_cast<int64_t>(value)) : std::nullopt;
}

std::string durationText(std::chrono::nanoseconds time) { return durationText(static_cast<uint64_t>(time.count())); }

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
