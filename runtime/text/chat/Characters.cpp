// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/chat/Characters.h"

#include <cstdlib>
#include <utility>
#include <vector>

#include <utf8proc.h>

#include "runtime/text/chat/PyText.h"

namespace headrace::text::jinja {
namespace {

constexpr char32_t kSharpS = 0xDF, kDottedI = 0x130, kSigma = 0x3A3, kFinalSigma = 0x3C2, kIotaBelow = 0x345,
                   kPerispomeni = 0x342;

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }
char32_t simpleUpper(char32_t c) { return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))); }
char32_t simpleLower(char32_t c) { return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))); }
char32_t simpleTitle(char32_t c) { return static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))); }

// Whether SpecialCasing.txt gives it an upper form of several characters: those of what it decomposes to.
bool growsInUpper(char32_t c) {
  if (c < 0x149)
    return false;
  constexpr std::pair<char32_t, char32_t> kRanges[] = {
      {0x149, 0x149},   {0x1F0, 0x1F0},   {0x390, 0x390},   {0x3B0, 0x3B0},   {0x587, 0x587},   {0x1E96, 0x1E9A},
      {0x1F50, 0x1F50}, {0x1F52, 0x1F52}, {0x1F54, 0x1F54}, {0x1F56, 0x1F56}, {0x1F80, 0x1FAF}, {0x1FB2, 0x1FB4},
      {0x1FB6, 0x1FB7}, {0x1FBC, 0x1FBC}, {0x1FC2, 0x1FC4}, {0x1FC6, 0x1FC7}, {0x1FCC, 0x1FCC}, {0x1FD2, 0x1FD3},
      {0x1FD6, 0x1FD7}, {0x1FE2, 0x1FE4}, {0x1FE6, 0x1FE7}, {0x1FF2, 0x1FF4}, {0x1FF6, 0x1FF7}, {0x1FFC, 0x1FFC},
      {0xFB00, 0xFB06}, {0xFB13, 0xFB17}};
  for (const auto &[first, last] : kRanges)
    if (c >= first && c <= last)
      return true;
  return false;
}

std::vector<char32_t> decomposed(char32_t c) {
  utf8proc_int32_t parts[32];
  int boundary = 0;
  const auto count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts, 32,
                              static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT), &boundary);
  return {parts, parts + (count < 0 ? 0 : count)};
}

// Letters with an iota below are composed with their accents, most others are not.
void appendParts(std::string &text, const std::vector<char32_t> &parts, bool compose) {
  std::string raw;
  for (const char32_t part : parts)
    appendCodePoint(raw, part);
  if (!compose) {
    text += raw;
    return;
  }
  utf8proc_uint8_t *made = nullptr;
  const auto size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t *>(raw.data()), static_cast<utf8proc_ssize_t>(raw.size()),
                   &made, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  if (size >= 0)
    text.append(reinterpret_cast<const char *>(made), static_cast<size_t>(size));
  std::free(made);
}

void appendUpper(std::string &text, char32_t c) {
  if (c == kSharpS) {
    text += "SS";
  } else if (growsInUpper(c)) {
    auto parts = decomposed(c);
    const bool iota = parts.back() == kIotaBelow;
    for (char32_t &part : parts)
      part = simpleUpper(part);
    appendParts(text, parts, iota);
  } else
    appendCodePoint(text, c < 0x80 ? (c >= 'a' && c <= 'z' ? c - 32 : c) : simpleUpper(c));
}

void appendTitle(std::string &text, char32_t c) {
  if (c == kSharpS) {
    text += "Ss";
  } else if (c == 0x149) {
    appendUpper(text, c);
  } else if (growsInUpper(c)) {
    auto parts = decomposed(c);
    parts[0] = simpleUpper(parts[0]);
    const bool oneAccent = parts.size() == 3 && parts[1] == kPerispomeni; // stays apart from the iota
    appendParts(text, parts, parts.back() == kIotaBelow && !oneAccent);
  } else
    appendCodePoint(text, simpleTitle(c));
}

bool isCaseIgnorable(char32_t c) {
  switch (category(c)) {
  case UTF8PROC_CATEGORY_MN:
  case UTF8PROC_CATEGORY_ME:
  case UTF8PROC_CATEGORY_CF:
  case UTF8PROC_CATEGORY_LM:
  case UTF8PROC_CATEGORY_SK:
    return true;
  default:
    return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x387 || c == 0x55F || c == 0x5F4 || c == 0x2018 ||
           c == 0x2019 || c == 0x2024 || c == 0x2027 || c == 0xFE13 || c == 0xFE52 || c == 0xFE55 || c == 0xFF07 ||
           c == 0xFF0E || c == 0xFF1A;
  }
}

// A sigma behind letters of a word and before none.
bool isFinalSigma(std::string_view text, size_t begin, size_t end) {
  bool before = false, after = false;
  for (size_t at = begin; at > 0;) {
    const char32_t c = previousCodePoint(text, at);
    if (isCaseIgnorable(c))
      continue;
    before = isCased(c);
    break;
  }
  for (size_t at = end; before && at < text.size();) {
    const char32_t c = nextCodePoint(text, at);
    if (isCaseIgnorable(c))
      continue;
    after = isCased(c);
    break;
  }
  return before && !after;
}

void appendLower(std::string &lowered, std::string_view text, size_t begin, size_t end, char32_t c) {
  if (c == kDottedI)
    lowered += "i\xCC\x87";
  else if (c == kSigma)
    appendCodePoint(lowered, isFinalSigma(text, begin, end) ? kFinalSigma : simpleLower(c));
  else
    appendCodePoint(lowered, c < 0x80 ? (c >= 'A' && c <= 'Z' ? c + 32 : c) : simpleLower(c));
}

bool isUpperLetter(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LU || (c >= 0x2160 && c <= 0x216F) || (c >= 0x24B6 && c <= 0x24CF) ||
         (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}
bool isLowerLetter(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LL || c == 0xAA || c == 0xBA || (c >= 0x2170 && c <= 0x217F) ||
         (c >= 0x24D0 && c <= 0x24E9) || (c >= 0x2B0 && c <= 0x2B8) || c == 0x2C0 || c == 0x2C1 ||
         (c >= 0x2E0 && c <= 0x2E4) || c == kIotaBelow || c == 0x37A || (c >= 0x1D2C && c <= 0x1D6A) || c == 0x1D78 ||
         (c >= 0x1D9B && c <= 0x1DBF) || c == 0x2071 || c == 0x207F || (c >= 0x2090 && c <= 0x209C);
}
bool isTitleLetter(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LT; }

} // namespace

bool isPrintable(char32_t c) {
  switch (category(c)) {
  case UTF8PROC_CATEGORY_CN:
  case UTF8PROC_CATEGORY_CC:
  case UTF8PROC_CATEGORY_CF:
  case UTF8PROC_CATEGORY_CS:
  case UTF8PROC_CATEGORY_CO:
  case UTF8PROC_CATEGORY_ZL:
  case UTF8PROC_CATEGORY_ZP:
    return false;
  case UTF8PROC_CATEGORY_ZS:
    return c == ' ';
  default:
    return true;
  }
}

bool isLetter(char32_t c) {
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}
bool isDecimal(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }
bool isCased(char32_t c) { return isUpperLetter(c) || isLowerLetter(c) || isTitleLetter(c); }

std::string upper(std::string_view text) {
  std::string raised;
  raised.reserve(text.size());
  for (size_t at = 0; at < text.size();)
    appendUpper(raised, nextCodePoint(text, at));
  return raised;
}

std::string lower(std::string_view text) {
  std::string lowered;
  lowered.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = nextCodePoint(text, at);
    appendLower(lowered, text, begin, at, c);
  }
  return lowered;
}

std::string capitalize(std::string_view text) {
  std::string made;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = nextCodePoint(text, at);
    if (begin == 0)
      appendTitle(made, c);
    else
      appendLower(made, text, begin, at, c);
  }
  return made;
}

std::string title(std::string_view text) {
  std::string made;
  bool inWord = false;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = nextCodePoint(text, at);
    if (inWord)
      appendLower(made, text, begin, at, c);
    else
      appendTitle(made, c);
    inWord = isCased(c);
  }
  return made;
}

bool isUpper(std::string_view text) {
  bool any = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = nextCodePoint(text, at);
    if (isLowerLetter(c) || isTitleLetter(c))
      return false;
    any = any || isUpperLetter(c);
  }
  return any;
}

bool isLower(std::string_view text) {
  bool any = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = nextCodePoint(text, at);
    if (isUpperLetter(c) || isTitleLetter(c))
      return false;
    any = any || isLowerLetter(c);
  }
  return any;
}

} // namespace headrace::text::jinja
