// SPDX-License-Identifier: Apache-2.0
//
// The prompts of a run, and how many tokens each gets: ids as they are given or drawn, or text through the model's
// tokenizer.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "runtime/model/ModelSpec.h"
#include "tools/commands/Commands.h"
#include "tools/commands/Outputs.h"
#include "tools/commands/PromptIds.h"
#include "tools/commands/RunSource.h"
#include "tools/commands/TextModel.h"

namespace headrace::tools {

// Which prompts, as far as flags alone say it: one way of giving them, and no flag that goes with another.
absl::Status checkPromptFlags(const PromptFlags &flags, const TextFlags &text);

// The files that they are read from.
void addInputs(const PromptFlags &flags, const TextFlags &text, Outputs &outputs);
// What a run writes, with these files as its inputs. Refuses names that do not go with what is written.
absl::StatusOr<Outputs> runOutputs(const RunOptions &options);
// The prompts: ids as they are given or drawn, or texts through the tokenizer of the model in `folder`, which is opened
// to `opened` then.
absl::StatusOr<Prompts> promptsOf(const PromptFlags &flags, const TextFlags &text, const std::string &folder,
                                  const model::ModelSpec &spec, uint64_t seed, std::optional<TextModel> &opened);

struct RunPrompts {
  Prompts prompts;
  int64_t maxNewTokens = 0;
  std::string lengthIs;          // what they are that many for
  std::optional<TextModel> text; // of text only
};
// Refuses prompts that with their new tokens are longer than what the model has positions for.
absl::StatusOr<RunPrompts> readRunPrompts(const RunOptions &options, const RunSource &source);
// Of a model in a folder, by plans of this context.
absl::StatusOr<RunPrompts> readRunPrompts(const RunOptions &options, const model::ModelSpec &spec,
                                          const std::string &folder, int64_t mostContext);

} // namespace headrace::tools
