// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/ReplyTexts.h"

namespace headrace::tools {

ReplyText::ReplyText(const text::Tokenizer &tokenizer, const TextFlags &flags)
    : stream_(tokenizer, flags.special), stops_(flags.stops) {}

std::string ReplyText::push(int32_t id) { return stops_.push(stream_.push(id)); }

std::string ReplyText::finish() {
  std::string rest = stops_.push(stream_.finish());
  return rest += stops_.finish();
}

ReplyTexts::ReplyTexts(const text::Tokenizer &tokenizer, const TextFlags &flags, size_t prompts, std::FILE *out)
    : texts_(prompts), finished_(prompts), out_(out) {
  for (size_t p = 0; p < prompts; ++p)
    replies_.emplace_back(tokenizer, flags);
}

bool ReplyTexts::push(size_t prompt, int32_t id) {
  texts_[prompt] += replies_[prompt].push(id);
  write();
  return !replies_[prompt].stopped();
}

bool ReplyTexts::finish(size_t prompt) {
  texts_[prompt] += replies_[prompt].finish();
  finished_[prompt] = true;
  write();
  return replies_[prompt].stopped();
}

void ReplyTexts::write() {
  if (out_ == nullptr)
    return;
  while (at_ < texts_.size()) {
    if (!begun_ && texts_.size() > 1)
      std::fprintf(out_, "%s== prompt %zu ==\n", at_ == 0 ? "" : "\n", at_);
    begun_ = true;
    const std::string &text = texts_[at_];
    std::fwrite(text.data() + written_, 1, text.size() - written_, out_);
    written_ = text.size();
    if (!finished_[at_])
      break;
    std::fputc('\n', out_);
    ++at_;
    written_ = 0;
    begun_ = false;
  }
  std::fflush(out_);
}

} // namespace headrace::tools
