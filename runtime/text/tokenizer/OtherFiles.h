// SPDX-License-Identifier: Apache-2.0
//
// Tokenizers of folders that have no tokenizer.json.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "runtime/text/tokenizer/BpeTokenizer.h"
#include "runtime/text/tokenizer/TokenizerConfig.h"

namespace headrace::text {

// vocab.json and merges.txt, read as transformers' GPT2Tokenizer does (OPT's too): byte level, with the special tokens
// of the other files around them.
absl::StatusOr<BpeTokenizerParts> readGpt2Files(const std::string &folder);

// tokenizer.model, a sentencepiece model of type BPE without normalisation; <s> before a text unless
// tokenizer_config.json says otherwise.
absl::StatusOr<BpeTokenizerParts> readSentencePieceFile(const std::string &folder);
absl::StatusOr<BpeTokenizerParts> readSentencePiece(std::string_view bytes, const TokenizerConfig &config,
                                                    const std::string &path);

} // namespace headrace::text
