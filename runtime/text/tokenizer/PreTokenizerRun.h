// SPDX-License-Identifier: Apache-2.0
//
// One text on its way through the steps of a pre-tokenizer. For PreTokenizer.cpp only.
#pragma once

#include "runtime/text/tokenizer/PreTokenizer.h"

namespace headrace::text {

struct PreTokenizer::Run {
  const std::vector<Step> &steps;
  PreTokenizerMemory &memory;
  MatchMemory &matching;
  Sink word;

  // A piece that step `index` is to cut; behind the last step it is a word.
  absl::Status step(size_t index, Piece piece);

private:
  using PartSink = absl::FunctionRef<absl::Status(const TextPart &)>;
  absl::Status pass(size_t index, const Piece &piece, size_t begin, size_t end);
  absl::Status byteLevel(size_t index, Piece piece);
  absl::Status metaspace(size_t index, Piece piece);
  // Cuts into parts that are matches and parts that are not, and these into pieces as the behaviour says.
  absl::Status cut(size_t index, const Piece &piece,
                   absl::FunctionRef<absl::Status(std::string_view text, PartSink part)> parts, Behavior behavior,
                   bool invert);
};

} // namespace headrace::text
