// SPDX-License-Identifier: Apache-2.0
#include "tools/ModelHash.h"

#include <filesystem>
#include <set>

#include "absl/strings/str_format.h"
#include "runtime/model/Safetensors.h"
#include "runtime/model/Text.h"
#include "tools/JobToml.h"

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
    if (absl::Status status = addHeaders(source.path, hash); !status.ok())
      return status;
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
                                                 plan.modelHash, ": these are not the files it was compiled from"));
  return absl::OkStatus();
}

} // namespace headrace::tools
