// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/GenerationConfig.h"

#include <string_view>

#include "runtime/base/FileIo.h"
#include "runtime/base/JsonReader.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"

namespace headrace::model {
namespace {

using nlohmann::json;

// Keys that change which tokens come, and the value at which they change none.
struct Neutral {
  std::string_view key;
  double value;
};
constexpr Neutral kNotFollowed[] = {
    {"num_beams", 1},           {"penalty_alpha", 0},        {"typical_p", 1},      {"epsilon_cutoff", 0},
    {"eta_cutoff", 0},          {"no_repeat_ngram_size", 0}, {"min_length", 0},     {"encoder_repetition_penalty", 1},
    {"diversity_penalty", 0},   {"length_penalty", 1},       {"min_new_tokens", 0}, {"top_h", 1},
    {"num_return_sequences", 1}};
constexpr std::string_view kListsNotFollowed[] = {"suppress_tokens",     "begin_suppress_tokens",
                                                  "bad_words_ids",       "sequence_bias",
                                                  "force_words_ids",     "forced_bos_token_id",
                                                  "guidance_scale",      "stop_strings",
                                                  "forced_eos_token_id", "exponential_decay_length_penalty"};

bool isId(const json &value) { return value.is_number_integer() && value >= 0 && value <= INT32_MAX; }

void readEndIds(JsonReader &reader, std::vector<int32_t> &ids) {
  const json *value = reader.find("eos_token_id");
  if (value == nullptr)
    return;
  const json list = value->is_array() ? *value : json::array({*value});
  for (const json &id : list) {
    if (!isId(id))
      return reader.refuse("eos_token_id", "a token id, or a list of them");
    ids.push_back(id.get<int32_t>());
  }
}

// A number that is there, and what it must be.
std::optional<double> numberIn(JsonReader &reader, std::string_view key, std::string_view expected,
                               bool (*holds)(double)) {
  if (reader.find(key) == nullptr)
    return std::nullopt;
  const double value = reader.number(key, std::nullopt);
  if (reader.ok() && !holds(value))
    reader.refuse(key, expected);
  return value;
}

void readSampling(JsonReader &reader, GenerationConfig &out) {
  out.repetitionPenalty =
      numberIn(reader, "repetition_penalty", "a number above 0", [](double r) { return r > 0 && r <= 1e6; });
  if (!(reader.find("do_sample") != nullptr && reader.boolean("do_sample", false))) {
    for (const char *key : {"temperature", "top_k", "top_p", "min_p"})
      if (const json *value = reader.find(key); value != nullptr)
        out.notSampled.push_back(cat(key, " = ", jsonText(*value)));
    return;
  }
  out.temperature = numberIn(reader, "temperature", "0 or more", [](double t) { return t >= 0 && t <= 1e30; });
  if (!out.temperature)
    out.temperature = 1;
  out.topP = numberIn(reader, "top_p", "more than 0 and at most 1", [](double p) { return p > 0 && p <= 1; });
  out.minP = numberIn(reader, "min_p", "0 to 1", [](double p) { return p >= 0 && p <= 1; });
  if (reader.find("top_k") != nullptr)
    out.topK = reader.integer("top_k", std::nullopt, -1, INT32_MAX);
}

void noteOthers(const json &document, std::vector<std::string> &notes) {
  for (const auto &[key, value] : document.items()) {
    bool changes = false;
    for (const Neutral &one : kNotFollowed)
      changes |= key == one.key && value.is_number() && value.get<double>() != one.value;
    for (const std::string_view one : kListsNotFollowed)
      changes |= key == one && !value.is_null() && !(value.is_array() && value.empty());
    if (changes)
      notes.push_back(cat(key, " = ", jsonText(value)));
  }
}

} // namespace

absl::StatusOr<GenerationConfig> readGenerationConfig(const std::string &folder) {
  GenerationConfig out;
  for (const char *name : {"generation_config.json", "config.json"}) {
    const std::string path = joinPath(folder, name);
    if (!isThere(path))
      continue;
    ASSIGN_OR_RETURN(text, readTextFile(path));
    ASSIGN_OR_RETURN(document, parseJson(text, path));
    if (!document.is_object())
      return absl::InvalidArgumentError(cat(path, ": expected a JSON object"));
    JsonReader reader(document, path);
    if (out.endIds.empty()) {
      readEndIds(reader, out.endIds);
      out.endIdsFile = out.endIds.empty() ? "" : path;
    }
    if (std::string_view(name) == "generation_config.json") {
      out.file = path;
      readSampling(reader, out);
      noteOthers(document, out.notFollowed);
    }
    if (!reader.ok())
      return reader.status();
  }
  return out;
}

} // namespace headrace::model
