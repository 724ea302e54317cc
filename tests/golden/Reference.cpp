// SPDX-License-Identifier: Apache-2.0
#include "tests/golden/Reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "nlohmann/json.hpp"
#include "tests/support/LongRun.h"
#include "tests/support/SourceDir.h"

namespace headrace::golden {
namespace {

using Json = nlohmann::json;

absl::StatusOr<std::string> readAll(const std::string &path) {
  std::ifstream in(path, std::ios::binary);
  if (!in)
    return absl::NotFoundError(absl::StrCat(path, ": cannot be opened"));
  return std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
}

// A reader of its own, so that a fault in the product's safetensors reader cannot hide in both.
// F32 and BF16 tensors of two dimensions, widened to F32.
absl::StatusOr<std::map<std::string, std::vector<float>>> readTensors(const std::string &path) {
  const absl::StatusOr<std::string> file = readAll(path);
  if (!file.ok())
    return file.status();
  uint64_t headerBytes = 0;
  if (file->size() < sizeof(headerBytes))
    return absl::DataLossError(absl::StrCat(path, ": shorter than a safetensors header"));
  std::memcpy(&headerBytes, file->data(), sizeof(headerBytes));
  if (headerBytes > file->size() - sizeof(headerBytes))
    return absl::DataLossError(absl::StrCat(path, ": header of ", headerBytes, " bytes in ", file->size()));
  const Json header = Json::parse(file->substr(sizeof(headerBytes), headerBytes), nullptr, false);
  if (!header.is_object())
    return absl::DataLossError(absl::StrCat(path, ": header is not a JSON object"));
  const std::string_view data = std::string_view(*file).substr(sizeof(headerBytes) + headerBytes);

  std::map<std::string, std::vector<float>> tensors;
  for (const auto &[name, entry] : header.items()) {
    if (name == "__metadata__")
      continue;
    const uint64_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
    const bool narrow = entry["dtype"] == "BF16";
    const uint64_t width = narrow ? 2 : 4;
    if ((!narrow && entry["dtype"] != "F32") || begin > end || end > data.size() || (end - begin) % width != 0)
      return absl::DataLossError(absl::StrCat(path, ": tensor '", name, "' is not F32 or BF16 inside the file"));
    std::vector<float> &values = tensors[name];
    values.resize((end - begin) / width);
    for (size_t i = 0; i < values.size(); ++i) {
      // A BF16 is the upper half of an F32.
      uint32_t bits = 0;
      std::memcpy(reinterpret_cast<char *>(&bits) + (4 - width), data.data() + begin + i * width, width);
      std::memcpy(&values[i], &bits, sizeof(bits));
    }
  }
  return tensors;
}

} // namespace

const std::vector<std::string> &modelNames() {
  static const std::vector<std::string> names = {
      "opt-7-tied-f32",   "opt-12-gelu-f16",         "llama-7-gqa-llama3-f32", "llama-12-tied-bias-bf16-sharded",
      "qwen2-7-tied-f32", "qwen2-12-gqa-bf16",       "mistral-7-gqa-f16",      "mistral-12-head-dim-f32",
      "qwen3-7-gqa-f32",  "qwen3-12-tied-bias-bf16",
  };
  return names;
}

const std::vector<std::string> &tensorCoreModels() {
  static const std::vector<std::string> names = {"llama-2-heads-64-f16", "qwen2-2-heads-64-bf16", "opt-2-heads-80-f16",
                                                 "llama-2-heads-96-f16", "llama-2-heads-128-bf16"};
  return names;
}

std::vector<std::string> allModels() {
  std::vector<std::string> names = modelNames();
  names.insert(names.end(), tensorCoreModels().begin(), tensorCoreModels().end());
  return names;
}

std::vector<std::string> modelsOfEachKernel() {
  if (longRun())
    return allModels();
  std::vector<std::string> names = tensorCoreModels();
  names.insert(names.end(), {"qwen2-7-tied-f32", "mistral-7-gqa-f16"});
  return names;
}

// Written out: what chooses a kernel is what is tested.
std::set<std::string> attentionKernels(const Reference &reference) {
  static const std::map<std::string, std::set<std::string>> kTensorCores = {
      {"llama-2-heads-64-f16", {"attention_decode_f16_64", "attention_prefill_f16_64_m64"}},
      {"qwen2-2-heads-64-bf16", {"attention_decode_bf16_64", "attention_prefill_bf16_64_m64"}},
      {"opt-2-heads-80-f16", {"attention_decode_f16_80", "attention_prefill_f16_80_m64"}},
      {"llama-2-heads-96-f16", {"attention_decode_f16_96", "attention_prefill_f16_96_m64"}},
      {"llama-2-heads-128-bf16", {"attention_decode_bf16_128", "attention_prefill_bf16_128_m64"}}};
  const auto found = kTensorCores.find(reference.name);
  const std::string &type = reference.checkpointType;
  return found == kTensorCores.end() ? std::set<std::string>{absl::StrCat("attention_any_", type, "_", type)}
                                     : found->second;
}

std::vector<std::string> largeTileModels() {
  std::vector<std::string> names = tensorCoreModels();
  std::erase_if(names, [](const std::string &name) {
    return name.find("-64-") == std::string::npos && name.find("-128-") == std::string::npos;
  });
  return names;
}

std::set<std::string> withLargeTiles(const std::set<std::string> &kernels) {
  std::set<std::string> out;
  for (const std::string &kernel : kernels)
    out.insert(absl::StrReplaceAll(kernel, {{"_m64", "_m128"}}));
  return out;
}

std::set<std::string> ofAttention(const std::set<std::string> &kernels) {
  std::set<std::string> out;
  for (const std::string &kernel : kernels)
    if (kernel.starts_with("attention_"))
      out.insert(kernel);
  return out;
}

std::string goldenFolder() { return absl::StrCat(sourceDir(), "/tests/golden"); }

absl::StatusOr<Reference> readReference(const std::string &name) {
  Reference reference;
  reference.name = name;
  reference.folder = absl::StrCat(goldenFolder(), "/", name);
  const std::string path = reference.folder + "/reference.json";
  const absl::StatusOr<std::string> text = readAll(path);
  if (!text.ok())
    return text.status();
  const Json json = Json::parse(*text, nullptr, false);
  if (!json.is_object())
    return absl::DataLossError(absl::StrCat(path, ": not a JSON object"));
  reference.tolerance = json.at("tolerance");
  reference.prompts = json.at("prompts");
  reference.tokens = json.at("tokens");
  reference.mutations = json.at("mutations");
  if (reference.prompts.empty() || reference.prompts.size() != reference.tokens.size())
    return absl::DataLossError(
        absl::StrCat(path, ": ", reference.prompts.size(), " prompts, ", reference.tokens.size(), " lists of tokens"));

  const std::string tensorPath = reference.folder + "/reference.safetensors";
  absl::StatusOr<std::map<std::string, std::vector<float>>> tensors = readTensors(tensorPath);
  if (!tensors.ok())
    return tensors.status();
  reference.checkpointType = json.at("checkpoint_dtype");
  reference.ownTypeBound = json.value("own_type_bound", 0.0);
  if (reference.ownTypeBound > 0 && json.at("smallest_gap") <= 2 * reference.ownTypeBound)
    return absl::DataLossError(absl::StrCat(path, ": smallest_gap is not over twice own_type_bound"));
  const bool narrow = reference.checkpointType != "f32";
  if (narrow)
    reference.bf16Bound = json.at("bf16_bound");
  for (size_t p = 0; p < reference.prompts.size(); ++p) {
    reference.logits.push_back((*tensors)[absl::StrCat("logits.", p)]);
    if (narrow)
      reference.bf16Logits.push_back((*tensors)[absl::StrCat("bf16_logits.", p)]);
    const size_t values = reference.logits[p].size(), steps = reference.tokens[p].size();
    if (values == 0 || steps == 0 || values % steps != 0 || (narrow && reference.bf16Logits[p].size() != values))
      return absl::DataLossError(absl::StrCat(tensorPath, ": prompt ", p, " has ", values, " logits for ", steps,
                                              " tokens, or as many in BF16"));
  }
  return reference;
}

double largestDifference(const std::vector<float> &a, const std::vector<float> &b) {
  if (a.size() != b.size())
    return std::numeric_limits<double>::infinity();
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (std::isnan(difference))
      return std::numeric_limits<double>::infinity();
    largest = std::max(largest, difference);
  }
  return largest;
}

Comparison compare(const Reference &reference, const serve::GenerateResult &result) {
  Comparison comparison;
  if (result.tokens.size() != reference.tokens.size() || result.logits.size() != reference.logits.size()) {
    comparison.tokensEqual = false;
    comparison.largestDifference = std::numeric_limits<double>::infinity();
    comparison.firstDifference = absl::StrCat(result.tokens.size(), " sequences instead of ", reference.tokens.size());
    return comparison;
  }
  for (size_t p = 0; p < reference.tokens.size(); ++p) {
    const std::vector<int32_t> &want = reference.tokens[p], &got = result.tokens[p];
    const size_t same = std::mismatch(want.begin(), want.end(), got.begin(), got.end()).first - want.begin();
    const size_t vocab = reference.logits[p].size() / want.size();
    if (same < want.size() || got.size() != want.size()) {
      comparison.tokensEqual = false;
      if (comparison.firstDifference.empty())
        comparison.firstDifference =
            absl::StrCat("prompt ", p, ", new token ", same, ": ", same < got.size() ? absl::StrCat(got[same]) : "none",
                         " instead of ", same < want.size() ? absl::StrCat(want[same]) : "none");
    }
    const size_t values = std::min(same + 1, want.size()) * vocab;
    std::vector<float> ours(result.logits[p].begin(),
                            result.logits[p].begin() + std::min(values, result.logits[p].size()));
    std::vector<float> theirs(reference.logits[p].begin(), reference.logits[p].begin() + values);
    comparison.largestDifference = std::max(comparison.largestDifference, largestDifference(ours, theirs));
  }
  return comparison;
}

} // namespace headrace::golden
