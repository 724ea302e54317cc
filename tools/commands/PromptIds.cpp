// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/PromptIds.h"

#include <charconv>

#include "runtime/base/FileIo.h"
#include "runtime/base/Text.h"
#include "tools/commands/InputErrors.h"

namespace headrace::tools {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  return first == std::string_view::npos ? std::string_view()
                                         : text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

// The parts of `text` between `separator`s; one empty part for an empty text.
std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos)
      return parts;
    text.remove_prefix(end + 1);
  }
}

absl::StatusOr<std::vector<int32_t>> parseOne(std::string_view text, const std::string &where) {
  std::vector<int32_t> ids;
  for (std::string_view part : split(text, ',')) {
    part = trimmed(part);
    int32_t id = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), id);
    if (error != std::errc() || end != part.data() + part.size() || id < 0)
      return absl::InvalidArgumentError(model::cat(where, " = \"", model::escaped(part, 40),
                                                   "\": expected a token id, a number from 0 to 2147483647"));
    ids.push_back(id);
  }
  return ids;
}

} // namespace

absl::StatusOr<std::vector<int32_t>> parseIds(std::string_view text, std::string_view where) {
  if (trimmed(text).empty())
    return std::vector<int32_t>{};
  return parseOne(text, std::string(where));
}

absl::StatusOr<Prompts> parsePromptIds(std::string_view text, std::string_view where) {
  Prompts prompts;
  for (std::string_view line : split(text, '\n')) {
    if (trimmed(line).empty() && text.find('\n') != std::string_view::npos)
      continue;
    for (std::string_view prompt : split(line, ';')) {
      const std::string name = model::cat(where, ": prompt ", prompts.size());
      if (trimmed(prompt).empty())
        return absl::InvalidArgumentError(model::cat(name, " = \"\": expected at least one token id"));
      absl::StatusOr<std::vector<int32_t>> ids = parseOne(prompt, name);
      if (!ids.ok())
        return ids.status();
      prompts.push_back(*std::move(ids));
    }
  }
  if (prompts.empty())
    return absl::InvalidArgumentError(model::cat(where, ": no prompts: expected token ids such as \"1,2,3;4,5\""));
  return prompts;
}

absl::StatusOr<Prompts> readPromptIds(const std::string &path) {
  absl::StatusOr<std::string> text = model::readInput(path);
  if (!text.ok())
    return text.status();
  return parsePromptIds(*text, path);
}

Prompts randomPrompts(int64_t count, int64_t length, int64_t vocab, uint64_t seed) {
  Prompts prompts(static_cast<size_t>(count));
  uint64_t counter = seed * 0x9e3779b97f4a7c15u;
  for (std::vector<int32_t> &prompt : prompts) {
    prompt.reserve(static_cast<size_t>(length));
    for (int64_t i = 0; i < length; ++i) {
      uint64_t z = counter += 0x9e3779b97f4a7c15u; // SplitMix64
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
      z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
      prompt.push_back(static_cast<int32_t>((z ^ (z >> 31)) % static_cast<uint64_t>(vocab)));
    }
  }
  return prompts;
}

absl::Status checkStopIds(absl::Span<const int32_t> ids, int64_t vocab) {
  for (const int32_t id : ids)
    if (id >= vocab)
      return badNumber("--stop-ids", id, model::cat("token ids from 0 to ", vocab - 1, ", the model's vocabulary"));
  return absl::OkStatus();
}

} // namespace headrace::tools
