// SPDX-License-Identifier: Apache-2.0
//
// What the `tokenizers` package's patterns know of a character: Unicode 16.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace headrace::text {

// General categories, numbered as utf8proc's.
enum class Category : uint8_t {
  // clang-format off
  Cn, Lu, Ll, Lt, Lm, Lo, Mn, Mc, Me, Nd, Nl, No, Pc, Pd, Ps, Pe, Pi, Pf, Po, Sm, Sc, Sk, So, Zs, Zl, Zp, Cc, Cf, Cs, Co
  // clang-format on
};

class UnicodeTable {
public:
  // A character's bits: its category, and whether it is a letter (L), a number (N), or white space.
  static constexpr uint8_t kCategory = 0x1F, kLetter = 0x20, kNumber = 0x40, kSpace = 0x80;

  static const UnicodeTable &get(); // built once

  uint8_t bits(uint32_t codePoint) const {
    return codePoint < 0x110000 ? pages_[static_cast<size_t>(pageOf_[codePoint >> 8]) << 8 | (codePoint & 0xFF)] : 0;
  }
  Category category(uint32_t codePoint) const { return static_cast<Category>(bits(codePoint) & kCategory); }

private:
  UnicodeTable();
  std::array<uint16_t, 0x1100> pageOf_;
  std::vector<uint8_t> pages_;
};

inline bool isWhiteSpace(uint32_t codePoint) {
  return (UnicodeTable::get().bits(codePoint) & UnicodeTable::kSpace) != 0;
}
bool isNumeric(uint32_t codePoint);     // of Rust's: category N of Unicode 17
bool isPunctuation(uint32_t codePoint); // ASCII's, and category P of Unicode 8, which the package's Punctuation has
bool isWordLetter(uint32_t codePoint);  // \w of Rust's regex package

// What Unicode 15 and 16 added: characters that PCRE2 of Unicode 14 takes for unassigned; and U+1171E, which it takes
// for an Mn.
struct CategoryRange {
  uint32_t first, last;
  Category category;
};
const std::vector<CategoryRange> &additionsAfterUnicode14();

} // namespace headrace::text
