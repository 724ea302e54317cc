// SPDX-License-Identifier: Apache-2.0
//
// The special tokens around a text.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "absl/status/statusor.h"

namespace headrace::text {

struct PostProcessor {
  static constexpr int32_t kText = -1; // stands for the text's own tokens
  std::vector<int32_t> ids = {kText};

  // Of tokenizer.json's "post_processor", which may be null.
  static absl::StatusOr<PostProcessor> parse(const nlohmann::json &value, std::string_view path);
  // Puts the text's tokens where the template has them; with `specials`, everything else of it too.
  std::vector<int32_t> apply(std::vector<int32_t> text, bool specials) const;
};

} // namespace headrace::text
