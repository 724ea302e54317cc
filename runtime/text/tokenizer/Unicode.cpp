// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/tokenizer/Unicode.h"

#include <algorithm>
#include <cstring>
#include <map>

#include <utf8proc.h>

namespace headrace::text {
namespace {

static_assert(static_cast<int>(Category::Nd) == UTF8PROC_CATEGORY_ND);
static_assert(static_cast<int>(Category::Co) == UTF8PROC_CATEGORY_CO);

bool isSpaceByName(uint32_t codePoint) { // White_Space
  return (codePoint >= 0x09 && codePoint <= 0x0D) || codePoint == 0x20 || codePoint == 0x85 || codePoint == 0xA0 ||
         codePoint == 0x1680 || (codePoint >= 0x2000 && codePoint <= 0x200A) || codePoint == 0x2028 ||
         codePoint == 0x2029 || codePoint == 0x202F || codePoint == 0x205F || codePoint == 0x3000;
}

uint8_t bitsOf(uint32_t codePoint, Category category) {
  uint8_t bits = static_cast<uint8_t>(category);
  if (category >= Category::Lu && category <= Category::Lo)
    bits |= UnicodeTable::kLetter;
  if (category >= Category::Nd && category <= Category::No)
    bits |= UnicodeTable::kNumber;
  if (isSpaceByName(codePoint))
    bits |= UnicodeTable::kSpace;
  return bits;
}

} // namespace

UnicodeTable::UnicodeTable() {
  const std::vector<CategoryRange> &additions = additionsAfterUnicode14();
  auto addition = additions.begin();
  std::map<std::string, uint16_t> known;
  std::string page(256, '\0');
  for (uint32_t codePoint = 0; codePoint < 0x110000; ++codePoint) {
    while (addition != additions.end() && addition->last < codePoint)
      ++addition;
    const bool added = addition != additions.end() && addition->first <= codePoint;
    const Category category =
        added ? addition->category
              : static_cast<Category>(utf8proc_get_property(static_cast<utf8proc_int32_t>(codePoint))->category);
    page[codePoint & 0xFF] = static_cast<char>(bitsOf(codePoint, category));
    if ((codePoint & 0xFF) != 0xFF)
      continue;
    const auto [place, isNew] = known.emplace(page, static_cast<uint16_t>(known.size()));
    pageOf_[codePoint >> 8] = place->second;
    if (isNew)
      pages_.insert(pages_.end(), page.begin(), page.end());
  }
}

const UnicodeTable &UnicodeTable::get() {
  static const UnicodeTable table;
  return table;
}

bool isPunctuation(uint32_t codePoint) {
  if (codePoint < 0x80)
    return codePoint > 0x20 && codePoint < 0x7F && (UnicodeTable::get().bits(codePoint) & 0x60) == 0;
  const Category category = UnicodeTable::get().category(codePoint);
  return category >= Category::Pc && category <= Category::Po;
}

bool isWordLetter(uint32_t codePoint) {
  const Category category = UnicodeTable::get().category(codePoint);
  const auto in = [&](uint32_t first, uint32_t last) { return codePoint >= first && codePoint <= last; };
  return (category >= Category::Lu && category <= Category::Nl) || category == Category::Pc || in(0x24B6, 0x24E9) ||
         in(0x1F130, 0x1F149) || in(0x1F150, 0x1F169) || in(0x1F170, 0x1F189) || in(0x200C, 0x200D);
}

} // namespace headrace::text
