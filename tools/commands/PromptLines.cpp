// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/PromptLines.h"

#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "runtime/base/JsonReader.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"

namespace headrace::tools {
namespace {

using model::cat;

absl::StatusOr<std::string> promptOf(std::string_view line, const std::string &where) {
  ASSIGN_OR_RETURN(json, model::parseJson(line, where));
  if (json.is_string())
    return json.get<std::string>();
  if (!json.is_object())
    return absl::InvalidArgumentError(
        cat(where, ": ", model::jsonText(json), ": expected {\"prompt\": \"a text\"}, or \"a text\""));
  model::JsonReader reader(json, where);
  std::string prompt = reader.text("prompt", std::nullopt);
  for (const auto &[key, value] : json.items())
    if (key != "prompt") // it would ask for what is not done
      reader.refuseWith(cat("\"", model::escaped(key, 60), "\" is no key of a prompt: expected prompt alone"));
  RETURN_IF_ERROR(reader.status());
  return prompt;
}

} // namespace

absl::StatusOr<std::vector<PromptLine>> promptLines(std::string_view content, const std::string &path) {
  std::vector<PromptLine> prompts;
  bool json = path.ends_with(".jsonl");
  size_t number = 0;
  for (absl::string_view line : absl::StrSplit(absl::string_view(content.data(), content.size()), '\n')) {
    ++number;
    absl::ConsumeSuffix(&line, "\r");
    const size_t first = line.find_first_not_of(" \t");
    if (first == absl::string_view::npos)
      continue;
    json |= prompts.empty() && line[first] == '{';
    std::string where = cat(path, ":", number);
    std::string prompt(line);
    if (json) {
      ASSIGN_OR_RETURN(said, promptOf(prompt, where));
      prompt = std::move(said);
    }
    prompts.push_back({std::move(prompt), std::move(where)});
  }
  if (prompts.empty())
    return absl::InvalidArgumentError(cat(path, ": no prompts: expected one a line"));
  return prompts;
}

} // namespace headrace::tools
