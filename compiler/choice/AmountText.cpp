// SPDX-License-Identifier: Apache-2.0
#include "compiler/choice/AmountText.h"

#include "absl/strings/str_format.h"

namespace headrace::compiler {

std::string msText(uint64_t ns) { return absl::StrFormat("%.3f ms", static_cast<double>(ns) / 1e6); }

std::string bytesText(uint64_t bytes) {
  if (bytes >= uint64_t{1} << 30)
    return absl::StrFormat("%.2f GiB", static_cast<double>(bytes) / static_cast<double>(uint64_t{1} << 30));
  if (bytes >= uint64_t{1} << 20)
    return absl::StrFormat("%.2f MiB", static_cast<double>(bytes) / static_cast<double>(uint64_t{1} << 20));
  return absl::StrFormat("%.2f KiB", static_cast<double>(bytes) / 1024.0);
}

} // namespace headrace::compiler
