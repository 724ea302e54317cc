// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/tokenizer/TranslatePattern.h"

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/text/tokenizer/Unicode.h"
#include "runtime/text/tokenizer/Utf8.h"

namespace headrace::text {
namespace {

using model::cat;

constexpr std::string_view kSpaces =
    R"(\x09-\x0D\x20\x85\xA0\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr std::string_view kHexDigits = "0-9A-Fa-f";
// Beside letters, marks and numbers: what Oniguruma counts to words, and what else outside of classes.
constexpr std::string_view kOtherWordLetters =
    R"(\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189})";
constexpr std::string_view kBareWordLetters = R"(\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})";

constexpr std::array<std::string_view, 30> kCategoryNames = {
    "Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps",
    "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"};

std::string hex(uint32_t codePoint) { return cat("\\x{", absl::Hex(codePoint), "}"); }

// Every character of a category, where one that PCRE2 knows has left it.
std::string rangesOf(Category category) {
  const UnicodeTable &table = UnicodeTable::get();
  std::string set;
  for (uint32_t first = 0; first < 0x110000; ++first) {
    if (table.category(first) != category)
      continue;
    uint32_t last = first;
    while (last + 1 < 0x110000 && table.category(last + 1) == category)
      ++last;
    set += first == last ? hex(first) : cat(hex(first), "-", hex(last));
    first = last;
  }
  return set;
}

// The inside of a class for a property; none for one that is not known.
std::optional<std::string> propertySet(std::string_view name) {
  if (name == "Han") // Unicode 15 and 15.1 added ideographs, 15 and 16 nothing else of this script
    return cat("\\p{sc:Han}", hex(0x2B739), hex(0x31350), "-", hex(0x323AF), hex(0x2EBF0), "-", hex(0x2EE5D));
  bool known = name == "L" || name == "M" || name == "N" || name == "P" || name == "S" || name == "Z";
  for (const std::string_view category : kCategoryNames)
    known = known || (category == name && category[0] != 'C') || name == "Cc";
  if (!known)
    return std::nullopt;
  if (name == "Mn")
    return rangesOf(Category::Mn);
  std::string set = cat("\\p{", name, "}");
  for (const CategoryRange &range : additionsAfterUnicode14()) {
    const std::string_view category = kCategoryNames[static_cast<size_t>(range.category)];
    if (category == name || category.substr(0, 1) == name)
      set += range.first == range.last ? hex(range.first) : cat(hex(range.first), "-", hex(range.last));
  }
  return set;
}

std::string wordSet(bool inClass) {
  return cat(inClass ? "" : kBareWordLetters, *propertySet("L"), *propertySet("M"), *propertySet("Nd"),
             *propertySet("Nl"), *propertySet("Pc"), kOtherWordLetters);
}

class Translation {
public:
  explicit Translation(std::string_view pattern) : pattern_(pattern) {}

  absl::StatusOr<std::string> run() {
    while (at_ < pattern_.size())
      RETURN_IF_ERROR(item());
    return std::move(out_);
  }

private:
  // A character, or a set of them.
  struct Escape {
    std::optional<uint32_t> codePoint;
    std::string set;
    bool negated = false;
  };

  bool next(std::string_view text) const { return pattern_.substr(at_).substr(0, text.size()) == text; }
  bool take(std::string_view text) {
    if (!next(text))
      return false;
    at_ += text.size();
    return true;
  }
  uint32_t takeCodePoint() {
    const CodePoint character = codePointAt(pattern_, at_);
    at_ += character.bytes;
    return character.value;
  }
  absl::Status refused(std::string_view what) const {
    return absl::InvalidArgumentError(cat("at byte ", at_, " of the pattern: ", what, " is not supported"));
  }

  bool anyCase() const { return !anyCase_.empty() && anyCase_.back(); }
  absl::Status item();
  absl::Status literal(uint32_t codePoint);
  absl::Status group();
  absl::Status quantifier();
  absl::Status characterClass();
  absl::StatusOr<Escape> escape(bool inClass);
  absl::StatusOr<uint32_t> hexEscape(char letter);
  absl::Status property(Escape &escape, bool negated);

  std::string_view pattern_;
  size_t at_ = 0;
  std::string out_;
  std::vector<bool> anyCase_; // of the groups that are open; first of the whole pattern, if that says so
  uint32_t before_ = 0;       // the character that stands before, if one does
};

absl::Status Translation::item() {
  if (pattern_[at_] == '[' || pattern_[at_] == '.' || pattern_[at_] == '|' || pattern_[at_] == '(')
    before_ = 0;
  switch (pattern_[at_]) {
  case '\\': {
    if (take("\\A") || take("\\z")) {
      out_ += pattern_.substr(at_ - 2, 2);
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(found, escape(/*inClass=*/false));
    if (found.codePoint)
      return literal(*found.codePoint);
    before_ = 0;
    out_ += cat(found.negated ? "[^" : "[", found.set, "]");
    return absl::OkStatus();
  }
  case '[':
    return characterClass();
  case '(':
    return group();
  case '*':
  case '+':
  case '?':
    out_ += pattern_[at_++];
    return absl::OkStatus();
  case '{':
    return quantifier();
  case '^':
  case '$':
    out_ += cat("(?m:", pattern_.substr(at_++, 1), ")");
    return absl::OkStatus();
  case '.':
    ++at_;
    out_ += "[^\\n]";
    return absl::OkStatus();
  case ')':
    if (anyCase_.empty())
      return refused("a parenthesis that closes nothing");
    anyCase_.pop_back();
    [[fallthrough]];
  case '|':
    out_ += pattern_[at_++];
    return absl::OkStatus();
  default:
    return literal(takeCodePoint());
  }
}

// Regardless of case Oniguruma also takes several characters for one ("ss" for U+00DF), which PCRE2 never does.
absl::Status Translation::literal(uint32_t codePoint) {
  const uint32_t lower =
      codePoint < 0x80 ? static_cast<uint32_t>(absl::ascii_tolower(static_cast<unsigned char>(codePoint))) : codePoint;
  if (anyCase() && codePoint >= 0x80)
    return refused("a character beyond ASCII under (?i");
  if (anyCase() && before_ != 0) {
    const char pair[] = {static_cast<char>(before_), static_cast<char>(lower), '\0'};
    for (const std::string_view melting : {"ss", "ff", "fi", "fl", "st"})
      if (pair == melting)
        return refused(cat("\"", pair, "\" under (?i"));
  }
  before_ = lower < 0x80 ? lower : 0;
  out_ += hex(codePoint);
  return absl::OkStatus();
}

absl::Status Translation::group() {
  if (!next("(?")) {
    out_ += "(?:"; // nothing refers to what a group matched
    ++at_;
    anyCase_.push_back(anyCase());
    return absl::OkStatus();
  }
  for (const std::string_view kind : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?-i:", "(?i)"}) {
    if (!next(kind))
      continue;
    if (kind == "(?i)" && at_ != 0)
      return refused("(?i) that is not at the pattern's begin");
    anyCase_.push_back(kind == "(?i:" || kind == "(?i)" || (kind != "(?-i:" && anyCase()));
    out_ += kind;
    at_ += kind.size();
    return absl::OkStatus();
  }
  return refused(pattern_.substr(at_, 3));
}

// {n}, {n,}, {n,m}, {,m}; any other brace is a character.
absl::Status Translation::quantifier() {
  size_t end = at_ + 1;
  const auto digits = [&] {
    const size_t begin = end;
    while (end < pattern_.size() && pattern_[end] >= '0' && pattern_[end] <= '9')
      ++end;
    return pattern_.substr(begin, end - begin);
  };
  const std::string_view least = digits();
  const bool comma = end < pattern_.size() && pattern_[end] == ',';
  end += comma ? 1 : 0;
  const std::string_view most = comma ? digits() : std::string_view();
  if (end >= pattern_.size() || pattern_[end] != '}' || (least.empty() && most.empty())) {
    ++at_;
    out_ += "\\{";
    return absl::OkStatus();
  }
  const std::string_view after = pattern_.substr(end + 1, 1);
  if (after == "+" || (after == "?" && !comma))
    return refused(pattern_.substr(at_, end + 2 - at_));
  if (least.size() > 4 || most.size() > 4)
    return refused("a count of more than 9999");
  out_ += cat("{", least.empty() ? "0" : least, comma ? "," : "", most, "}");
  at_ = end + 1;
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> Translation::hexEscape(char letter) {
  const bool braces = letter == 'x' && take("{");
  const size_t most = braces ? 6 : letter == 'u' ? 4 : 2;
  uint32_t value = 0;
  size_t digits = 0;
  for (; digits < most && at_ < pattern_.size() && absl::ascii_isxdigit(static_cast<unsigned char>(pattern_[at_]));
       ++digits, ++at_) {
    const char c = absl::ascii_tolower(static_cast<unsigned char>(pattern_[at_]));
    value = value * 16 + static_cast<uint32_t>(c <= '9' ? c - '0' : c - 'a' + 10);
  }
  if (digits == 0 || (braces && !take("}")) || (letter == 'u' && digits != 4) ||
      (letter == 'x' && !braces && value >= 0x80) || value >= 0x110000 || (value >= 0xD800 && value < 0xE000))
    return refused(cat("this \\", std::string(1, letter)));
  return value;
}

absl::Status Translation::property(Escape &escape, bool negated) {
  const size_t end = pattern_.find('}', at_);
  if (!take("{") || end == std::string_view::npos)
    return refused("\\p without {");
  std::string_view name = pattern_.substr(at_, end - at_);
  if (name.substr(0, 1) == "^") {
    negated = !negated;
    name.remove_prefix(1);
  }
  const std::optional<std::string> set = propertySet(name);
  if (!set)
    return refused(cat("\\p{", model::escaped(name, 40), "}"));
  if (anyCase() && (name == "Lu" || name == "Ll" || name == "Lt"))
    return refused(cat("\\p{", name, "} under (?i"));
  at_ = end + 1;
  escape.set = *set;
  escape.negated = negated;
  return absl::OkStatus();
}

absl::StatusOr<Translation::Escape> Translation::escape(bool inClass) {
  ++at_; // the backslash
  if (at_ == pattern_.size())
    return refused("a backslash at the end");
  Escape found;
  const uint32_t letter = takeCodePoint();
  const auto set = [&](std::string_view inside, bool negated) {
    found.set = std::string(inside);
    found.negated = negated;
  };
  constexpr std::pair<char, uint32_t> kControls[] = {{'t', 9},  {'n', 10}, {'v', 11}, {'f', 12},
                                                     {'r', 13}, {'a', 7},  {'e', 27}};
  for (const auto &[name, value] : kControls)
    if (letter == static_cast<uint32_t>(name))
      found.codePoint = value;
  if (found.codePoint)
    return found;
  if (letter == 's' || letter == 'S') {
    set(kSpaces, letter == 'S');
  } else if (letter == 'd' || letter == 'D') {
    set(*propertySet("Nd"), letter == 'D');
  } else if (letter == 'w' || letter == 'W') {
    set(wordSet(inClass), letter == 'W');
  } else if (letter == 'h' || letter == 'H') {
    set(kHexDigits, letter == 'H');
  } else if (letter == 'p' || letter == 'P') {
    RETURN_IF_ERROR(property(found, letter == 'P'));
  } else if (letter == 'x' || letter == 'u') {
    ASSIGN_OR_RETURN(value, hexEscape(static_cast<char>(letter)));
    found.codePoint = value;
  } else if (letter < 0x80 && absl::ascii_isalnum(static_cast<unsigned char>(letter))) {
    return refused(cat("\\", std::string(1, static_cast<char>(letter))));
  } else {
    found.codePoint = letter;
  }
  return found;
}

absl::Status Translation::characterClass() {
  ++at_;
  const bool negated = take("^");
  std::string inside;
  std::vector<std::string> complements; // the class also has everything outside these
  if (next("]"))
    return refused("an empty class");
  while (!take("]")) {
    if (at_ == pattern_.size())
      return refused("a class without its end");
    if (next("[") || next("&&"))
      return refused("a class in a class");
    Escape first;
    if (next("\\")) {
      ASSIGN_OR_RETURN(found, escape(/*inClass=*/true));
      first = std::move(found);
    } else {
      first.codePoint = takeCodePoint();
    }
    if (!first.codePoint) {
      if (first.negated)
        complements.push_back(std::move(first.set));
      else
        inside += first.set;
      continue;
    }
    if (anyCase() && *first.codePoint >= 0x80)
      return refused("a character beyond ASCII under (?i");
    inside += hex(*first.codePoint);
    if (!next("-") || at_ + 1 >= pattern_.size() || pattern_[at_ + 1] == ']')
      continue;
    ++at_;
    if (next("[") || next("&&"))
      return refused("a class in a class");
    Escape last;
    if (next("\\")) {
      ASSIGN_OR_RETURN(found, escape(/*inClass=*/true));
      last = std::move(found);
    } else {
      last.codePoint = takeCodePoint();
    }
    if (!last.codePoint || *last.codePoint < *first.codePoint || (anyCase() && *last.codePoint >= 0x80))
      return refused("a range that is none");
    inside += cat("-", hex(*last.codePoint));
  }
  if (complements.empty()) {
    out_ += cat(negated ? "[^" : "[", inside, "]");
    return absl::OkStatus();
  }
  out_ += "(?:";
  if (negated) {
    for (const std::string &complement : complements)
      out_ += cat("(?=[", complement, "])");
    out_ += inside.empty() ? "(?s:.)" : cat("[^", inside, "]");
  } else {
    if (!inside.empty())
      out_ += cat("[", inside, "]|");
    for (size_t i = 0; i < complements.size(); ++i)
      out_ += cat(i > 0 ? "|" : "", "[^", complements[i], "]");
  }
  out_ += ")";
  return absl::OkStatus();
}

} // namespace

absl::StatusOr<std::string> translatePattern(std::string_view pattern) { return Translation(pattern).run(); }

} // namespace headrace::text
