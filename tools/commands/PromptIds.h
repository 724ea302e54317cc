// SPDX-License-Identifier: Apache-2.0
//
// Prompts as token ids: "1,2,3;4,5" is two prompts. In a file prompts may also stand on lines of their own; blank lines
// there are nothing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace headrace::tools {

using Prompts = std::vector<std::vector<int32_t>>;

// `where` ("--prompt-ids", or a file) begins every message, which names the prompt (counting from 0) and what stands
// where an id was expected. An empty prompt is refused.
absl::StatusOr<Prompts> parsePromptIds(std::string_view text, std::string_view where);
absl::StatusOr<Prompts> readPromptIds(const std::string &path);
// Prompts of random ids below `vocab`, the same for the same seed.
Prompts randomPrompts(int64_t count, int64_t length, int64_t vocab, uint64_t seed);
// "1,2,3" as ids, not necessarily any; for lists of stop tokens.
absl::StatusOr<std::vector<int32_t>> parseIds(std::string_view text, std::string_view where);
// Of --stop-ids: all in the model's vocabulary.
absl::Status checkStopIds(absl::Span<const int32_t> ids, int64_t vocab);

} // namespace headrace::tools
