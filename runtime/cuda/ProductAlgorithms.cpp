// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/ProductAlgorithms.h"

#include <charconv>
#include <fstream>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/base/StatusMacros.h"

namespace headrace::cuda {
namespace {

constexpr const char *kLibrary = "cublasLt ", *kBytes = ", bytes ";

absl::Status refused(const std::string &path, size_t line, const std::string &found, const char *expected) {
  return absl::InvalidArgumentError(absl::StrCat(path, ":", line, ": '", found, "': expected ", expected));
}

bool readWords(const std::string &text, ProductAlgorithms::Words &out) {
  size_t count = 0;
  for (const absl::string_view word : absl::StrSplit(text, ' ')) {
    if (count == out.size() || word.empty())
      return false;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), out[count++], 16);
    if (error != std::errc() || end != word.data() + word.size())
      return false;
  }
  return count == out.size();
}

} // namespace

const ProductAlgorithms::Words *ProductAlgorithms::of(const std::string &version, const std::string &shape) const {
  const auto it = library == version ? byShape.find(shape) : byShape.end();
  return it == byShape.end() ? nullptr : &it->second;
}

absl::StatusOr<ProductAlgorithms> readProductAlgorithms(const std::string &path) {
  std::ifstream file(path);
  if (!file)
    return absl::NotFoundError(absl::StrCat(path, ": cannot be read: expected algorithms of matrix products"));
  ProductAlgorithms out;
  std::string text;
  for (size_t line = 1; std::getline(file, text); ++line) {
    if (line == 1) {
      if (!absl::StartsWith(text, kLibrary))
        return refused(path, line, text, "the library and its version, as 'cublasLt 130001'");
      out.library = text;
      continue;
    }
    if (text.empty())
      continue;
    const size_t colon = text.find(": "), bytes = text.find(kBytes);
    const size_t begin = bytes == std::string::npos ? bytes : bytes + std::string(kBytes).size();
    ProductAlgorithms::Words words{};
    if (colon == std::string::npos || begin == std::string::npos || bytes < colon ||
        !readWords(text.substr(begin, text.find(',', begin) - begin), words))
      return refused(path, line, text, "'SHAPE: ..., bytes W W W W W W W W, ...', eight hexadecimal words");
    if (!out.byShape.emplace(text.substr(0, colon), words).second)
      return refused(path, line, text, "a shape once");
  }
  if (out.library.empty())
    return refused(path, 1, "", "the library and its version, as 'cublasLt 130001'");
  return out;
}

std::string productAlgorithmsText(const std::string &listed, const ProductAlgorithms &before) {
  std::string library, text;
  std::set<std::string> shapes;
  for (const absl::string_view line : absl::StrSplit(listed, '\n')) {
    if (library.empty() && absl::StartsWith(line, kLibrary))
      library = std::string(line);
    else if (const size_t colon = line.find(": "); absl::StrContains(line, kBytes) && colon != line.npos) {
      shapes.emplace(line.substr(0, colon));
      absl::StrAppend(&text, line, "\n");
    }
  }
  if (shapes.empty())
    return "";
  for (const auto &[shape, words] : before.byShape)
    if (before.library == library && !shapes.contains(shape)) {
      absl::StrAppend(&text, shape, ": as before", kBytes);
      for (size_t i = 0; i < words.size(); ++i)
        absl::StrAppend(&text, i == 0 ? "" : " ", absl::Hex(words[i]));
      text += '\n';
    }
  return absl::StrCat(library, "\n", text);
}

} // namespace headrace::cuda
