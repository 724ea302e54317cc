// SPDX-License-Identifier: Apache-2.0
//
// What a text is cut by: a string, or a regular expression of the `tokenizers` package (Oniguruma's).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "runtime/text/tokenizer/KnownPatterns.h"

namespace headrace::text {

// What matching needs beside the pattern: one at a time for each of these.
class MatchMemory {
public:
  MatchMemory();
  ~MatchMemory();
  MatchMemory(const MatchMemory &) = delete;
  MatchMemory &operator=(const MatchMemory &) = delete;
  struct Parts;
  Parts &parts(); // allocated by the first call

private:
  std::unique_ptr<Parts> parts_;
};

struct TextPart {
  size_t begin, end;
  bool match;
};

class SplitPattern {
public:
  static SplitPattern string(std::string_view text);
  // By hand where the pattern is a known one, else by PCRE2 with its JIT. InvalidArgument says what is not supported.
  static absl::StatusOr<SplitPattern> regex(std::string_view pattern);
  static absl::StatusOr<SplitPattern> regexWithoutShortcut(std::string_view pattern); // for tests

  SplitPattern(SplitPattern &&) noexcept;
  SplitPattern &operator=(SplitPattern &&) noexcept;
  ~SplitPattern();

  // The text in order, as matches and what is between them; an empty match is a part too. InvalidArgument: matching
  // took more steps or memory than a pattern may.
  absl::Status forEachPart(std::string_view text, MatchMemory &memory,
                           absl::FunctionRef<absl::Status(const TextPart &)> part) const;
  bool matchesEmpty() const;

private:
  struct Regex;
  SplitPattern();
  absl::Status forEachRegexPart(std::string_view text, MatchMemory &memory,
                                absl::FunctionRef<absl::Status(const TextPart &)> part) const;
  std::optional<KnownPattern> known_;
  std::string string_;
  std::unique_ptr<Regex> regex_;
};

} // namespace headrace::text
