// SPDX-License-Identifier: Apache-2.0
//
// What a folder's files say of its chat template and the variables that it sees.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace headrace::text {

struct ChatFiles {
  std::string path;       // of the file that has the template
  std::string source;     // the template
  std::string toolSource; // another one, for conversations with tools; empty: there is none
  std::vector<std::pair<std::string, std::string>> specialTokens; // bos_token, eos_token, ...
};

// `templateFile`, where it is not empty, in place of the folder's template.
absl::StatusOr<ChatFiles> readChatFiles(const std::string &folder, const std::string &templateFile);

// Of a JSON object: what ends in "_token" and is a string or an object with a "content".
absl::StatusOr<std::vector<std::pair<std::string, std::string>>> specialTokens(std::string_view json,
                                                                               const std::string &path);

} // namespace headrace::text
