// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/ModelHash.h"

#include "absl/strings/str_format.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/base/Xxh64.h"
#include "runtime/job/TomlText.h"
#include "runtime/model/CheckpointFiles.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightSource.h"
#include "tools/commands/InputErrors.h"
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
  return model::toToml(model::shapeEntries(spec));
}

void addHeaders(const model::CheckpointFiles &files, Fnv &hash) {
  for (const std::unique_ptr<model::SafetensorsFile> &file : files.files())
    for (const model::StoredTensor &tensor : file->header().tensors) {
      hash.add(model::cat(tensor.name, " ", tensor.dtype, " ", tensor.begin, " ", tensor.exclusiveEnd));
      for (const int64_t size : tensor.shape)
        hash.add(model::cat(" ", size));
      hash.add("\n");
    }
}

} // namespace

std::string modelHash(const model::ModelSource &source) {
  Fnv hash;
  hash.add(specText(source.spec));
  if (source.checkpoint)
    addHeaders(*source.checkpoint, hash);
  return hash.hex();
}

absl::Status checkWeightsMatch(const model::ModelSpec &plannedModel, std::string_view plannedHash,
                               const model::ModelSource &found) {
  // A folder says nothing of encodings.
  model::ModelSource weights = found;
  model::ModelSpec spec = weights.spec;
  spec.encodings = plannedModel.encodings;
  weights.spec = std::move(spec);
  const model::TomlEntries planned = model::shapeEntries(plannedModel), here = model::shapeEntries(weights.spec);
  for (size_t i = 0; i < std::max(planned.size(), here.size()); ++i) {
    if (i < planned.size() && i < here.size() && (planned[i] == here[i] || planned[i].first == "name"))
      continue;
    const auto &[key, value] = i < here.size() ? here[i] : planned[i];
    return absl::InvalidArgumentError(model::cat(weights.path, ": ", key, " = ", i < here.size() ? value : "missing",
                                                 ": expected the plan's model, whose ", key, " is ",
                                                 i < planned.size() ? planned[i].second : "missing"));
  }
  const std::string withHeaders = modelHash(weights);
  if (plannedHash != modelHash({.path = "", .spec = plannedModel}) && plannedHash != withHeaders)
    return absl::InvalidArgumentError(model::cat(weights.path, ": model hash ", withHeaders, ": expected the plan's ",
                                                 plannedHash, " of ", kSpecAndHeaders,
                                                 ": these are not the files it was compiled from"));
  return absl::OkStatus();
}

std::string modelHashCovers(const plan::Plan &plan) {
  return modelHash({.path = "", .spec = plan.model}) == plan.modelHash ? "the shape" : kSpecAndHeaders;
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

absl::StatusOr<std::vector<uint64_t>> hashesOf(const model::CheckpointFiles &files, const model::WeightLayout &layout) {
  Progress progress("hashing weights", Amount::Bytes);
  return model::hashCheckpoint(files, layout, [&](uint64_t done, uint64_t total) { progress.update(done, total); });
}

} // namespace

absl::Status checkHasWeights(const model::ModelSource &weights) {
  if (weights.checkpoint)
    return absl::OkStatus();
  return badUsage(model::cat("--verify-weights: ", weights.path.empty() ? weights.spec->name : weights.path,
                             " has no weights: expected a model folder with a checkpoint"));
}

absl::Status hashWeights(const model::ModelSource &weights, plan::Plan &plan) {
  RETURN_IF_ERROR(checkHasWeights(weights));
  ASSIGN_OR_RETURN(hashes, hashesOf(*weights.checkpoint, model::layoutWeights(*plan.model)));
  plan.weightHashes = std::move(hashes);
  return absl::OkStatus();
}

absl::Status verifyWeights(const model::ModelSpec &planned, absl::Span<const uint64_t> hashes,
                           const model::ModelSource &weights) {
  if (hashes.empty())
    return badUsage("--verify-weights: the plan has no hash of its weights: expected one that was compiled with "
                    "--verify-weights");
  const model::WeightLayout layout = model::layoutWeights(planned);
  ASSIGN_OR_RETURN(found, hashesOf(*weights.checkpoint, layout));
  for (size_t u = 0; u < layout.units.size(); ++u)
    if (found[u] != hashes[u])
      return absl::InvalidArgumentError(
          model::cat(weights.path, ": ", layout.units[u].name, ": the weights' hash is ",
                     absl::StrFormat("%016x, expected the plan's %016x", found[u], hashes[u]),
                     ": these are not the values that it was compiled from"));
  return absl::OkStatus();
}

} // namespace headrace::tools
