// SPDX-License-Identifier: Apache-2.0
//
// The prompts of a run, and how many tokens each gets: ids as they are given or drawn, or text through the model's
// tokenizer.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "tools/commands/Commands.h"
#include "tools/commands/PromptIds.h"
#include "tools/commands/RunSource.h"
#include "tools/commands/TextModel.h"

namespace headrace::tools {

// Which prompts, as far as flags alone say it: one way of giving them, and no flag that goes with another.
absl::Status checkPromptFlags(const PromptFlags &flags, const TextFlags &text);

struct RunPrompts {
  Prompts prompts;
  int64_t maxNewTokens = 0;
  std::string lengthIs;          // what they are that many for
  std::optional<TextModel> text; // of text only
};
// Refuses prompts that with their new tokens are longer than what the model has positions for.
absl::StatusOr<RunPrompts> readRunPrompts(const RunOptions &options, const RunSource &source);

} // namespace headrace::tools
