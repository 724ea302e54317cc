// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/tokenizer/Normalizer.h"

#include <algorithm>
#include <utility>

#include <utf8proc.h>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/text/tokenizer/ByteAlphabet.h"
#include "runtime/text/tokenizer/Section.h"
#include "runtime/text/tokenizer/Unicode.h"
#include "runtime/text/tokenizer/Utf8.h"

namespace headrace::text {
namespace {

constexpr size_t kLongestText = size_t{1} << 30; // bytes a text may grow to

bool isAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

// The small letters of capitals that utf8proc's Unicode 15 does not have: at the same distance in each range, which
// counts every second character where the two stand in turn.
struct Capitals {
  uint32_t first, last;
  int32_t distance;
  uint32_t step;
};
constexpr Capitals kLaterCapitals[] = {
    {0x1C89, 0x1C89, 1, 1}, {0xA7CB, 0xA7CB, -42343, 1}, {0xA7CC, 0xA7CE, 1, 2},    {0xA7D2, 0xA7D4, 1, 2},
    {0xA7DA, 0xA7DA, 1, 1}, {0xA7DC, 0xA7DC, -42561, 1}, {0x10D50, 0x10D65, 32, 1}, {0x16EA0, 0x16EB8, 27, 1},
};

uint32_t lowerOf(uint32_t codePoint) {
  for (const Capitals &range : kLaterCapitals)
    if (codePoint >= range.first && codePoint <= range.last && (codePoint - range.first) % range.step == 0)
      return static_cast<uint32_t>(static_cast<int32_t>(codePoint) + range.distance);
  return static_cast<uint32_t>(utf8proc_tolower(static_cast<int32_t>(codePoint)));
}

void appendLower(std::string_view text, std::string &out) {
  for (size_t at = 0; at < text.size();) {
    const CodePoint character = codePointAt(text, at);
    at += character.bytes;
    appendUtf8(lowerOf(character.value), out);
    if (character.value == 0x130) // the only one whose small letter is two characters: i with a dot above
      appendUtf8(0x307, out);
  }
}

} // namespace

absl::StatusOr<Normalizer> Normalizer::parse(const nlohmann::json &value, std::string_view path) {
  Normalizer normalizer;
  if (!value.is_null())
    RETURN_IF_ERROR(parseInto(value, path, "normalizer", normalizer.steps_));
  return normalizer;
}

Normalizer Normalizer::sentencePiece(std::string_view prefix, std::string_view spaceSymbol) {
  Normalizer normalizer;
  Step replace;
  replace.kind = Kind::Replace;
  replace.pattern = SplitPattern::string(" ");
  replace.content = std::string(spaceSymbol);
  normalizer.steps_.push_back(std::move(replace));
  if (!prefix.empty()) {
    Step prepend;
    prepend.kind = Kind::Prepend;
    prepend.content = std::string(prefix);
    prepend.onlyAtBegin = true;
    normalizer.steps_.push_back(std::move(prepend));
  }
  return normalizer;
}

absl::Status Normalizer::parseInto(const nlohmann::json &value, std::string_view path, std::string_view key,
                                   std::vector<Step> &steps) {
  Section section(value, path, key);
  const std::string type = section.type();
  RETURN_IF_ERROR(section.reader.status());
  if (type == "Sequence") {
    RETURN_IF_ERROR(section.only({"type", "normalizers"}));
    return section.eachOf("normalizers", [&](const nlohmann::json &member, const std::string &memberKey) {
      return parseInto(member, path, memberKey, steps);
    });
  }
  if (steps.size() == kMostSteps)
    return section.unsupportedType(model::cat("at most ", kMostSteps, " steps"));
  Step step;
  constexpr std::pair<std::string_view, UnicodeForm> kForms[] = {
      {"NFC", UnicodeForm::Nfc}, {"NFD", UnicodeForm::Nfd}, {"NFKC", UnicodeForm::Nfkc}, {"NFKD", UnicodeForm::Nfkd}};
  const auto *form = std::find_if(std::begin(kForms), std::end(kForms), [&](const auto &f) { return f.first == type; });
  if (form != std::end(kForms)) {
    step.kind = Kind::Form;
    step.form = form->second;
    RETURN_IF_ERROR(section.only({"type"}));
  } else if (type == "Lowercase" || type == "ByteLevel") {
    step.kind = type == "Lowercase" ? Kind::Lowercase : Kind::ByteLevel;
    RETURN_IF_ERROR(section.only({"type"}));
  } else if (type == "Replace") {
    step.kind = Kind::Replace;
    ASSIGN_OR_RETURN(pattern, section.pattern("pattern"));
    if (pattern.matchesEmpty())
      section.reader.refuse("pattern", "a pattern that does not match nothing");
    step.pattern = std::move(pattern);
    step.content = section.reader.text("content", std::nullopt);
    RETURN_IF_ERROR(section.only({"type", "pattern", "content"}));
  } else if (type == "Prepend") {
    step.kind = Kind::Prepend;
    step.content = section.reader.text("prepend", std::nullopt);
    RETURN_IF_ERROR(section.only({"type", "prepend"}));
  } else if (type == "Strip") {
    step.kind = Kind::Strip;
    step.left = section.reader.boolean("strip_left", false);
    step.right = section.reader.boolean("strip_right", false);
    RETURN_IF_ERROR(section.only({"type", "strip_left", "strip_right"}));
  } else {
    return section.unsupportedType("NFC, NFD, NFKC, NFKD, Lowercase, Replace, Prepend, Strip, ByteLevel or Sequence");
  }
  steps.push_back(std::move(step));
  return absl::OkStatus();
}

absl::StatusOr<Piece> Normalizer::apply(Piece piece, NormalizerMemory &memory, MatchMemory &matching) const {
  size_t turn = 0;
  for (const Step &step : steps_) {
    if ((step.kind == Kind::Form && isAscii(piece.text)) || piece.text.empty())
      continue;
    std::string &out = memory.texts[turn];
    out.clear();
    RETURN_IF_ERROR(applyStep(step, piece, out, memory, matching));
    if (out.size() > kLongestText)
      return absl::InvalidArgumentError(model::cat("the text is more than ", kLongestText, " bytes once normalised"));
    piece.text = out;
    turn = 1 - turn;
  }
  return piece;
}

// Puts the piece's text into `out`; piece.fromBegin becomes that of `out`.
absl::Status Normalizer::applyStep(const Step &step, Piece &piece, std::string &out, NormalizerMemory &memory,
                                   MatchMemory &matching) {
  const std::string_view text = piece.text;
  const size_t fromBegin = std::min(piece.fromBegin, text.size());
  size_t after = 0;
  switch (step.kind) {
  case Kind::Form:
    appendForm(step.form, text.substr(0, fromBegin), memory.codePoints, out);
    after = out.size();
    out.clear();
    appendForm(step.form, text, memory.codePoints, out);
    while (after < out.size() && (static_cast<unsigned char>(out[after]) & 0xC0) == 0x80)
      ++after; // a mark behind it has melted with it
    piece.fromBegin = std::min(after, out.size());
    break;
  case Kind::Lowercase:
    appendLower(text.substr(0, fromBegin), out);
    piece.fromBegin = out.size();
    appendLower(text.substr(fromBegin), out);
    break;
  case Kind::ByteLevel:
    appendLetters(text.substr(0, fromBegin), out);
    piece.fromBegin = out.size();
    appendLetters(text.substr(fromBegin), out);
    break;
  case Kind::Prepend:
    if (!step.onlyAtBegin || fromBegin > 0)
      out.append(step.content);
    out.append(text);
    piece.fromBegin = fromBegin > 0 ? fromBegin + step.content.size() : 0;
    break;
  case Kind::Strip: {
    size_t begin = 0, end = text.size();
    while (step.left && begin < end && isWhiteSpace(codePointAt(text, begin).value))
      begin += codePointAt(text, begin).bytes;
    while (step.right && end > begin && isWhiteSpace(codePointBefore(text, end).value))
      end -= codePointBefore(text, end).bytes;
    out.append(text.substr(begin, end - begin));
    piece.fromBegin = fromBegin > begin ? fromBegin - begin : 0;
    break;
  }
  case Kind::Replace:
    RETURN_IF_ERROR(step.pattern->forEachPart(text, matching, [&](const TextPart &part) {
      // What replaces something has the place of its last byte.
      if (part.match && part.end <= fromBegin)
        after += step.content.size();
      else if (!part.match && part.begin < fromBegin)
        after += std::min(part.end, fromBegin) - part.begin;
      out += part.match ? std::string_view(step.content) : text.substr(part.begin, part.end - part.begin);
      return out.size() > kLongestText ? absl::InvalidArgumentError("the text is too long once normalised")
                                       : absl::OkStatus();
    }));
    piece.fromBegin = after;
    break;
  }
  return absl::OkStatus();
}

} // namespace headrace::text
