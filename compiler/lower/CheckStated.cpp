// SPDX-License-Identifier: Apache-2.0
#include "compiler/lower/CheckStated.h"

#include "absl/strings/str_cat.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {
namespace {

// The form of every error about a key; who called says which file, or which flag.
absl::Status refuse(absl::string_view key, const absl::AlphaNum &value, const std::string &expected) {
  return absl::InvalidArgumentError(absl::StrCat(key, " = ", value, ": expected ", expected));
}
std::string quoted(std::string_view text) { return absl::StrCat("\"", std::string(text), "\""); }

} // namespace

absl::Status checkStated(const model::Policy &policy, const model::ModelSpec &model) {
  if (policy.placements && (*policy.placements < 1 || *policy.placements > model::kMaxPlacements))
    return refuse("policy.placements", *policy.placements, absl::StrCat("1 to ", model::kMaxPlacements));
  const int given = policy.none + policy.interval.has_value() + policy.offloadLayers.has_value();
  if (given > 1)
    return refuse("policy.interval", policy.interval ? absl::StrCat(*policy.interval) : quoted("none"),
                  "one of interval = \"none\", an interval and offload_layers");
  if (policy.interval && (*policy.interval < 1 || *policy.interval > model.layers))
    return refuse("policy.interval", *policy.interval,
                  absl::StrCat("\"none\" or 1 to ", model.layers, ", the number of layers of ", model.name));
  if (policy.offloadLayers && (*policy.offloadLayers < 0 || *policy.offloadLayers > model.layers))
    return refuse("policy.offload_layers", *policy.offloadLayers,
                  absl::StrCat("0 to ", model.layers, ", the number of layers of ", model.name));
  if (policy.slots && (*policy.slots < 1 || *policy.slots > model.layers + 1))
    return refuse("policy.slots", *policy.slots, absl::StrCat("1 to ", model.layers + 1));
  if (policy.none && (policy.offloadEmbedding == model::AutoOnOff::On || policy.offloadHead == model::AutoOnOff::On))
    return refuse("policy.interval", quoted("none"), "no offload_embedding or offload_head of \"on\" beside it");
  // The token table and the head's matrix are one operand there.
  const auto opposite = [](model::AutoOnOff a, model::AutoOnOff b) {
    return (a == model::AutoOnOff::On && b == model::AutoOnOff::Off) ||
           (a == model::AutoOnOff::Off && b == model::AutoOnOff::On);
  };
  if (model.tiedEmbeddings && opposite(policy.offloadEmbedding, policy.offloadHead))
    return refuse("policy.offload_head", quoted(model::autoOnOffName(policy.offloadHead)),
                  absl::StrCat("the same as offload_embedding, or one of them alone: ", model.name,
                               " has tied embeddings, both are one matrix"));
  return absl::OkStatus();
}

} // namespace headrace::compiler
