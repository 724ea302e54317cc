// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/Utf8.h"

#include <cstdint>

namespace headrace::model {
namespace {

// Bytes that follow, and what the first of them may be (Unicode 15, table 3-7).
struct Lead {
  size_t more = 0;
  uint8_t least = 0x80, most = 0xbf;
};
Lead leadOf(uint8_t byte) {
  if (byte >= 0xc2 && byte <= 0xdf)
    return {1};
  if (byte >= 0xe0 && byte <= 0xef)
    return {2, uint8_t(byte == 0xe0 ? 0xa0 : 0x80), uint8_t(byte == 0xed ? 0x9f : 0xbf)};
  if (byte >= 0xf0 && byte <= 0xf4)
    return {3, uint8_t(byte == 0xf0 ? 0x90 : 0x80), uint8_t(byte == 0xf4 ? 0x8f : 0xbf)};
  return {};
}

} // namespace

size_t utf8Length(std::string_view text, size_t *bad) {
  if (text.empty())
    return 0;
  const auto at = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  if (at(0) < 0x80)
    return 1;
  const Lead lead = leadOf(at(0));
  size_t n = 1;
  for (; n <= lead.more; ++n)
    if (n == text.size() || at(n) < (n == 1 ? lead.least : 0x80) || at(n) > (n == 1 ? lead.most : 0xbf))
      break;
  if (lead.more > 0 && n > lead.more)
    return n;
  if (bad != nullptr)
    *bad = n;
  return 0;
}

size_t invalidUtf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t n = utf8Length(text.substr(at));
    if (n == 0)
      return at;
    at += n;
  }
  return std::string_view::npos;
}

std::string lossyUtf8(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    size_t bad = 0;
    const size_t n = utf8Length(text.substr(at), &bad);
    out += n > 0 ? text.substr(at, n) : std::string_view("\xef\xbf\xbd");
    at += n > 0 ? n : bad;
  }
  return out;
}

} // namespace headrace::model
