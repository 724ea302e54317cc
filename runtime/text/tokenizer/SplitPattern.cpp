// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/tokenizer/SplitPattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/text/tokenizer/TranslatePattern.h"
#include "runtime/text/tokenizer/Utf8.h"

namespace headrace::text {
namespace {

using model::cat;

constexpr size_t kLongestPattern = 1 << 16; // bytes
constexpr uint32_t kMatchSteps = 20'000'000, kMatchDepth = 100'000;
constexpr uint32_t kMatchHeapKiB = 64 << 10;
constexpr size_t kJitStack = 8 << 20;

std::string errorText(int error) {
  char text[256] = {};
  pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR *>(text), sizeof text);
  return text;
}

} // namespace

struct MatchMemory::Parts {
  pcre2_match_data *data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context *context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack *stack = pcre2_jit_stack_create(64 << 10, kJitStack, nullptr);
  Parts() {
    pcre2_set_match_limit(context, kMatchSteps);
    pcre2_set_depth_limit(context, kMatchDepth);
    pcre2_set_heap_limit(context, kMatchHeapKiB);
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  Parts(const Parts &) = delete;
  ~Parts() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
};

MatchMemory::MatchMemory() = default;
MatchMemory::~MatchMemory() = default;
MatchMemory::Parts &MatchMemory::parts() {
  if (parts_ == nullptr)
    parts_ = std::make_unique<Parts>();
  return *parts_;
}

struct SplitPattern::Regex {
  pcre2_code *code;
  std::string source;
  ~Regex() { pcre2_code_free(code); }
};

SplitPattern::SplitPattern() = default;
SplitPattern::SplitPattern(SplitPattern &&) noexcept = default;
SplitPattern &SplitPattern::operator=(SplitPattern &&) noexcept = default;
SplitPattern::~SplitPattern() = default;

SplitPattern SplitPattern::string(std::string_view text) {
  SplitPattern pattern;
  pattern.string_ = std::string(text);
  return pattern;
}

absl::StatusOr<SplitPattern> SplitPattern::regex(std::string_view source) {
  const std::optional<KnownPattern> known = knownPattern(source);
  if (!known)
    return regexWithoutShortcut(source);
  SplitPattern pattern;
  pattern.known_ = known;
  return pattern;
}

absl::StatusOr<SplitPattern> SplitPattern::regexWithoutShortcut(std::string_view source) {
  if (source.size() > kLongestPattern)
    return absl::InvalidArgumentError(
        cat("a pattern of ", source.size(), " bytes: expected at most ", kLongestPattern));
  ASSIGN_OR_RETURN(translated, translatePattern(source));
  pcre2_compile_context *context = pcre2_compile_context_create(nullptr);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context, 100);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code *code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, context);
  pcre2_compile_context_free(context);
  if (code == nullptr)
    return absl::InvalidArgumentError(cat("not a regular expression that can be used: ", errorText(error)));
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); // where it cannot, the interpreter matches
  SplitPattern pattern;
  pattern.regex_ = std::unique_ptr<Regex>(new Regex{code, std::string(source)});
  return pattern;
}

bool SplitPattern::matchesEmpty() const {
  if (regex_ == nullptr)
    return !known_ && string_.empty();
  uint32_t empty = 0;
  pcre2_pattern_info(regex_->code, PCRE2_INFO_MATCHEMPTY, &empty);
  return empty != 0;
}

absl::Status SplitPattern::forEachPart(std::string_view text, MatchMemory &memory,
                                       absl::FunctionRef<absl::Status(const TextPart &)> part) const {
  if (known_) {
    for (size_t at = 0; at < text.size();) {
      const size_t end = matchKnown(*known_, text, at);
      RETURN_IF_ERROR(part({at, end, true}));
      at = end;
    }
    return absl::OkStatus();
  }
  if (regex_ != nullptr)
    return forEachRegexPart(text, memory, part);
  size_t previous = 0;
  while (!string_.empty()) {
    const size_t found = text.find(string_, previous);
    if (found == std::string_view::npos)
      break;
    if (found != previous)
      RETURN_IF_ERROR(part({previous, found, false}));
    previous = found + string_.size();
    RETURN_IF_ERROR(part({found, previous, true}));
  }
  return previous != text.size() ? part({previous, text.size(), false}) : absl::OkStatus();
}

absl::Status SplitPattern::forEachRegexPart(std::string_view text, MatchMemory &memory,
                                            absl::FunctionRef<absl::Status(const TextPart &)> part) const {
  MatchMemory::Parts &parts = memory.parts();
  size_t previous = 0, from = 0; // the end of the last part; where the search goes on
  std::optional<size_t> lastMatchEnd;
  while (from <= text.size() && !text.empty()) {
    const int matched = pcre2_match(regex_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                                    PCRE2_NO_UTF_CHECK, parts.data, parts.context);
    if (matched == PCRE2_ERROR_NOMATCH)
      break;
    if (matched < 0)
      return absl::InvalidArgumentError(cat("the pattern ", model::escaped(regex_->source, 100),
                                            " cannot be matched with this text: ", errorText(matched)));
    const PCRE2_SIZE *found = pcre2_get_ovector_pointer(parts.data);
    const size_t begin = found[0], end = found[1];
    if (begin == end && lastMatchEnd == end) { // an empty match right behind the last one does not count
      from += from < text.size() ? codePointAt(text, from).bytes : 1;
      continue;
    }
    from = end;
    lastMatchEnd = end;
    if (previous != begin)
      RETURN_IF_ERROR(part({previous, begin, false}));
    RETURN_IF_ERROR(part({begin, end, true}));
    previous = end;
  }
  return previous != text.size() ? part({previous, text.size(), false}) : absl::OkStatus();
}

} // namespace headrace::text
