// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/ModelHash.h"

#include <filesystem>
#include <set>

#include "absl/strings/str_format.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/base/Xxh64.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/Safetensors.h"
#include "runtime/model/WeightSource.h"
#include "tools/commands/JobToml.h"
#include "tools/commands/Progress.h"

namespace headrace::tools {
namespace {

class Fnv {
public:
  void add(std::string_view bytes) {
    for (const char c : bytes) {
      state_ ^= static_cast<unsigned char>(c);
      state_ *= kPrime;
    }
  }
  std::string hex() const {
    return absl::StrFormat("%016x%016x", static_cast<uint64_t>(state_ >> 64), static_cast<uint64_t>(state_));
  }

private:
  using Wide = unsigned __int128;
  static constexpr Wide kPrime = (Wide{1} << 88) + 0x13b;
  Wide state_ = (Wide{0x6c62272e07bb0142u} << 64) + 0x62b821756295c58du;
};

constexpr const char *kSpecAndHeaders = "the config, and the tensors' names, types, shapes and places";

std::string specText(model::ModelSpec spec) {
  spec.name.clear();
  return toToml(shapeEntries(spec));
}

absl::Status addHeaders(const std::string &folder, Fnv &hash) {
  std::set<std::string> files; // in the order of their names
  std::error_code error;
  for (const auto &entry : std::filesystem::directory_iterator(folder, error))
    if (entry.path().extension() == ".safetensors")
      files.insert(entry.path().string());
  for (const std::string &path : files) {
    absl::StatusOr<std::unique_ptr<model::SafetensorsFile>> file = model::SafetensorsFile::open(path);
    if (!file.ok())
      return file.status();
    for (const model::StoredTensor &tensor : (*file)->header().tensors) {
      hash.add(model::cat(tensor.name, " ", tensor.dtype, " ", tensor.begin, " ", tensor.exclusiveEnd));
      for (const int64_t size : tensor.shape)
        hash.add(model::cat(" ", size));
      hash.add("\n");
    }
  }
  return absl::OkStatus();
}

} // namespace

absl::StatusOr<std::string> modelHash(const model::ModelSource &source) {
  Fnv hash;
  hash.add(specText(source.spec));
  if (source.hasWeights)
    RETURN_IF_ERROR(addHeaders(source.path, hash));
  return hash.hex();
}

absl::Status checkWeightsMatch(const plan::Plan &plan, const model::ModelSource &weights) {
  const TomlEntries planned = shapeEntries(plan.model), here = shapeEntries(weights.spec);
  for (size_t i = 0; i < std::max(planned.size(), here.size()); ++i) {
    if (i < planned.size() && i < here.size() && (planned[i] == here[i] || planned[i].first == "name"))
      continue;
    const auto &[key, value] = i < here.size() ? here[i] : planned[i];
    return absl::InvalidArgumentError(model::cat(weights.path, ": ", key, " = ", i < here.size() ? value : "missing",
                                                 ": expected the plan's model, whose ", key, " is ",
                                                 i < planned.size() ? planned[i].second : "missing"));
  }
  absl::StatusOr<std::string> specOnly = modelHash({.path = "", .hasWeights = false, .spec = plan.model});
  absl::StatusOr<std::string> withHeaders = modelHash(weights);
  if (!withHeaders.ok())
    return withHeaders.status();
  if (plan.modelHash != *specOnly && plan.modelHash != *withHeaders)
    return absl::InvalidArgumentError(model::cat(weights.path, ": model hash ", *withHeaders, ": expected the plan's ",
                                                 plan.modelHash, " of ", kSpecAndHeaders,
                                                 ": these are not the files it was compiled from"));
  return absl::OkStatus();
}

std::string modelHashCovers(const plan::Plan &plan) {
  const absl::StatusOr<std::string> specOnly = modelHash({.path = "", .hasWeights = false, .spec = plan.model});
  return specOnly.ok() && *specOnly == plan.modelHash ? "the shape" : kSpecAndHeaders;
}

std::string weightsHash(const plan::Plan &plan) {
  if (plan.weightHashes.empty())
    return "";
  uint64_t all = 0;
  for (const uint64_t hash : plan.weightHashes)
    all = model::xxh64(absl::MakeConstSpan(reinterpret_cast<const std::byte *>(&hash), sizeof(hash)), all);
  return absl::StrFormat("%016x", all);
}

namespace {

absl::StatusOr<std::vector<uint64_t>> hashesOf(const std::string &folder, const model::ModelSpec &spec) {
  Progress progress("hashing weights", Amount::Bytes);
  return model::hashCheckpoint(folder, model::layoutWeights(spec),
                               [&](uint64_t done, uint64_t total) { progress.update(done, total); });
}

} // namespace

absl::Status hashWeights(const model::ModelSource &weights, plan::Plan &plan) {
  if (!weights.hasWeights)
    return absl::InvalidArgumentError(
        model::cat("command line: --verify-weights: ", weights.path.empty() ? plan.model->name : weights.path,
                   " has no weights: expected a model folder with a checkpoint"));
  absl::StatusOr<std::vector<uint64_t>> hashes = hashesOf(weights.path, plan.model);
  if (!hashes.ok())
    return hashes.status();
  plan.weightHashes = *std::move(hashes);
  return absl::OkStatus();
}

absl::Status verifyWeights(const plan::Plan &plan, const model::ModelSource &weights) {
  if (plan.weightHashes.empty())
    return absl::InvalidArgumentError(
        "command line: --verify-weights: the plan has no hash of its weights: expected one that was compiled with "
        "--verify-weights");
  absl::StatusOr<std::vector<uint64_t>> hashes = hashesOf(weights.path, plan.model);
  if (!hashes.ok())
    return hashes.status();
  const model::WeightLayout layout = model::layoutWeights(plan.model);
  for (size_t u = 0; u < layout.units.size(); ++u)
    if ((*hashes)[u] != plan.weightHashes[u])
      return absl::InvalidArgumentError(
          model::cat(weights.path, ": ", layout.units[u].name, ": the weights' hash is ",
                     absl::StrFormat("%016x, expected the plan's %016x", (*hashes)[u], plan.weightHashes[u]),
                     ": these are not the values that it was compiled from"));
  return absl::OkStatus();
}

} // namespace headrace::tools
