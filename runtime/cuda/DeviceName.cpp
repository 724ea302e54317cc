// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <numeric>
#include <optional>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/cuda/CudaDevice.h"

namespace headrace::cuda {
namespace {

constexpr std::string_view kPrefix = "cuda:";

std::optional<int> numberOf(std::string_view text) {
  int number = 0;
  const auto [last, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || last != text.data() + text.size() || number < 0)
    return std::nullopt;
  return number;
}

} // namespace

absl::StatusOr<int> deviceIndex(const std::string &name) {
  if (name == "cuda")
    return 0;
  if (name.rfind(kPrefix, 0) == 0)
    if (const std::optional<int> index = numberOf(std::string_view(name).substr(kPrefix.size())); index)
      return *index;
  return absl::InvalidArgumentError(absl::StrCat("\"", name, "\": expected cuda or cuda:N, N counting GPUs from 0"));
}

absl::StatusOr<std::vector<int>> deviceIndices(const std::string &name, size_t devices) {
  std::vector<int> indices;
  if (name == "cuda") {
    indices.resize(devices);
    std::iota(indices.begin(), indices.end(), 0);
    return indices;
  }
  const auto refused = [&] {
    return absl::InvalidArgumentError(absl::StrCat("\"", name, "\": expected cuda, or cuda:N,M,... with ", devices,
                                                   devices == 1 ? " GPU" : " GPUs", ", counted from 0"));
  };
  if (name.rfind(kPrefix, 0) != 0)
    return refused();
  const std::vector<std::string> list = absl::StrSplit(name.substr(kPrefix.size()), ',');
  for (const std::string &one : list) {
    const std::optional<int> index = numberOf(one);
    if (!index)
      return refused();
    indices.push_back(*index);
  }
  return indices.size() == devices ? absl::StatusOr<std::vector<int>>(std::move(indices)) : refused();
}

} // namespace headrace::cuda
