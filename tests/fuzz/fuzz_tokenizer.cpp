// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as tokenizer.json, or as tokenizer.model where they begin as one does, and a text behind a NUL (a JSON file
// has none): refused by name, or a tokenizer whose ids are its own, which answers the same twice, and whose text is the
// same however its tokens come.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "runtime/text/tokenizer/OtherFiles.h"
#include "runtime/text/tokenizer/TextStream.h"
#include "tests/fuzz/FuzzCheck.h"

namespace {

using namespace headrace::text;

absl::StatusOr<std::shared_ptr<const Tokenizer>> read(std::string_view file) {
  if (file.substr(0, 1) != "\n") // a tokenizer.model's first piece
    return Tokenizer::parse(file, "tokenizer.json");
  absl::StatusOr<BpeTokenizerParts> parts = readSentencePiece(file, TokenizerConfig(), "tokenizer.model");
  if (!parts.ok())
    return parts.status();
  return BpeTokenizer::make(*std::move(parts), "tokenizer.model");
}

void checkDecoding(const Tokenizer &tokenizer, const std::vector<int32_t> &ids) {
  for (const bool shown : {false, true}) {
    TextStream stream(tokenizer, shown);
    const std::string whole = tokenizer.decode(ids, shown);
    for (int time = 0; time < 2; ++time) { // a stream begins anew
      std::string text;
      for (const int32_t id : ids)
        text += stream.push(id);
      text += stream.finish();
      FUZZ_CHECK(text == whole);
    }
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const std::string_view all(reinterpret_cast<const char *>(data), size);
  const size_t split = all.substr(0, 1) == "\n" ? all.rfind('\0') : all.find('\0');
  const std::string_view file = all.substr(0, split);
  const std::string_view text = split == std::string_view::npos ? "a <s>\xC3\xA9  b" : all.substr(split + 1);
  const auto tokenizer = read(file);
  if (!tokenizer.ok()) {
    checkRefusal(tokenizer.status(), file.substr(0, 1) == "\n" ? "tokenizer.model: " : "tokenizer.json: ");
    return 0;
  }
  for (const SpecialTokens specials : {SpecialTokens::Leave, SpecialTokens::Add}) {
    const auto ids = (*tokenizer)->encode(text, specials);
    if (!ids.ok())
      continue;
    for (const int32_t id : *ids)
      FUZZ_CHECK(id >= 0 && id < (*tokenizer)->size());
    const auto again = (*tokenizer)->encode(text, specials);
    FUZZ_CHECK(again.ok() && *again == *ids);
    checkDecoding(**tokenizer, *ids);
  }
  std::vector<int32_t> any;
  for (const char byte : text.substr(0, 200))
    any.push_back(static_cast<unsigned char>(byte) - 4);
  checkDecoding(**tokenizer, any);
  return 0;
}
