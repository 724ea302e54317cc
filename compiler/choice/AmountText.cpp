// SPDX-License-Identifier: Apache-2.0
#include "compiler/choice/AmountText.h"

#include <cmath>

#include "absl/strings/str_format.h"

namespace headrace::compiler {

std::string msText(uint64_t ns) { return absl::StrFormat("%.3f ms", static_cast<double>(ns) / 1e6); }

namespace {

// `round`: hundredths of the unit.
template <typename Round> std::string inUnits(uint64_t bytes, Round &&round) {
  const auto of = [&](uint64_t unit, const char *name) {
    return absl::StrFormat("%.2f %s", round(static_cast<double>(bytes) / static_cast<double>(unit) * 100) / 100, name);
  };
  if (bytes >= uint64_t{1} << 30)
    return of(uint64_t{1} << 30, "GiB");
  return bytes >= uint64_t{1} << 20 ? of(uint64_t{1} << 20, "MiB") : of(1024, "KiB");
}

} // namespace

std::string bytesText(uint64_t bytes) {
  return inUnits(bytes, [](double hundredths) { return hundredths; });
}

std::string leastBytesText(uint64_t bytes) {
  return inUnits(bytes, [](double hundredths) { return std::ceil(hundredths); });
}

} // namespace headrace::compiler
