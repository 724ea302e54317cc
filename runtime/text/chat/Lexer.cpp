// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/chat/Lexer.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "runtime/base/Text.h"
#include "runtime/text/chat/PyText.h"

namespace headrace::text::jinja {
namespace {

using model::cat;

bool isDigit(char c) { return c >= '0' && c <= '9'; }
bool isWordCharacter(char c) { return isDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

// Every line break as \n, without the last one.
std::string normalized(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    text += source[i] == '\r' ? '\n' : source[i];
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n')
      ++i;
  }
  if (!text.empty() && text.back() == '\n')
    text.pop_back();
  return text;
}

class Lexer {
public:
  explicit Lexer(std::string_view source) : text_(normalized(source)) {}

  std::vector<Token> tokens() {
    while (at_ < text_.size())
      root();
    add(Token::End, "");
    return std::move(tokens_);
  }

private:
  [[noreturn]] void refuse(std::string message) const { throw SyntaxError{line_, std::move(message)}; }
  std::string_view rest(size_t from) const { return std::string_view(text_).substr(std::min(from, text_.size())); }
  bool startsWith(size_t from, std::string_view what) const { return rest(from).substr(0, what.size()) == what; }
  size_t skipSpace(size_t from) const { return text_.size() - stripLeft(rest(from)).size(); }

  void add(Token::Kind kind, std::string_view text) { tokens_.push_back({kind, line_, std::string(text), Value()}); }
  // Everything up to `end` is read.
  void moveTo(size_t end) {
    line_ += static_cast<int>(
        std::count(text_.begin() + static_cast<ptrdiff_t>(at_), text_.begin() + static_cast<ptrdiff_t>(end), '\n'));
    lineStarts_ = end > at_ ? text_[end - 1] == '\n' : lineStarts_;
    at_ = end;
  }

  // Text before a tag, of which `sign` ('-', '+' or 0) stands at the beginning.
  std::string_view before(std::string_view text, char sign, bool isVariable) const {
    if (sign == '-')
      return stripRight(text);
    if (sign == '+' || isVariable)
      return text;
    const size_t lineBegin = text.rfind('\n') + 1; // 0: none
    if ((lineBegin > 0 || lineStarts_) && strip(text.substr(lineBegin)).empty())
      return text.substr(0, lineBegin);
    return text;
  }
  void data(size_t end, char sign, bool isVariable) {
    const std::string_view text = before(std::string_view(text_).substr(at_, end - at_), sign, isVariable);
    if (!text.empty())
      add(Token::Data, text);
  }
  char signAt(size_t at) const { return at < text_.size() && (text_[at] == '-' || text_[at] == '+') ? text_[at] : 0; }

  void root();
  void comment();
  bool raw(size_t begin);
  void expression(std::string_view end, bool isVariable);
  std::optional<size_t> tagEnd(std::string_view end, bool isVariable) const;
  bool number();
  void string(char quote);
  std::string unescaped(std::string_view raw) const;
  void symbol();

  std::string text_;
  size_t at_ = 0;
  int line_ = 1;
  bool lineStarts_ = true;
  std::string open_; // closing brackets that are owed, the innermost last
  std::vector<Token> tokens_;
};

void Lexer::root() {
  size_t tag = text_.find('{', at_);
  while (tag != std::string::npos && !startsWith(tag, "{%") && !startsWith(tag, "{{") && !startsWith(tag, "{#"))
    tag = text_.find('{', tag + 1);
  if (tag == std::string::npos) {
    data(text_.size(), '+', false);
    return moveTo(text_.size());
  }
  const char kind = text_[tag + 1], sign = signAt(tag + 2);
  if (kind == '%' && raw(tag))
    return;
  data(tag, sign, kind == '{');
  moveTo(tag + 2 + (sign != 0));
  if (kind == '#')
    return comment();
  add(kind == '{' ? Token::VariableBegin : Token::BlockBegin, "");
  expression(kind == '{' ? "}}" : "%}", kind == '{');
}

void Lexer::comment() {
  for (size_t at = at_; at < text_.size(); ++at) {
    if (startsWith(at, "+#}"))
      return moveTo(at + 3);
    if (startsWith(at, "-#}"))
      return moveTo(skipSpace(at + 3));
    if (startsWith(at, "#}"))
      return moveTo(at + 2 + startsWith(at + 2, "\n"));
  }
  if (at_ < text_.size()) // jinja2 minds no comment, and no raw block, that begins where the template ends
    refuse("missing end of comment tag");
}

// {% raw %}...{% endraw %} at `begin`, as one piece of data; false: another tag.
bool Lexer::raw(size_t begin) {
  const auto word = [&](size_t at, std::string_view name) { // behind "{%", its sign, spaces, the name and spaces
    at = skipSpace(at + 2 + (signAt(at + 2) != 0));
    return startsWith(at, name) ? skipSpace(at + name.size()) : std::string::npos;
  };
  size_t inside = word(begin, "raw");
  if (inside == std::string::npos)
    return false;
  if (startsWith(inside, "-%}"))
    inside = skipSpace(inside + 3);
  else if (startsWith(inside, "%}"))
    inside += 2;
  else
    return false;
  data(begin, signAt(begin + 2), false);
  moveTo(inside);
  if (at_ >= text_.size())
    return true;
  for (size_t tag = text_.find("{%", at_); tag != std::string::npos; tag = text_.find("{%", tag + 1)) {
    const size_t end = word(tag, "endraw");
    if (end == std::string::npos)
      continue;
    const std::optional<size_t> behind = [&]() -> std::optional<size_t> {
      if (startsWith(end, "+%}"))
        return end + 3;
      if (startsWith(end, "-%}"))
        return skipSpace(end + 3);
      if (startsWith(end, "%}"))
        return end + 2 + startsWith(end + 2, "\n");
      return std::nullopt;
    }();
    if (!behind)
      continue;
    data(tag, signAt(tag + 2), false);
    moveTo(*behind);
    return true;
  }
  refuse("missing end of raw directive");
}

std::optional<size_t> Lexer::tagEnd(std::string_view end, bool isVariable) const {
  if (startsWith(at_, "-") && startsWith(at_ + 1, end))
    return skipSpace(at_ + 3);
  if (!isVariable && startsWith(at_, "+%}"))
    return at_ + 3;
  if (startsWith(at_, end))
    return at_ + 2 + (!isVariable && startsWith(at_ + 2, "\n"));
  return std::nullopt;
}

void Lexer::expression(std::string_view end, bool isVariable) {
  open_.clear();
  while (at_ < text_.size()) {
    if (open_.empty()) {
      if (const auto behind = tagEnd(end, isVariable)) {
        add(isVariable ? Token::VariableEnd : Token::BlockEnd, end);
        return moveTo(*behind);
      }
    }
    const char c = text_[at_];
    if (const size_t behind = skipSpace(at_); behind > at_) {
      moveTo(behind);
    } else if (isDigit(c)) {
      if (!number())
        refuse(cat("'", printable(rest(at_).substr(0, 20), 20), "' is no number"));
    } else if (isWordCharacter(c)) {
      size_t behindName = at_;
      while (behindName < text_.size() && isWordCharacter(text_[behindName]))
        ++behindName;
      add(Token::Name, std::string_view(text_).substr(at_, behindName - at_));
      moveTo(behindName);
    } else if (c == '\'' || c == '"')
      string(c);
    else
      symbol();
  }
}

// Digits with single underscores between them, from `at`; none: `at`.
size_t digitsEnd(std::string_view text, size_t at) {
  while (at < text.size() && isDigit(text[at])) {
    ++at;
    if (at + 1 < text.size() && text[at] == '_' && isDigit(text[at + 1]))
      ++at;
  }
  return at;
}

bool Lexer::number() {
  const std::string_view text = text_;
  const bool behindDot = at_ > 0 && text[at_ - 1] == '.'; // "a.0.b" has no floats
  size_t end = digitsEnd(text, at_);
  bool isFloat = false;
  if (!behindDot) {
    if (end + 1 < text.size() && text[end] == '.' && isDigit(text[end + 1])) {
      isFloat = true;
      end = digitsEnd(text, end + 1);
    }
    if (end < text.size() && (text[end] == 'e' || text[end] == 'E')) {
      const size_t sign = end + 1 + (end + 1 < text.size() && (text[end + 1] == '+' || text[end + 1] == '-'));
      if (const size_t behind = digitsEnd(text, sign); behind > sign) {
        isFloat = true;
        end = behind;
      }
    }
  }
  std::string digits(text.substr(at_, end - at_));
  digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
  Token token{Token::Number, line_, "", Value()};
  if (isFloat) {
    double value = 0;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (read.ec != std::errc())
      return false;
    token.number = Value::real(value);
  } else {
    int64_t value = 0;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    const bool leadingZero = digits.size() > 1 && digits[0] == '0' && value != 0;
    const bool more = end < text.size() && isWordCharacter(text[end]); // 0x10, 12ab
    if (read.ec != std::errc() || leadingZero || more)
      return false;
    token.number = Value::integer(value);
  }
  tokens_.push_back(std::move(token));
  moveTo(end);
  return true;
}

void Lexer::string(char quote) {
  size_t end = at_ + 1;
  while (end < text_.size() && text_[end] != quote)
    end += text_[end] == '\\' ? 2 : 1;
  if (end >= text_.size())
    refuse("a string has no end");
  add(Token::String, unescaped(std::string_view(text_).substr(at_ + 1, end - at_ - 1)));
  moveTo(end + 1);
}

std::string Lexer::unescaped(std::string_view raw) const {
  constexpr std::string_view kEscapes = "\n\\'\"abfnrtv", kMeanings{"\0\\'\"\a\b\f\n\r\t\v", 11};
  std::string text;
  for (size_t i = 0; i < raw.size(); ++i) {
    if (raw[i] != '\\') {
      text += raw[i];
      continue;
    }
    const char escape = raw[++i]; // string() made sure that there is one
    const size_t digits = escape == 'x' ? 2 : escape == 'u' ? 4 : escape == 'U' ? 8 : 0;
    if (const size_t which = kEscapes.find(escape); which != std::string_view::npos) {
      if (escape != '\n')
        text += kMeanings[which];
    } else if (digits > 0) {
      uint32_t value = 0;
      const auto hex = raw.substr(i + 1, digits);
      const auto read = std::from_chars(hex.data(), hex.data() + hex.size(), value, 16);
      if (hex.size() < digits || read.ptr != hex.data() + hex.size() || value > 0x10FFFF ||
          (value >= 0xD800 && value < 0xE000))
        refuse(cat("'\\", printable(raw.substr(i, digits + 1), 12), "' is no character"));
      appendCodePoint(text, value);
      i += digits;
    } else if (escape >= '0' && escape <= '7') {
      char32_t value = 0;
      size_t read = 0;
      for (; read < 3 && i + read < raw.size() && raw[i + read] >= '0' && raw[i + read] <= '7'; ++read)
        value = value * 8 + static_cast<char32_t>(raw[i + read] - '0');
      appendCodePoint(text, value);
      i += read - 1;
    } else if (escape == 'N') {
      refuse("characters by name (\\N) are not supported");
    } else
      (text += '\\') += escape;
  }
  return text;
}

void Lexer::symbol() {
  constexpr std::string_view kSymbols[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                           "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
  for (const std::string_view symbol : kSymbols) {
    if (!startsWith(at_, symbol))
      continue;
    const char c = symbol[0];
    if (c == '(' || c == '[' || c == '{') {
      open_ += c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
      if (open_.empty())
        refuse(cat("unexpected '", symbol, "'"));
      if (open_.back() != c)
        refuse(cat("unexpected '", symbol, "', expected '", std::string(1, open_.back()), "'"));
      open_.pop_back();
    }
    add(Token::Operator, symbol);
    return moveTo(at_ + symbol.size());
  }
  size_t behind = at_;
  nextCodePoint(text_, behind);
  refuse(cat("unexpected character ", reprOfText(rest(at_).substr(0, behind - at_))));
}

} // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).tokens(); }

std::string describe(const Token &token) {
  switch (token.kind) {
  case Token::End:
    return "end of template";
  case Token::Data:
    return "text";
  case Token::VariableBegin:
    return "'{{'";
  case Token::BlockBegin:
    return "'{%'";
  case Token::VariableEnd:
    return "'}}'";
  case Token::BlockEnd:
    return "'%}'";
  case Token::String:
    return "a string";
  case Token::Number:
    return "a number";
  case Token::Name:
  case Token::Operator:
    break;
  }
  return cat("'", printable(token.text, 60), "'");
}

} // namespace headrace::text::jinja
