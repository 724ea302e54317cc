// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/tokenizer/Unicode.h"

#include <algorithm>
#include <iterator>
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

struct Range {
  uint32_t first, last;
};
// Category P that came after Unicode 8.
// clang-format off
constexpr Range kLaterPunctuation[] = {
    {0x61D, 0x61D}, {0x9FD, 0x9FD}, {0xA76, 0xA76}, {0xC77, 0xC77}, {0xC84, 0xC84}, {0x1B4E, 0x1B4F},
    {0x1B7D, 0x1B7F}, {0x2E43, 0x2E4F}, {0x2E52, 0x2E5D}, {0x10D6E, 0x10D6E}, {0x10EAD, 0x10EAD}, {0x10F55, 0x10F59},
    {0x10F86, 0x10F89}, {0x113D4, 0x113D5}, {0x113D7, 0x113D8}, {0x1144B, 0x1144F}, {0x1145A, 0x1145B},
    {0x1145D, 0x1145D}, {0x11660, 0x1166C}, {0x116B9, 0x116B9}, {0x1183B, 0x1183B}, {0x11944, 0x11946},
    {0x119E2, 0x119E2}, {0x11A3F, 0x11A46}, {0x11A9A, 0x11A9C}, {0x11A9E, 0x11AA2}, {0x11B00, 0x11B09},
    {0x11BE1, 0x11BE1}, {0x11C41, 0x11C45}, {0x11C70, 0x11C71}, {0x11EF7, 0x11EF8}, {0x11F43, 0x11F4F},
    {0x11FFF, 0x11FFF}, {0x12FF1, 0x12FF2}, {0x16D6D, 0x16D6F}, {0x16E97, 0x16E9A}, {0x16FE2, 0x16FE2},
    {0x1E5FF, 0x1E5FF}, {0x1E95E, 0x1E95F},
};
// clang-format on

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

bool isNumeric(uint32_t codePoint) {
  return (UnicodeTable::get().bits(codePoint) & UnicodeTable::kNumber) != 0 ||
         (codePoint >= 0x11DE0 && codePoint <= 0x11DE9) || (codePoint >= 0x16FF4 && codePoint <= 0x16FF6);
}

bool isPunctuation(uint32_t codePoint) {
  if (codePoint < 0x80)
    return codePoint > 0x20 && codePoint < 0x7F && (UnicodeTable::get().bits(codePoint) & 0x60) == 0;
  const Category category = UnicodeTable::get().category(codePoint);
  if (codePoint == 0x166D || codePoint == 0x111C9) // which were of it then
    return true;
  const auto *later = std::lower_bound(std::begin(kLaterPunctuation), std::end(kLaterPunctuation), codePoint,
                                       [](const Range &range, uint32_t value) { return range.last < value; });
  const bool isLater = later != std::end(kLaterPunctuation) && later->first <= codePoint;
  return category >= Category::Pc && category <= Category::Po && !isLater;
}

bool isWordLetter(uint32_t codePoint) {
  const Category category = UnicodeTable::get().category(codePoint);
  const auto in = [&](uint32_t first, uint32_t last) { return codePoint >= first && codePoint <= last; };
  return (category >= Category::Lu && category <= Category::Nl) || category == Category::Pc || in(0x24B6, 0x24E9) ||
         in(0x1F130, 0x1F149) || in(0x1F150, 0x1F169) || in(0x1F170, 0x1F189) || in(0x200C, 0x200D);
}

} // namespace headrace::text
