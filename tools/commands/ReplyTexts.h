// SPDX-License-Identifier: Apache-2.0
//
// The replies of a run as text, as they come: the first prompt's is written while it is made, the others' as soon as
// those before them are whole.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "runtime/text/tokenizer/StopStrings.h"
#include "runtime/text/tokenizer/TextStream.h"
#include "tools/commands/Commands.h"

namespace headrace::tools {

// One reply: what of it may be shown by now.
class ReplyText {
public:
  ReplyText(const text::Tokenizer &tokenizer, const TextFlags &flags);
  // What may be shown now that this token is there. With the end of a stop string nothing more comes: stopped().
  std::string push(int32_t id);
  std::string finish(); // what was held back, as nothing more comes: it may be the end of a stop string
  bool stopped() const { return stops_.stopped(); }

private:
  text::TextStream stream_;
  text::StopStrings stops_;
};

class ReplyTexts {
public:
  // `out` is null where nothing is to be written before it is whole. The tokenizer outlives it.
  ReplyTexts(const text::Tokenizer &tokenizer, const TextFlags &flags, size_t prompts, std::FILE *out);

  bool push(size_t prompt, int32_t id); // no: a stop string has ended this reply
  bool finish(size_t prompt);           // yes: what was held back until now has a stop string

  const std::vector<std::string> &texts() const { return texts_; }

private:
  void write();

  std::vector<ReplyText> replies_;
  std::vector<std::string> texts_; // to be shown, whole or as far as they are
  std::vector<bool> finished_;
  std::FILE *out_;
  size_t at_ = 0;      // the prompt whose reply is written
  size_t written_ = 0; // bytes of it
  bool begun_ = false;
};

} // namespace headrace::tools
