// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/KvEncoding.h"

#include "runtime/base/Text.h"

namespace headrace::model {

std::string kvEncodingText(const Encoding &encoding) {
  return encoding.packed() ? cat("q", static_cast<int>(encoding.codeBits)) : encodingText(encoding);
}

std::optional<Encoding> kvEncodingFromText(std::string_view text) {
  const std::optional<Encoding> encoding = encodingFromText(text);
  return encoding && kvEncodingText(*encoding) == text ? encoding : std::nullopt;
}

std::optional<Encoding> kvEncodingFor(const Encoding &encoding, int64_t headDim) {
  if (!encoding.packed())
    return encoding;
  for (const int32_t group : kKvGroups)
    if (headDim % group == 0)
      return Encoding::groups(encoding.codeBits, group, encoding.scale, encoding.zero);
  return std::nullopt;
}

std::string kvEncodingRefusal(const Encoding &encoding, int64_t headDim) {
  if (kvEncodingFor(encoding, headDim))
    return "";
  return cat("f32, f16 or bf16: ", kvEncodingText(encoding),
             " has groups of 64 or 32 inside one token's head, and neither divides a head of ", headDim);
}

} // namespace headrace::model
