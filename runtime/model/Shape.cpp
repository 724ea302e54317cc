// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/Shape.h"

#include <optional>

#include "runtime/base/FileIo.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/base/TomlReader.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::model {
namespace {

// What a family means where the shape does not say otherwise.
ModelSpec familyDefaults(Family family) {
  ModelSpec spec;
  spec.family = family;
  spec.dtype = DType::F16;
  spec.normEps = 1e-6;
  spec.rope.enabled = true;
  switch (family) {
  case Family::Opt:
    spec.norm = NormKind::LayerNorm;
    spec.normEps = 1e-5;
    spec.activation = Activation::Relu;
    spec.qkvBias = spec.outBias = spec.mlpBias = true;
    spec.rope.enabled = false;
    spec.learnedPositions = true;
    spec.positionOffset = 2;
    spec.tiedEmbeddings = true;
    break;
  case Family::Qwen2:
    spec.qkvBias = true;
    break;
  case Family::Qwen3:
    spec.qkNorm = true;
    break;
  case Family::Llama:
  case Family::Mistral:
    break;
  }
  return spec;
}

// Zero stands for what is not known yet.
void required(TomlReader &table, std::string_view key, int64_t most, int64_t &out) {
  if (const std::optional<int64_t> value = table.integer(key, 1, most))
    out = *value;
  else if (out == 0)
    table.refuse(key, cat("an integer from 1 to ", most)); // kept only if there is no earlier refusal
}

void parseScaling(TomlReader &table, Rope &rope) {
  TomlReader scaling = table.nested("rope_scaling");
  if (!scaling.ok()) {
    table.refuseWith(scaling.finish());
    return;
  }
  rope = {.enabled = rope.enabled, .theta = rope.theta};
  if (const auto kind = scaling.oneOf("type", ropeScalingFromName, "\"none\", \"linear\" or \"llama3\""))
    rope.scaling = *kind;
  else
    scaling.refuse("type", "\"none\", \"linear\" or \"llama3\"");
  const auto number = [&](std::string_view key, double &out) {
    if (const std::optional<double> given = scaling.number(key))
      out = *given;
    else
      scaling.refuse(key, "a number");
  };
  if (rope.scaling != RopeScalingKind::None)
    number("factor", rope.factor);
  if (rope.scaling == RopeScalingKind::Llama3) {
    number("low_freq_factor", rope.lowFreqFactor);
    number("high_freq_factor", rope.highFreqFactor);
    rope.originalMaxPositions = 0;
    required(scaling, "original_max_positions", kMaxDimension, rope.originalMaxPositions);
  }
  if (absl::Status status = scaling.finish(); !status.ok())
    table.refuseWith(status);
}

// The sizes, of which some follow from others where nothing says them.
void parseSizes(TomlReader &table, ModelSpec &spec) {
  const bool known = spec.heads > 0;
  required(table, "layers", kMaxLayers, spec.layers);
  required(table, "hidden", kMaxDimension, spec.hidden);
  required(table, "heads", kMaxDimension, spec.heads);
  required(table, "intermediate", kMaxDimension, spec.intermediate);
  required(table, "vocab", kMaxDimension, spec.vocab);
  required(table, "max_positions", kMaxDimension, spec.maxPositions);
  spec.kvHeads = table.integer("kv_heads", 1, kMaxDimension).value_or(known ? spec.kvHeads : spec.heads);
  if (const auto headDim = table.integer("head_dim", 1, kMaxDimension))
    spec.headDim = *headDim;
  else if (!known && spec.heads > 0 && spec.hidden % spec.heads == 0)
    spec.headDim = spec.hidden / spec.heads;
  else if (!known)
    table.refuse("heads", cat("a divisor of hidden = ", spec.hidden, ", or head_dim"));
}

} // namespace

absl::StatusOr<ModelSpec> parseShapeTable(TomlReader &table, const std::string &where, const std::string &defaultName,
                                          const ModelSpec *base, bool ofPlan) {
  const auto family = table.oneOf("family", familyFromName, kFamilyNamesQuoted);
  if (!family && (!base || table.has("family"))) {
    table.refuse("family", kFamilyNamesQuoted);
    return table.finish();
  }
  ModelSpec spec = base ? *base : familyDefaults(*family);
  if (base && family) {
    spec.family = *family;
    spec.rope.enabled = familyDefaults(*family).rope.enabled;
    if (base->rope.enabled && !spec.rope.enabled)
      table.refuse("family", cat("a family with rotary embedding, as ", base->name, " has"));
  }
  spec.name = table.text("name").value_or(base ? base->name : defaultName);
  parseSizes(table, spec);
  spec.dtype = table.oneOf("dtype", dtypeFromName, "\"f32\", \"f16\" or \"bf16\"").value_or(spec.dtype);
  spec.norm = table.oneOf("norm", normFromName, "\"layernorm\" or \"rmsnorm\"").value_or(spec.norm);
  spec.normEps = table.number("norm_eps").value_or(spec.normEps);
  spec.activation = table.oneOf("activation", activationFromName, "\"relu\", \"gelu\", \"gelu_tanh\" or \"silu_gate\"")
                        .value_or(spec.activation);
  spec.qkvBias = table.boolean("qkv_bias").value_or(spec.qkvBias);
  spec.outBias = table.boolean("out_bias").value_or(spec.outBias);
  spec.mlpBias = table.boolean("mlp_bias").value_or(spec.mlpBias);
  spec.qkNorm = table.boolean("qk_norm").value_or(spec.qkNorm);
  spec.tiedEmbeddings = table.boolean("tied_embeddings").value_or(spec.tiedEmbeddings);
  spec.learnedPositions = table.boolean("learned_positions").value_or(spec.learnedPositions);
  spec.positionOffset =
      table.integer("position_offset", 0, kMaxDimension).value_or(spec.learnedPositions ? spec.positionOffset : 0);
  if (const auto theta = table.number("rope_theta")) {
    spec.rope.theta = *theta;
    if (!spec.rope.enabled)
      table.refuse("rope_theta", "no rotary embedding in family opt");
  }
  if (table.value("rope_scaling") != nullptr) {
    if (!spec.rope.enabled)
      table.refuse("rope_scaling", "no rotary embedding in family opt");
    parseScaling(table, spec.rope);
  }
  if (ofPlan) {
    spec.stage.first = table.integer("stage_first_layer", 0, kMaxLayers).value_or(spec.stage.first);
    spec.stage.of = table.integer("stage_of_layers", 0, kMaxLayers).value_or(spec.stage.of);
    spec.stage.tied = table.boolean("stage_tied_head").value_or(spec.stage.tied);
  }
  if (const auto encoding = table.text("weight_encoding")) {
    std::string expected;
    if (const auto encodings = weightEncodingsFromText(*encoding, spec, expected))
      spec.encodings = *encodings;
    else
      table.refuse("weight_encoding", expected);
  }
  RETURN_IF_ERROR(table.finish());
  RETURN_IF_ERROR(validate(spec, where));
  return spec;
}

absl::StatusOr<ModelSpec> parseShape(std::string_view text, const std::string &path) {
  absl::StatusOr<TomlValue> document = parseToml(text, path);
  if (!document.ok())
    return document.status();
  TomlReader table(*document, path, "");
  return parseShapeTable(table, path, tomlStem(path));
}

absl::StatusOr<ModelSpec> readShape(const std::string &path) {
  absl::StatusOr<std::string> text = readTextFile(path);
  if (!text.ok())
    return text.status();
  return parseShape(*text, path);
}

} // namespace headrace::model
