// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/tokenizer/Tokenizer.h"

namespace headrace::text {

absl::StatusOr<std::shared_ptr<const Tokenizer>> Tokenizer::open(const std::string &folder) {
  return absl::UnimplementedError(folder);
}

absl::StatusOr<std::shared_ptr<const Tokenizer>> Tokenizer::parse(std::string_view, const std::string &path) {
  return absl::UnimplementedError(path);
}

} // namespace headrace::text
