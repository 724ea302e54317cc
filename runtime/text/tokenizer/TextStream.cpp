// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/tokenizer/TextStream.h"

namespace headrace::text {

TextStream::TextStream(const Tokenizer &tokenizer, bool showSpecial)
    : decoding_(tokenizer.startDecoding(showSpecial)) {}

std::string TextStream::push(int32_t id) {
  std::string text;
  decoding_->push(id, text);
  return text;
}

std::string TextStream::finish() {
  std::string text;
  decoding_->finish(text);
  return text;
}

} // namespace headrace::text
