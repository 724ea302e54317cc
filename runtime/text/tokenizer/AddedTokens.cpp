// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/tokenizer/AddedTokens.h"

#include <algorithm>

#include "runtime/base/StatusMacros.h"
#include "runtime/text/tokenizer/Unicode.h"
#include "runtime/text/tokenizer/Utf8.h"

namespace headrace::text {

int32_t TokenFinder::childOf(int32_t node, unsigned char byte) const {
  int32_t child = nodes_[static_cast<size_t>(node)].child;
  while (child >= 0 && nodes_[static_cast<size_t>(child)].byte != byte)
    child = nodes_[static_cast<size_t>(child)].sibling;
  return child;
}

bool TokenFinder::add(std::string_view text, const AddedToken &token) {
  int32_t node = -1;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    int32_t child = node < 0 ? roots_[byte] : childOf(node, byte);
    if (child < 0) {
      child = static_cast<int32_t>(nodes_.size());
      nodes_.emplace_back().byte = byte;
      if (node < 0) {
        roots_[byte] = child;
        ++firstBytes_;
        onlyFirst_ = c;
      } else {
        nodes_.back().sibling = nodes_[static_cast<size_t>(node)].child;
        nodes_[static_cast<size_t>(node)].child = child;
      }
    }
    node = child;
  }
  int32_t &place = nodes_[static_cast<size_t>(node)].token;
  if (place >= 0)
    return false;
  place = static_cast<int32_t>(tokens_.size());
  tokens_.push_back({token.id, token.singleWord, token.lstrip, token.rstrip});
  return true;
}

// Where the next byte stands that a token begins with; the end of the text if there is none.
size_t TokenFinder::firstByte(std::string_view text, size_t from) const {
  if (firstBytes_ == 1)
    return std::min(text.find(onlyFirst_, from), text.size());
  while (from < text.size() && roots_[static_cast<unsigned char>(text[from])] < 0)
    ++from;
  return from;
}

TokenFinder::Found TokenFinder::find(std::string_view text, size_t from) const {
  if (firstBytes_ > 0)
    for (size_t begin = firstByte(text, from); begin < text.size(); begin = firstByte(text, begin + 1)) {
      Found longest = {begin, begin, -1};
      int32_t node = roots_[static_cast<unsigned char>(text[begin])];
      for (size_t at = begin + 1; node >= 0; ++at) {
        if (const int32_t token = nodes_[static_cast<size_t>(node)].token; token >= 0)
          longest = {begin, at, token};
        if (at == text.size())
          break;
        node = childOf(node, static_cast<unsigned char>(text[at]));
      }
      if (longest.token >= 0)
        return longest;
    }
  return {text.size(), text.size(), -1};
}

absl::Status TokenFinder::split(std::string_view text,
                                absl::FunctionRef<absl::Status(size_t begin, size_t end, int32_t id)> part) const {
  size_t done = 0;
  size_t spacesBegin = 0, spacesEnd = 0; // white space that was walked through once
  for (Found found = find(text, 0); found.token >= 0; found = find(text, found.end)) {
    const Rules &rules = tokens_[static_cast<size_t>(found.token)];
    size_t begin = found.begin, end = found.end;
    if (rules.singleWord) {
      const bool wordBefore = begin > 0 && isWordLetter(codePointBefore(text, begin).value);
      if (wordBefore || (end < text.size() && isWordLetter(codePointAt(text, end).value)))
        continue;
    }
    if (rules.lstrip) {
      while (begin > done) {
        const CodePoint before = codePointBefore(text, begin);
        if (!isWhiteSpace(before.value))
          break;
        begin -= before.bytes;
      }
      begin = std::max(begin, done);
    }
    if (rules.rstrip) {
      if (end < spacesBegin || end >= spacesEnd) {
        spacesBegin = spacesEnd = end;
        while (spacesEnd < text.size() && isWhiteSpace(codePointAt(text, spacesEnd).value))
          spacesEnd += codePointAt(text, spacesEnd).bytes;
      }
      end = std::max(end, spacesEnd);
    }
    if (done < begin)
      RETURN_IF_ERROR(part(done, begin, -1));
    RETURN_IF_ERROR(part(begin, end, rules.id));
    done = end;
  }
  return done != text.size() ? part(done, text.size(), -1) : absl::OkStatus();
}

} // namespace headrace::text
