// SPDX-License-Identifier: Apache-2.0
//
// What a text becomes before it is cut: Unicode forms, replacements, a character in front.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "absl/status/statusor.h"
#include "runtime/text/tokenizer/SplitPattern.h"

namespace headrace::text {

// Part of a text on its way to the tokens.
struct Piece {
  std::string_view text;
  size_t fromBegin; // so many bytes of it stand for the first character of the whole text
};

enum class UnicodeForm { Nfc, Nfd, Nfkc, Nfkd };

struct NormalizerMemory {
  std::string texts[2]; // that of the last step, and the one before
  std::vector<int32_t> codePoints;
};

class Normalizer {
public:
  // Of tokenizer.json's "normalizer", which may be null.
  static absl::StatusOr<Normalizer> parse(const nlohmann::json &value, std::string_view path);

  // sentencepiece's: `prefix`, which may be empty, before the whole text, and a symbol for each space.
  static Normalizer sentencePiece(std::string_view prefix, std::string_view spaceSymbol);

  Normalizer() = default; // leaves everything as it is
  Normalizer(Normalizer &&) = default;
  Normalizer &operator=(Normalizer &&) = default;

  // What it answers lies in `memory`, or is the piece itself.
  absl::StatusOr<Piece> apply(Piece piece, NormalizerMemory &memory, MatchMemory &matching) const;
  bool changesNothing() const { return steps_.empty(); }

private:
  enum class Kind { Form, Lowercase, Replace, Prepend, Strip, ByteLevel };
  struct Step {
    Kind kind;
    UnicodeForm form = UnicodeForm::Nfc;
    std::optional<SplitPattern> pattern;
    std::string content;
    bool left = false, right = false; // Strip
    bool onlyAtBegin = false;         // Prepend: of the whole text
  };
  static absl::Status parseInto(const nlohmann::json &value, std::string_view path, std::string_view key,
                                std::vector<Step> &steps);
  static absl::Status applyStep(const Step &step, Piece &piece, std::string &out, NormalizerMemory &memory,
                                MatchMemory &matching);
  std::vector<Step> steps_;
};

// Appends the text in a Unicode form: of Unicode 9, as the package has it.
void appendForm(UnicodeForm form, std::string_view text, std::vector<int32_t> &memory, std::string &out);

} // namespace headrace::text
