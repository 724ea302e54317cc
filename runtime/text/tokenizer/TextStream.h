// SPDX-License-Identifier: Apache-2.0
//
// Text as tokens come: complete characters only, and never anything that a later token would change. What push() and
// finish() return, put together, is Tokenizer::decode() of all ids, however they come.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/text/tokenizer/Tokenizer.h"

namespace headrace::text {

class TextStream {
public:
  // The tokenizer outlives it.
  explicit TextStream(const Tokenizer &tokenizer, bool showSpecial = false);

  std::string push(int32_t id);
  std::string finish(); // what was held back; then a new text begins

private:
  std::unique_ptr<Tokenizer::Decoding> decoding_;
};

} // namespace headrace::text
