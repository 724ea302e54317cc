// SPDX-License-Identifier: Apache-2.0
#include <charconv>

#include "absl/strings/str_cat.h"
#include "runtime/cuda/CudaDevice.h"

namespace headrace::cuda {

absl::StatusOr<int> deviceIndex(const std::string &name) {
  if (name == "cuda")
    return 0;
  constexpr const char *kPrefix = "cuda:";
  int index = 0;
  if (name.rfind(kPrefix, 0) == 0) {
    const char *first = name.data() + 5, *end = name.data() + name.size();
    if (const auto [last, error] = std::from_chars(first, end, index);
        error == std::errc() && last == end && first != end && index >= 0)
      return index;
  }
  return absl::InvalidArgumentError(absl::StrCat("\"", name, "\": expected cuda or cuda:N, N counting GPUs from 0"));
}

} // namespace headrace::cuda
