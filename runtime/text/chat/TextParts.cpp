// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/chat/TextParts.h"

#include "runtime/text/chat/Characters.h"
#include "runtime/text/chat/PyText.h"

namespace headrace::text::jinja {
namespace {

bool isLineBreak(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

} // namespace

std::string_view stripped(Heap &heap, std::string_view text, const std::string *which, bool left, bool right) {
  if (!which) {
    if (right)
      text = stripRight(text);
    return left ? stripLeft(text) : text;
  }
  const auto has = [&](std::string_view character) {
    heap.read(which->size() + 8);
    return findText(*which, character) != std::string_view::npos;
  };
  while (right && !text.empty()) {
    size_t begin = text.size();
    previousCodePoint(text, begin);
    if (!has(text.substr(begin)))
      break;
    text = text.substr(0, begin);
  }
  while (left && !text.empty()) {
    size_t end = 0;
    nextCodePoint(text, end);
    if (!has(text.substr(0, end)))
      break;
    text.remove_prefix(end);
  }
  return text;
}

std::vector<std::string_view> splitLines(std::string_view text, bool keepEnds) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = at;
    const char32_t c = nextCodePoint(text, at);
    if (!isLineBreak(c))
      continue;
    if (c == '\r' && at < text.size() && text[at] == '\n')
      ++at;
    lines.push_back(text.substr(begin, (keepEnds ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size())
    lines.push_back(text.substr(begin));
  return lines;
}

void append(Heap &heap, std::string &text, std::string_view piece) {
  heap.check(static_cast<int64_t>(text.size() + piece.size()));
  heap.step();
  heap.read(piece.size());
  text += piece;
}

std::string replaced(Heap &heap, std::string_view text, std::string_view what, std::string_view by, int64_t most) {
  std::string made;
  size_t at = 0;
  for (int64_t count = 0; most < 0 || count < most; ++count) {
    if (what.empty()) {
      append(heap, made, by);
      if (at >= text.size())
        return made;
      const size_t begin = at;
      nextCodePoint(text, at);
      append(heap, made, text.substr(begin, at - begin));
      continue;
    }
    const size_t found = findText(text, what, at);
    if (found == std::string_view::npos)
      break;
    append(heap, made, text.substr(at, found - at));
    append(heap, made, by);
    at = found + what.size();
  }
  append(heap, made, text.substr(at));
  return made;
}

bool isDigitCharacter(char32_t c) {
  return isDecimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 || (c >= 0x2074 && c <= 0x2079) ||
         (c >= 0x2080 && c <= 0x2089) || (c >= 0x2460 && c <= 0x2468);
}

} // namespace headrace::text::jinja
