// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/tokenizer/PreTokenizerRun.h"

#include <algorithm>

#include "runtime/base/StatusMacros.h"
#include "runtime/text/tokenizer/ByteAlphabet.h"
#include "runtime/text/tokenizer/Unicode.h"
#include "runtime/text/tokenizer/Utf8.h"

namespace headrace::text {
namespace {

using PartSink = absl::FunctionRef<absl::Status(const TextPart &)>;

// Each character that `matches`, alone; what is between them together.
template <class Matches> absl::Status eachMatching(std::string_view text, const Matches &matches, PartSink part) {
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const CodePoint character = codePointAt(text, at);
    if (matches(character.value)) {
      if (begin != at)
        RETURN_IF_ERROR(part({begin, at, false}));
      RETURN_IF_ERROR(part({at, at + character.bytes, true}));
      begin = at + character.bytes;
    }
    at += character.bytes;
  }
  return begin != text.size() ? part({begin, text.size(), false}) : absl::OkStatus();
}

// \w+|[^\w\s]+ are what does not match.
absl::Status eachWord(std::string_view text, PartSink part) {
  const auto kindOf = [](uint32_t c) { return isWordLetter(c) ? 2 : isWhiteSpace(c) ? 0 : 1; };
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const int kind = kindOf(codePointAt(text, at).value);
    while (at < text.size() && kindOf(codePointAt(text, at).value) == kind)
      at += codePointAt(text, at).bytes;
    RETURN_IF_ERROR(part({begin, at, kind == 0}));
  }
  return absl::OkStatus();
}

} // namespace

absl::Status PreTokenizer::Run::pass(size_t index, const Piece &piece, size_t begin, size_t end) {
  if (begin == end)
    return absl::OkStatus();
  const size_t fromBegin = piece.fromBegin > begin ? piece.fromBegin - begin : 0;
  return step(index + 1, {piece.text.substr(begin, end - begin), fromBegin});
}

absl::Status PreTokenizer::Run::cut(size_t index, const Piece &piece,
                                    absl::FunctionRef<absl::Status(std::string_view text, PartSink part)> parts,
                                    Behavior behavior, bool invert) {
  if (behavior == Behavior::Isolated || behavior == Behavior::Removed)
    return parts(piece.text, [&](const TextPart &part) {
      return behavior == Behavior::Removed && part.match != invert ? absl::OkStatus()
                                                                   : pass(index, piece, part.begin, part.end);
    });
  TextPart open = {0, 0, false}; // what the next part may still join; `match`: whether the last part of it was one
  bool any = false;
  RETURN_IF_ERROR(parts(piece.text, [&](TextPart part) {
    part.match = part.match != invert;
    const bool joins = behavior == Behavior::Contiguous           ? part.match == open.match
                       : behavior == Behavior::MergedWithPrevious ? part.match && !open.match
                                                                  : !part.match && open.match;
    if (any && joins) {
      open.end = part.end;
      open.match = part.match;
      return absl::OkStatus();
    }
    const TextPart done = any ? open : TextPart{0, 0, false};
    open = part;
    any = true;
    return pass(index, piece, done.begin, done.end);
  }));
  return any ? pass(index, piece, open.begin, open.end) : absl::OkStatus();
}

absl::Status PreTokenizer::Run::byteLevel(size_t index, Piece piece) {
  const Step &step = steps[index];
  if (step.prefix == Prefix::Always && piece.text.substr(0, 1) != " ") {
    std::string &text = memory.texts[index];
    text.assign(" ").append(piece.text);
    piece = {text, piece.fromBegin > 0 ? piece.fromBegin + 1 : 0};
  }
  const bool last = index + 1 == steps.size();
  const auto part = [&](const TextPart &found) {
    if (last)
      return pass(index, piece, found.begin, found.end);
    const std::string_view bytes = piece.text.substr(found.begin, found.end - found.begin);
    const size_t fromBegin = piece.fromBegin > found.begin ? piece.fromBegin - found.begin : 0;
    std::string &letters = memory.letters[index];
    letters.clear();
    appendLetters(bytes.substr(0, fromBegin), letters);
    const size_t lettersFromBegin = letters.size();
    appendLetters(bytes.substr(std::min(fromBegin, bytes.size())), letters);
    return pass(index, {letters, lettersFromBegin}, 0, letters.size());
  };
  if (!step.pattern)
    return part({0, piece.text.size(), false});
  return step.pattern->forEachPart(piece.text, matching, part);
}

absl::Status PreTokenizer::Run::metaspace(size_t index, Piece piece) {
  const Step &step = steps[index];
  std::string &text = memory.texts[index];
  text.clear();
  size_t fromBegin = piece.fromBegin;
  const bool has = piece.text.substr(0, 1) == " " || piece.text.substr(0, step.replacement.size()) == step.replacement;
  if (!has && (step.prefix == Prefix::Always || (step.prefix == Prefix::First && piece.fromBegin > 0))) {
    text = step.replacement;
    fromBegin += piece.fromBegin > 0 ? step.replacement.size() : 0;
  }
  for (size_t at = 0; at < piece.text.size();) {
    const size_t space = std::min(piece.text.find(' ', at), piece.text.size());
    text.append(piece.text, at, space - at);
    if (space == piece.text.size())
      break;
    text += step.replacement;
    if (space < piece.fromBegin)
      fromBegin += step.replacement.size() - 1;
    at = space + 1;
  }
  const Piece replaced = {text, fromBegin};
  if (!step.split)
    return pass(index, replaced, 0, text.size());
  return cut(
      index, replaced,
      [&](std::string_view whole, PartSink part) { return step.pattern->forEachPart(whole, matching, part); },
      Behavior::MergedWithNext, false);
}

absl::Status PreTokenizer::Run::step(size_t index, Piece piece) {
  if (index == steps.size()) {
    word(piece.text);
    return absl::OkStatus();
  }
  const Step &step = steps[index];
  const auto characters = [](bool (*matches)(uint32_t)) {
    return [matches](std::string_view text, PartSink part) { return eachMatching(text, matches, part); };
  };
  switch (step.kind) {
  case Kind::ByteLevel:
    return byteLevel(index, piece);
  case Kind::Metaspace:
    return metaspace(index, piece);
  case Kind::Split:
    return cut(
        index, piece,
        [&](std::string_view text, PartSink part) { return step.pattern->forEachPart(text, matching, part); },
        step.behavior, step.invert);
  case Kind::Digits:
    return cut(index, piece, characters(isNumeric), step.behavior, false);
  case Kind::Whitespace:
    return cut(index, piece, eachWord, Behavior::Removed, false);
  case Kind::WhitespaceSplit:
    return cut(index, piece, characters(isWhiteSpace), Behavior::Removed, false);
  case Kind::Punctuation:
    return cut(index, piece, characters(isPunctuation), step.behavior, false);
  }
  return absl::OkStatus();
}

} // namespace headrace::text
