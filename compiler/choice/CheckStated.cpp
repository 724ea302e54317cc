// SPDX-License-Identifier: Apache-2.0
#include "compiler/choice/CheckStated.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/IterationMeta.h"
#include "passes/algorithms/CyclePlaces.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::compiler {
namespace {

// The form of every error about a key; who called says which file, or which flag.
absl::Status refuse(absl::string_view key, const absl::AlphaNum &value, const std::string &expected) {
  return absl::InvalidArgumentError(absl::StrCat(key, " = ", value, ": expected ", expected));
}
std::string quoted(std::string_view text) { return absl::StrCat("\"", std::string(text), "\""); }

// Places that tails cycle through: as many schedules a class as the cycle is long.
absl::Status checkKvPlaces(int64_t places, bool cycles, const model::ModelSpec &model, int64_t miniBatches) {
  const int64_t tails = model.layers * miniBatches; // each mini-batch has its own of each layer
  const std::string all = absl::StrCat("the ", model.layers, " layers of ", model.name,
                                       miniBatches == 1 ? "" : absl::StrCat(" by ", miniBatches, " mini-batches"));
  if (places < model::kLeastKvPlaces || places >= tails)
    return refuse("policy.kv_places", places,
                  absl::StrCat("at least 2, and less than ", all, places >= tails ? ": else nothing would move" : ""));
  if (!cycles)
    return absl::OkStatus();
  const uint64_t period = algorithms::cyclePeriod(tails, places);
  if (period <= plan::kMostPhases)
    return absl::OkStatus();
  const algorithms::NearestPlaces nearest = algorithms::nearestPlaces(tails, places, plan::kMostPhases);
  std::vector<std::string> would; // two places always do
  for (const std::optional<int64_t> other : {nearest.below, nearest.above})
    if (other)
      would.push_back(absl::StrCat(*other, " (a cycle of ", algorithms::cyclePeriod(tails, *other), ")"));
  return refuse("policy.kv_places", places,
                absl::StrCat(absl::StrJoin(would, " or "), ": ", all, " in ", places, " places take a cycle of ",
                             period, " iterations, a plan has at most ", plan::kMostPhases));
}

} // namespace

absl::Status checkStated(const CompileRequest &request, const Choice &choice, bool cycles) {
  const model::Policy &policy = request.policy;
  const model::ModelSpec &model = request.model;
  if (policy.placements && (*policy.placements < 1 || *policy.placements > model::kMaxPlacements))
    return refuse("policy.placements", *policy.placements, absl::StrCat("1 to ", model::kMaxPlacements));
  const int given = policy.none + policy.interval.has_value() + policy.offloadLayers.has_value();
  if (given > 1)
    return refuse("policy.interval", policy.interval ? absl::StrCat(*policy.interval) : quoted("none"),
                  "one of interval = \"none\", an interval and offload_layers");
  if (policy.interval && (*policy.interval < 1 || *policy.interval > model.layers))
    return refuse("policy.interval", *policy.interval,
                  absl::StrCat("\"none\" or 1 to ", model.layers, ", the number of layers of ",
                               model.isStage() ? "the stage of " : "", model.name));
  if (policy.offloadLayers && (*policy.offloadLayers < 0 || *policy.offloadLayers > model.layers))
    return refuse("policy.offload_layers", *policy.offloadLayers,
                  absl::StrCat("0 to ", model.layers, ", the number of layers of ",
                               model.isStage() ? "the stage of " : "", model.name));
  if (request.goal.kvDeviceMemory == uint64_t{0} && request.goal.kvHostMemory == uint64_t{0})
    return refuse("goal.kv_host_memory", "0B", "more than 0B where kv_device_memory is 0B: KV has to be somewhere");
  const std::string attention = quoted(model::attentionName(policy.attention));
  if (policy.attention == model::Attention::Auto && request.goal.kvDeviceMemory.value_or(0) > 0)
    return refuse("policy.attention", attention,
                  "goal.kv_device_memory = \"0B\" or none beside it: the CPU attends to caches that are wholly at home "
                  "on the host");
  if (policy.attention == model::Attention::Cpu && request.goal.kvDeviceMemory != uint64_t{0})
    return refuse("policy.attention", attention,
                  "goal.kv_device_memory = \"0B\" beside it: the CPU attends to caches that are wholly at home on the "
                  "host");
  if (policy.attention != model::Attention::Device && request.hardware.kind == model::DeviceKind::Cuda &&
      !request.hardware.cpu.known())
    return refuse("policy.attention", attention,
                  absl::StrCat("hardware.cpu_cores, hardware.cpu_flops, hardware.cpu_memory_bandwidth and "
                               "hardware.cpu_core_bandwidth beside it: ",
                               request.hardware.name, " says nothing of its CPU (headrace profile --cpu measures it)"));
  if (policy.slots && (*policy.slots < 1 || *policy.slots > model.layers + 1))
    return refuse("policy.slots", *policy.slots, absl::StrCat("1 to ", model.layers + 1));
  if (policy.kvPlaces)
    if (absl::Status status = checkKvPlaces(*policy.kvPlaces, cycles, model,
                                            std::clamp<int64_t>(choice.miniBatches, 1, kernels::kMostMiniBatches));
        !status.ok())
      return status;
  if (!policy.actRatio && policy.actHome != model::ActHome::Auto)
    return refuse("policy.act_home", quoted(model::actHomeName(policy.actHome)),
                  "policy.act_ratio beside it: without one there are no activation blocks");
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
