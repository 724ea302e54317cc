// SPDX-License-Identifier: Apache-2.0
//
// Unicode forms by utf8proc, except that characters are left alone that Unicode 9 did not have: the `tokenizers`
// package's tables are that old.
#include <algorithm>
#include <array>
#include <iterator>

#include <utf8proc.h>

#include "runtime/text/tokenizer/Normalizer.h"
#include "runtime/text/tokenizer/Utf8.h"

namespace headrace::text {
namespace {

struct Range {
  int32_t first, last;
};

// Characters with a combining class or a decomposition that came after Unicode 9.
// clang-format off
constexpr Range kLater[] = {
    {0x7FD, 0x7FD}, {0x898, 0x89F}, {0x8CA, 0x8D3}, {0x9FE, 0x9FE}, {0xC3C, 0xC3C}, {0xD3B, 0xD3C}, {0xEBA, 0xEBA},
    {0x1715, 0x1715}, {0x1ABF, 0x1ACE}, {0x1DF6, 0x1DFA}, {0x32FF, 0x32FF}, {0xA7F2, 0xA7F4}, {0xA82C, 0xA82C},
    {0xAB69, 0xAB69}, {0x10781, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA}, {0x10D24, 0x10D27},
    {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85}, {0x11070, 0x11070},
    {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x1183A}, {0x11930, 0x11930}, {0x11935, 0x11935},
    {0x11938, 0x11938}, {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34},
    {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45}, {0x11D97, 0x11D97},
    {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1}, {0x1E030, 0x1E06D}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136},
    {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF}, {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9},
};
// clang-format on

bool isLater(int32_t codePoint) {
  const auto *range = std::lower_bound(std::begin(kLater), std::end(kLater), codePoint,
                                       [](const Range &a, int32_t value) { return a.last < value; });
  return range != std::end(kLater) && range->first <= codePoint;
}

// Whether what stands before this character can be put into form without it, and it without what stands before: it
// neither moves nor melts with anything before it.
bool beginsAnew(int32_t codePoint, const utf8proc_property_t &property) {
  if (codePoint < 0x300)
    return true;
  if (codePoint >= 0x1100 && codePoint <= 0x11FF) // jamo, which melt by rule
    return false;
  return property.combining_class == 0 && property.decomp_seqindex == UINT16_MAX &&
         (property.comb_index == UINT16_MAX || property.comb_index < 0x8000);
}

class Former {
public:
  Former(UnicodeForm form, std::vector<int32_t> &memory, std::string &out)
      : compose_(form == UnicodeForm::Nfc || form == UnicodeForm::Nfkc),
        compatible_(form == UnicodeForm::Nfkc || form == UnicodeForm::Nfkd), memory_(memory), out_(out) {}

  void run(std::string_view text) {
    size_t begin = 0; // of what was not put out yet
    size_t count = 0; // of characters from there on
    for (size_t at = 0; at < text.size();) {
      const CodePoint character = codePointAt(text, at);
      const auto codePoint = static_cast<int32_t>(character.value);
      const bool later = codePoint >= 0x300 && isLater(codePoint);
      if (later || beginsAnew(codePoint, *utf8proc_get_property(codePoint))) {
        flush(text.substr(begin, at - begin), count);
        begin = at;
        count = 0;
      }
      at += character.bytes;
      ++count;
      if (later) {
        out_.append(text, begin, at - begin);
        begin = at;
        count = 0;
      }
    }
    flush(text.substr(begin), count);
  }

private:
  void flush(std::string_view part, size_t count) {
    // A lone character that is its own form in all four.
    if (count == 1 && (static_cast<unsigned char>(part[0]) < 0x80 || isStable(codePointAt(part, 0).value))) {
      out_ += part;
      return;
    }
    memory_.clear();
    for (size_t at = 0; at < part.size();) {
      const CodePoint character = codePointAt(part, at);
      at += character.bytes;
      int32_t pieces[32]; // U+FDFA's 18 are the most
      int boundary = 0;
      const auto options =
          static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible_ ? UTF8PROC_COMPAT : 0));
      const auto got = utf8proc_decompose_char(static_cast<int32_t>(character.value), pieces, 32, options, &boundary);
      memory_.insert(memory_.end(), pieces, pieces + std::clamp<utf8proc_ssize_t>(got, 0, 32));
    }
    order();
    utf8proc_ssize_t length = static_cast<utf8proc_ssize_t>(memory_.size());
    if (compose_ && length > 0)
      length = utf8proc_normalize_utf32(memory_.data(), length,
                                        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    for (utf8proc_ssize_t i = 0; i < length; ++i)
      appendUtf8(static_cast<uint32_t>(memory_[static_cast<size_t>(i)]), out_);
  }

  bool isStable(uint32_t codePoint) const {
    const auto value = static_cast<int32_t>(codePoint);
    const bool hangul = value >= 0xAC00 && value <= 0xD7A3;
    if (compose_ && !compatible_ && (value < 0x300 || hangul))
      return true;
    return !hangul && utf8proc_get_property(value)->decomp_seqindex == UINT16_MAX;
  }

  // Marks behind a letter in the order of their classes.
  void order() {
    const auto classOf = [](int32_t codePoint) { return utf8proc_get_property(codePoint)->combining_class; };
    for (auto at = memory_.begin(); at != memory_.end();) {
      if (classOf(*at) == 0) {
        ++at;
        continue;
      }
      const auto end = std::find_if(at, memory_.end(), [&](int32_t c) { return classOf(c) == 0; });
      if (end - at > 1)
        std::stable_sort(at, end, [&](int32_t a, int32_t b) { return classOf(a) < classOf(b); });
      at = end;
    }
  }

  bool compose_, compatible_;
  std::vector<int32_t> &memory_;
  std::string &out_;
};

} // namespace

void appendForm(UnicodeForm form, std::string_view text, std::vector<int32_t> &memory, std::string &out) {
  Former(form, memory, out).run(text);
}

} // namespace headrace::text
