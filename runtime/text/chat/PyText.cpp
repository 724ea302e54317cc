// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/chat/PyText.h"

#include <charconv>
#include <cmath>
#include <cstring>

#include "runtime/text/chat/Characters.h"

namespace headrace::text::jinja {
namespace {

constexpr char kHex[] = "0123456789abcdef";

void appendHex(std::string &text, char32_t value, int digits) {
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4)
    text += kHex[(value >> shift) & 15];
}

} // namespace

char32_t nextCodePoint(std::string_view text, size_t &offset) {
  const auto byte = [&](size_t at) { return static_cast<char32_t>(static_cast<unsigned char>(text[at])); };
  const char32_t first = byte(offset++);
  if (first < 0x80)
    return first;
  const int more = first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3;
  char32_t value = first & (0x3F >> more);
  for (int i = 0; i < more; ++i)
    value = value << 6 | (byte(offset++) & 0x3F);
  return value;
}

char32_t previousCodePoint(std::string_view text, size_t &offset) {
  do
    --offset;
  while ((static_cast<unsigned char>(text[offset]) & 0xC0) == 0x80);
  size_t at = offset;
  return nextCodePoint(text, at);
}

void appendCodePoint(std::string &text, char32_t codePoint) {
  if (codePoint < 0x80) {
    text += static_cast<char>(codePoint);
    return;
  }
  const int more = codePoint < 0x800 ? 1 : codePoint < 0x10000 ? 2 : 3;
  text += static_cast<char>((0xFF << (7 - more) & 0xFF) | codePoint >> (6 * more));
  for (int shift = 6 * (more - 1); shift >= 0; shift -= 6)
    text += static_cast<char>(0x80 | (codePoint >> shift & 0x3F));
}

int64_t countCodePoints(std::string_view text) {
  int64_t count = 0;
  for (const char c : text)
    count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

size_t offsetOf(std::string_view text, int64_t index) {
  size_t offset = 0;
  for (; index > 0 && offset < text.size(); --index)
    nextCodePoint(text, offset);
  return offset;
}

bool isSpace(char32_t c) {
  if (c < 0x80)
    return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

std::string_view stripLeft(std::string_view text) {
  size_t begin = 0;
  for (size_t at = 0; at < text.size() && isSpace(nextCodePoint(text, at));)
    begin = at;
  return text.substr(begin);
}

std::string_view stripRight(std::string_view text) {
  size_t end = text.size();
  for (size_t at = end; at > 0 && isSpace(previousCodePoint(text, at));)
    end = at;
  return text.substr(0, end);
}

size_t findText(std::string_view text, std::string_view what, size_t from) {
  if (from > text.size())
    return std::string_view::npos;
  if (what.empty())
    return from;
  const void *found = memmem(text.data() + from, text.size() - from, what.data(), what.size());
  return found ? static_cast<size_t>(static_cast<const char *>(found) - text.data()) : std::string_view::npos;
}

std::string reprOfText(std::string_view text) {
  const bool single = findText(text, "'") != std::string_view::npos;
  const char quote = single && findText(text, "\"") == std::string_view::npos ? '"' : '\'';
  std::string repr(1, quote);
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = nextCodePoint(text, at);
    if (c == static_cast<unsigned char>(quote) || c == '\\')
      (repr += '\\') += static_cast<char>(c);
    else if (c == '\n')
      repr += "\\n";
    else if (c == '\r')
      repr += "\\r";
    else if (c == '\t')
      repr += "\\t";
    else if (c < 0x20 || c == 0x7F || (c >= 0x80 && !isPrintable(c))) {
      repr += c < 0x100 ? "\\x" : c < 0x10000 ? "\\u" : "\\U";
      appendHex(repr, c, c < 0x100 ? 2 : c < 0x10000 ? 4 : 8);
    } else
      repr += text.substr(begin, at - begin);
  }
  return repr += quote;
}

std::string reprOfFloat(double value) {
  if (std::isnan(value))
    return "nan";
  if (std::isinf(value))
    return value < 0 ? "-inf" : "inf";
  char digits[32];
  const auto scientific = std::to_chars(digits, digits + sizeof digits, value, std::chars_format::scientific);
  std::string text(digits, scientific.ptr); // -d.ddde+xx
  const size_t e = text.find('e');
  const int exponent = std::atoi(text.c_str() + e + 1);
  if (exponent < -4 || exponent >= 16)
    return text; // Python writes exponents of two digits or more too
  char fixed[64];
  text.assign(fixed, std::to_chars(fixed, fixed + sizeof fixed, value, std::chars_format::fixed).ptr);
  return text.find('.') == std::string::npos ? text + ".0" : text;
}

std::string printable(std::string_view text, size_t most) {
  std::string shown;
  for (const char c : text) {
    if (shown.size() >= most && (static_cast<unsigned char>(c) & 0xC0) != 0x80)
      return shown + "...";
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n')
      shown += "\\n";
    else if (byte < 0x20 || byte == 0x7F) {
      shown += "\\x";
      appendHex(shown, byte, 2);
    } else
      shown += c;
  }
  return shown;
}

} // namespace headrace::text::jinja
