// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/HfRope.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/Text.h"

namespace headrace::model {
namespace {

using nlohmann::json;

// What one of rope_scaling and rope_parameters says.
struct SaidRope {
  std::string key;             // as messages spell it
  Rope rope;                   // scaling only
  std::optional<double> theta; // where it says one
  int64_t positions = 0;       // that linear scaling reaches
  bool sameScaling(const Rope &other) const {
    return rope.scaling == other.scaling && rope.factor == other.factor && rope.lowFreqFactor == other.lowFreqFactor &&
           rope.highFreqFactor == other.highFreqFactor && rope.originalMaxPositions == other.originalMaxPositions;
  }
};

// transformers: the top-level key wins over the scaling's own.
int64_t originalPositions(JsonReader &config, JsonReader &scaling, std::optional<int64_t> missing) {
  constexpr std::string_view kKey = "original_max_position_embeddings";
  JsonReader &reader = config.find(kKey) != nullptr ? config : scaling;
  return missing && reader.find(kKey) == nullptr ? *missing : reader.integer(kKey, std::nullopt, 1, kMaxDimension);
}

// Parameters by layer type are an object of objects; those of the layers that there are, with their name in `key`.
const json *ofAllLayers(const json &object, JsonReader &config, bool slides, std::string &key) {
  if (!object.is_object() || std::none_of(object.begin(), object.end(), [](const json &v) { return v.is_object(); }))
    return &object;
  constexpr const char *kFull = "full_attention";
  for (const auto &[type, value] : object.items())
    if (!value.is_object()) {
      config.refuseWith(cat(key, ".", escaped(type, 60), " = ", jsonText(value),
                            ": expected an object for each type of layer, as there is one"));
      return nullptr;
    }
  if (slides) {
    config.refuseWith(cat(key, ".", object.begin().key(), " = ", jsonText(*object.begin()),
                          ": expected one for all layers: rotary embedding by layer type is not supported where some "
                          "layers slide"));
    return nullptr;
  }
  const auto full = object.find(kFull);
  if (full == object.end()) {
    config.refuseWith(cat(key, ".", kFull, " is missing: expected it: all layers are of that type"));
    return nullptr;
  }
  key += cat(".", kFull);
  return &*full;
}

SaidRope readSaid(const json &given, std::string key, JsonReader &config, std::string_view where, bool slides,
                  const ModelSpec &spec) {
  SaidRope said;
  const bool newer = key == "rope_parameters";
  const json *object = ofAllLayers(given, config, slides, key);
  said.key = key;
  if (object == nullptr)
    return said;
  Rope &rope = said.rope;
  JsonReader scaling(*object, where, cat(key, "."));
  const json *typeValue = scaling.find("rope_type"), *olderType = scaling.find("type");
  if (typeValue != nullptr && olderType != nullptr && *typeValue != *olderType)
    scaling.refuse("rope_type", cat("the same as type = ", jsonText(*olderType)));
  const std::string_view typeKey = typeValue == nullptr && olderType != nullptr ? "type" : "rope_type";
  const std::string type =
      typeValue == nullptr && olderType == nullptr ? "default" : scaling.text(typeKey, std::nullopt);

  if (scaling.find("partial_rotary_factor") != nullptr && scaling.number("partial_rotary_factor", std::nullopt) != 1.0)
    scaling.refuse("partial_rotary_factor", "1: partial rotary embedding is not supported");
  if (scaling.find("rope_theta") != nullptr)
    said.theta = scaling.number("rope_theta", std::nullopt);

  const auto factor = [&](std::string_view name) {
    const double value = scaling.number(name, std::nullopt);
    if (scaling.ok() && !(value >= 1))
      scaling.refuse(name, "a finite number of at least 1");
    return value;
  };
  if (type == "linear") {
    rope.scaling = RopeScalingKind::Linear;
    rope.factor = factor("factor");
    const double reached = rope.factor * static_cast<double>(originalPositions(config, scaling, spec.maxPositions));
    said.positions = static_cast<int64_t>(std::min(reached, static_cast<double>(kMaxDimension)));
  } else if (type == "llama3") {
    rope.scaling = RopeScalingKind::Llama3;
    rope.factor = factor("factor");
    rope.lowFreqFactor = scaling.number("low_freq_factor", std::nullopt);
    rope.highFreqFactor = scaling.number("high_freq_factor", std::nullopt);
    if (scaling.ok() && !(rope.lowFreqFactor > 0))
      scaling.refuse("low_freq_factor", "a positive finite number");
    if (scaling.ok() && !(rope.highFreqFactor > rope.lowFreqFactor))
      scaling.refuse("high_freq_factor", cat("a number above low_freq_factor = ", rope.lowFreqFactor));
    // transformers 5: a length that stands nowhere is the model's.
    rope.originalMaxPositions =
        originalPositions(config, scaling, newer ? std::optional(spec.maxPositions) : std::nullopt);
  } else if (type != "default") {
    scaling.refuse(typeKey, "\"default\", \"linear\" or \"llama3\": other rope scaling is not supported");
  }
  if (!scaling.ok() && config.ok()) // the status begins with `where` already
    config.refuseWith(std::string(scaling.status().message()).substr(where.size() + 2));
  return said;
}

} // namespace

void readRope(JsonReader &config, std::string_view where, bool slides, ModelSpec &spec) {
  Rope &rope = spec.rope;
  std::optional<double> theta;
  if (config.find("rope_theta") != nullptr)
    theta = config.number("rope_theta", std::nullopt);
  std::vector<SaidRope> all;
  for (const char *key : {"rope_parameters", "rope_scaling"})
    if (const json *object = config.find(key))
      all.push_back(readSaid(*object, key, config, where, slides, spec));
  if (!all.empty())
    rope = all.front().rope;
  for (const SaidRope &said : all) {
    const bool otherTheta = theta && said.theta && *said.theta != *theta;
    if (otherTheta && config.find("rope_theta") != nullptr)
      config.refuse("rope_theta", cat("the same as ", said.key, ".rope_theta = ", *said.theta));
    if (otherTheta || !said.sameScaling(rope))
      config.refuse("rope_parameters", "no rope_scaling beside it, or the same");
    if (said.theta)
      theta = said.theta;
    spec.maxPositions = std::max(spec.maxPositions, said.positions);
  }
  rope.enabled = true;
  rope.theta = theta.value_or(10000.0);
  if (config.ok() && !(rope.theta > 0))
    config.refuse(config.find("rope_theta") != nullptr ? "rope_theta" : "rope_parameters", "a positive rope_theta");
  if (config.find("partial_rotary_factor") != nullptr && config.number("partial_rotary_factor", std::nullopt) != 1.0)
    config.refuse("partial_rotary_factor", "1: partial rotary embedding is not supported");
  if (config.boolean("use_mrope", false))
    config.refuse("use_mrope", "false: multimodal rotary embedding is not supported");
}

} // namespace headrace::model
