// SPDX-License-Identifier: Apache-2.0
//
// A file of prompts, one a line (--prompts). Where its name ends in .jsonl, or its first line begins with {, each line
// is JSON: {"prompt": "a text"}, or "a text". Lines without anything but blanks are nothing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace headrace::tools {

struct PromptLine {
  std::string text, where; // "prompts.txt:3"
};

// InvalidArgument names the line of `path`, and what stands there; also where there is no prompt at all.
absl::StatusOr<std::vector<PromptLine>> promptLines(std::string_view content, const std::string &path);

} // namespace headrace::tools
