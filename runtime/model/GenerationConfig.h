// SPDX-License-Identifier: Apache-2.0
//
// What a Hugging Face folder says of generating: generation_config.json, for end ids else config.json. A default is
// there only where the file states it; transformers' own for missing keys (top_k = 50) are not taken over.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace headrace::model {

struct GenerationConfig {
  std::vector<int32_t> endIds; // eos_token_id: a number, or a list of them
  std::string endIdsFile;      // that has them; empty: none has
  std::string file;            // generation_config.json; empty: there is none
  // do_sample false, or not there: temperature, top-p, top-k and min-p are not there either, and decoding is greedy.
  std::optional<double> temperature, topP, minP, repetitionPenalty;
  std::optional<int64_t> topK;
  std::vector<std::string> notSampled;  // "temperature = 0.6", which stand there without do_sample
  std::vector<std::string> notFollowed; // "num_beams = 4", keys that would change the tokens
};

// Nothing where the folder has neither file. InvalidArgument naming file and key.
absl::StatusOr<GenerationConfig> readGenerationConfig(const std::string &folder);

} // namespace headrace::model
