// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/HfConfig.h"

#include <optional>

#include "absl/strings/ascii.h"
#include "runtime/base/FileIo.h"
#include "runtime/base/JsonReader.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/model/CheckpointFiles.h"
#include "runtime/model/WeightSource.h"

namespace headrace::model {
namespace {

using nlohmann::json;

int64_t sizeOf(JsonReader &config, std::string_view key, std::optional<int64_t> missing) {
  return config.integer(key, missing, 1, kMaxDimension);
}

// What transformers' configuration classes say of keys that are missing.
struct Defaults {
  int64_t vocab, hidden, layers, heads, intermediate, maxPositions;
  std::optional<int64_t> kvHeads; // unset: as many as heads
  std::optional<int64_t> headDim; // unset: hidden / heads
};
constexpr Defaults kOptDefaults = {50272, 768, 12, 12, 3072, 2048, std::nullopt, std::nullopt};
constexpr Defaults kLlamaDefaults = {32000, 4096, 32, 32, 11008, 2048, std::nullopt, std::nullopt};
constexpr Defaults kQwen2Defaults = {151936, 4096, 32, 32, 22016, 32768, 32, std::nullopt};
constexpr Defaults kMistralDefaults = {32000, 4096, 32, 32, 14336, 4096 * 32, 8, std::nullopt};
constexpr Defaults kQwen3Defaults = {151936, 4096, 32, 32, 22016, 32768, 32, 128};
constexpr int64_t kDefaultWindow = 4096; // qwen2, qwen3 and mistral

// Architectures that would otherwise be misread as one of the known families, or are better named than "unknown".
void refuseUnsupported(JsonReader &config, std::string_view modelType) {
  for (std::string_view key : {"num_local_experts", "num_experts", "n_routed_experts"}) {
    const json *experts = config.find(key);
    if (experts != nullptr && *experts != 0)
      config.refuse(key, "a dense model: mixture of experts is not supported");
  }
  if (modelType.find("moe") != std::string::npos || modelType == "mixtral")
    config.refuse("model_type", cat(kFamilyNames, ": mixture of experts is not supported"));
  if (const json *quantization = config.find("quantization_config")) {
    JsonReader details(*quantization, "");
    const json *method = details.find("quant_method");
    config.refuseWith(cat("quantization_config.quant_method = ", method != nullptr ? jsonText(*method) : "null",
                          ": expected no quantization_config: quantised checkpoints are not supported"));
  }
}

std::optional<DType> dtypeFromTorch(std::string_view name) {
  if (name.starts_with("torch."))
    name.remove_prefix(6);
  if (name == "float32" || name == "float")
    return DType::F32;
  if (name == "float16" || name == "half")
    return DType::F16;
  if (name == "bfloat16")
    return DType::BF16;
  return std::nullopt;
}

DType readDtype(JsonReader &config) {
  const json *older = config.find("torch_dtype"), *newer = config.find("dtype");
  if (older != nullptr && newer != nullptr && *older != *newer)
    config.refuse("dtype", cat("the same as torch_dtype = ", jsonText(*older)));
  const std::string_view key = newer != nullptr ? "dtype" : "torch_dtype";
  const json *value = newer != nullptr ? newer : older;
  if (value == nullptr || *value == "auto")
    return DType::F32;
  const std::optional<DType> dtype =
      value->is_string() ? dtypeFromTorch(value->get_ref<const std::string &>()) : std::nullopt;
  if (!dtype)
    config.refuse(key, "\"float32\", \"float16\" or \"bfloat16\"");
  return dtype.value_or(DType::F32);
}

// The scaling part of rope_scaling or rope_parameters, `key` in messages.
void readRopeScaling(const json &object, std::string_view key, JsonReader &config, std::string_view where,
                     int64_t maxPositions, Rope &rope) {
  JsonReader scaling(object, where, cat(key, "."));
  const json *typeValue = scaling.find("rope_type"), *olderType = scaling.find("type");
  if (typeValue != nullptr && olderType != nullptr && *typeValue != *olderType)
    scaling.refuse("rope_type", cat("the same as type = ", jsonText(*olderType)));
  const std::string_view typeKey = typeValue == nullptr && olderType != nullptr ? "type" : "rope_type";
  const std::string type =
      typeValue == nullptr && olderType == nullptr ? "default" : scaling.text(typeKey, std::nullopt);

  if (scaling.find("partial_rotary_factor") != nullptr && scaling.number("partial_rotary_factor", std::nullopt) != 1.0)
    scaling.refuse("partial_rotary_factor", "1: partial rotary embedding is not supported");
  if (scaling.find("rope_theta") != nullptr)
    rope.theta = scaling.number("rope_theta", std::nullopt);

  const auto factor = [&](std::string_view name) {
    const double value = scaling.number(name, std::nullopt);
    if (scaling.ok() && !(value >= 1))
      scaling.refuse(name, "a finite number of at least 1");
    return value;
  };
  if (type == "linear") {
    rope.scaling = RopeScalingKind::Linear;
    rope.factor = factor("factor");
  } else if (type == "llama3") {
    rope.scaling = RopeScalingKind::Llama3;
    rope.factor = factor("factor");
    rope.lowFreqFactor = scaling.number("low_freq_factor", std::nullopt);
    rope.highFreqFactor = scaling.number("high_freq_factor", std::nullopt);
    if (scaling.ok() && !(rope.lowFreqFactor > 0))
      scaling.refuse("low_freq_factor", "a positive finite number");
    if (scaling.ok() && !(rope.highFreqFactor > rope.lowFreqFactor))
      scaling.refuse("high_freq_factor", cat("a number above low_freq_factor = ", rope.lowFreqFactor));
    // transformers 5: the top-level key wins, a length that stands nowhere is the model's.
    if (config.find("original_max_position_embeddings") != nullptr)
      rope.originalMaxPositions = sizeOf(config, "original_max_position_embeddings", std::nullopt);
    else
      rope.originalMaxPositions = sizeOf(scaling, "original_max_position_embeddings",
                                         key == "rope_parameters" ? std::optional(maxPositions) : std::nullopt);
  } else if (type != "default") {
    scaling.refuse(typeKey, "\"default\", \"linear\" or \"llama3\": other rope scaling is not supported");
  }
  if (!scaling.ok() && config.ok()) // the status begins with `where` already
    config.refuseWith(std::string(scaling.status().message()).substr(where.size() + 2));
}

void readRope(JsonReader &config, std::string_view where, ModelSpec &spec) {
  Rope &rope = spec.rope;
  rope.enabled = true;
  rope.theta = config.find("rope_theta") != nullptr ? config.number("rope_theta", std::nullopt) : 10000.0;
  const double topTheta = rope.theta;
  const json *scaling = config.find("rope_scaling"), *parameters = config.find("rope_parameters");
  if (scaling != nullptr && parameters != nullptr && *scaling != *parameters)
    config.refuse("rope_parameters", "no rope_scaling beside it, or the same");
  if (parameters != nullptr)
    readRopeScaling(*parameters, "rope_parameters", config, where, spec.maxPositions, rope);
  else if (scaling != nullptr)
    readRopeScaling(*scaling, "rope_scaling", config, where, spec.maxPositions, rope);
  if (config.find("rope_theta") != nullptr && rope.theta != topTheta)
    config.refuse("rope_theta", cat("the same as rope_parameters.rope_theta = ", rope.theta));
  if (config.ok() && !(rope.theta > 0))
    config.refuse(config.find("rope_theta") != nullptr ? "rope_theta" : "rope_parameters", "a positive rope_theta");
  if (config.find("partial_rotary_factor") != nullptr && config.number("partial_rotary_factor", std::nullopt) != 1.0)
    config.refuse("partial_rotary_factor", "1: partial rotary embedding is not supported");
  if (config.boolean("use_mrope", false))
    config.refuse("use_mrope", "false: multimodal rotary embedding is not supported");
}

// layer_types, where a config lists them: true if one slides. Other kinds of attention are refused.
bool anyLayerSlides(JsonReader &config) {
  const json *types = config.find("layer_types");
  if (types == nullptr)
    return false;
  if (!types->is_array())
    config.refuse("layer_types", "a list");
  bool slides = false;
  for (const json &type : *types) {
    if (type == "sliding_attention")
      slides = true;
    else if (type != "full_attention")
      config.refuseWith(cat("layer_types has ", jsonText(type),
                            ": expected \"full_attention\": other kinds of attention are not supported"));
  }
  return slides;
}

// Refuses a window that hides part of the longest context from some layer. No window is kept: where this returns
// without a refusal, attention sees the whole context in every layer.
void checkWindow(JsonReader &config, const ModelSpec &spec) {
  const bool listed = config.find("layer_types") != nullptr;
  bool slides = anyLayerSlides(config);
  switch (spec.family) {
  case Family::Qwen2:
  case Family::Qwen3:
    if (!config.boolean("use_sliding_window", false))
      return;
    if (!listed)
      slides = config.integer("max_window_layers", 28, 0, kMaxDimension) < spec.layers;
    break;
  case Family::Mistral:
    slides = slides || !listed;
    break;
  case Family::Opt:
  case Family::Llama:
    break;
  }
  if (!slides)
    return;
  const json *window = config.raw("sliding_window");
  if (window != nullptr && window->is_null())
    return;
  const int64_t tokens = sizeOf(config, "sliding_window", kDefaultWindow);
  if (config.ok() && tokens < spec.maxPositions)
    config.refuseWith(cat("sliding_window = ", tokens, window == nullptr ? " (the default)" : "",
                          ": expected null or at least max_position_embeddings = ", spec.maxPositions,
                          ": a sliding window shorter than the context is not supported"));
}

void readSizes(JsonReader &config, const Defaults &defaults, std::string_view intermediateKey, ModelSpec &spec) {
  spec.vocab = sizeOf(config, "vocab_size", defaults.vocab);
  spec.hidden = sizeOf(config, "hidden_size", defaults.hidden);
  spec.layers = config.integer("num_hidden_layers", defaults.layers, 1, kMaxLayers);
  spec.heads = sizeOf(config, "num_attention_heads", defaults.heads);
  spec.intermediate = sizeOf(config, intermediateKey, defaults.intermediate);
  spec.maxPositions = sizeOf(config, "max_position_embeddings", defaults.maxPositions);
  spec.kvHeads = spec.heads;
}

// head_dim from the width, where the config does not state it.
void divideHeads(JsonReader &config, ModelSpec &spec) {
  if (spec.hidden % spec.heads != 0)
    config.refuse("num_attention_heads", cat("a divisor of hidden_size = ", spec.hidden));
  spec.headDim = spec.hidden / spec.heads;
}

void readOpt(JsonReader &config, ModelSpec &spec) {
  readSizes(config, kOptDefaults, "ffn_dim", spec);
  divideHeads(config, spec);
  if (!config.boolean("do_layer_norm_before", true))
    config.refuse("do_layer_norm_before", "true: post-layer-norm OPT is not supported");
  if (config.find("word_embed_proj_dim") != nullptr &&
      sizeOf(config, "word_embed_proj_dim", std::nullopt) != spec.hidden)
    config.refuse("word_embed_proj_dim",
                  cat("hidden_size = ", spec.hidden, ": projected embeddings are not supported"));
  if (config.boolean("_remove_final_layer_norm", false))
    config.refuse("_remove_final_layer_norm", "false: OPT without its final layer norm is not supported");
  if (!config.boolean("layer_norm_elementwise_affine", true))
    config.refuse("layer_norm_elementwise_affine", "true: layer norm without weights is not supported");
  const std::string activation = config.text("activation_function", "relu");
  if (activation == "relu")
    spec.activation = Activation::Relu;
  else if (activation == "gelu")
    spec.activation = Activation::Gelu;
  else if (activation == "gelu_new" || activation == "gelu_pytorch_tanh")
    spec.activation = Activation::GeluTanh;
  else
    config.refuse("activation_function", "\"relu\", \"gelu\", \"gelu_new\" or \"gelu_pytorch_tanh\"");
  spec.norm = NormKind::LayerNorm;
  spec.normEps = 1e-5; // fixed in transformers' OPT: torch's default
  spec.qkvBias = spec.outBias = spec.mlpBias = config.boolean("enable_bias", true);
  spec.learnedPositions = true;
  spec.positionOffset = 2;
  spec.tiedEmbeddings = config.boolean("tie_word_embeddings", true);
}

// All but opt: one architecture with options.
void readLlamaLike(JsonReader &config, const Defaults &defaults, std::string_view where, ModelSpec &spec) {
  readSizes(config, defaults, "intermediate_size", spec);
  const json *kvHeads = config.raw("num_key_value_heads");
  if (kvHeads == nullptr)
    spec.kvHeads = defaults.kvHeads.value_or(spec.heads);
  else if (!kvHeads->is_null())
    spec.kvHeads = sizeOf(config, "num_key_value_heads", std::nullopt);
  if (config.ok() && spec.heads % spec.kvHeads != 0)
    config.refuseWith(cat("num_key_value_heads = ", spec.kvHeads, kvHeads == nullptr ? " (the default)" : "",
                          ": expected a divisor of num_attention_heads = ", spec.heads));
  const bool explicitHeadDim = config.find("head_dim") != nullptr;
  if (explicitHeadDim)
    spec.headDim = sizeOf(config, "head_dim", std::nullopt);
  else if (defaults.headDim)
    spec.headDim = *defaults.headDim;
  else
    divideHeads(config, spec);
  if (config.ok() && spec.headDim % 2 != 0)
    config.refuseWith(cat("head_dim = ", spec.headDim, explicitHeadDim ? "" : " (hidden_size / num_attention_heads)",
                          ": expected an even number: rotary embedding turns pairs of elements"));
  const std::string activation = config.text("hidden_act", "silu");
  if (activation != "silu" && activation != "swish")
    config.refuse("hidden_act", "\"silu\"");
  spec.activation = Activation::SiluGate;
  spec.norm = NormKind::RmsNorm;
  spec.normEps = config.number("rms_norm_eps", 1e-6);
  if (config.ok() && !(spec.normEps > 0 && spec.normEps < 1))
    config.refuse("rms_norm_eps", "a number above 0 and below 1");
  switch (spec.family) {
  case Family::Llama:
    spec.qkvBias = spec.outBias = config.boolean("attention_bias", false);
    spec.mlpBias = config.boolean("mlp_bias", false);
    break;
  case Family::Qwen2:
    spec.qkvBias = true;
    break;
  case Family::Qwen3:
    spec.qkvBias = spec.outBias = config.boolean("attention_bias", false);
    spec.qkNorm = true;
    break;
  case Family::Mistral:
  case Family::Opt: // has a reader of its own
    break;
  }
  spec.tiedEmbeddings = config.boolean("tie_word_embeddings", false);
  readRope(config, where, spec);
  checkWindow(config, spec);
}

// "LlamaForCausalLM", "LLaMAForCausalLM", "LlamaModel"; not "Qwen2MoeForCausalLM" for qwen2.
bool isClassOf(Family family, std::string_view architecture) {
  const std::string lower = absl::AsciiStrToLower({architecture.data(), architecture.size()});
  const std::string_view className = traitsOf(family).className;
  const std::string name = absl::AsciiStrToLower({className.data(), className.size()});
  if (!lower.starts_with(name))
    return false;
  const std::string_view rest = std::string_view(lower).substr(name.size());
  return rest.starts_with("for") || rest == "model" || rest == "lmheadmodel";
}

// The classes that a checkpoint was saved from, where the config lists them, are the model type's.
void checkArchitectures(JsonReader &config, Family family) {
  const json *architectures = config.find("architectures");
  if (architectures == nullptr)
    return;
  if (!architectures->is_array())
    config.refuse("architectures", "a list");
  for (const json &name : *architectures)
    if (!name.is_string() || !isClassOf(family, name.get_ref<const std::string &>()))
      config.refuseWith(cat("architectures has ", jsonText(name), ": expected classes of model_type = \"",
                            familyName(family), "\", such as \"", traitsOf(family).className, "ForCausalLM\""));
}

} // namespace

absl::StatusOr<ModelSpec> parseHfConfig(std::string_view text, const std::string &path, const std::string &name) {
  absl::StatusOr<json> document = parseJson(text, path);
  if (!document.ok())
    return document.status();
  JsonReader config(*document, path);
  const std::string modelType = config.text("model_type", "");
  refuseUnsupported(config, modelType);
  const std::optional<Family> family = familyFromName(modelType);
  if (!family)
    config.refuse("model_type", kFamilyNames);
  if (config.ok())
    checkArchitectures(config, *family);
  if (!config.ok())
    return config.status();

  ModelSpec spec;
  spec.name = name;
  spec.family = *family;
  spec.dtype = readDtype(config);
  switch (spec.family) {
  case Family::Opt:
    readOpt(config, spec);
    break;
  case Family::Llama:
    readLlamaLike(config, kLlamaDefaults, path, spec);
    break;
  case Family::Qwen2:
    readLlamaLike(config, kQwen2Defaults, path, spec);
    break;
  case Family::Mistral:
    readLlamaLike(config, kMistralDefaults, path, spec);
    break;
  case Family::Qwen3:
    readLlamaLike(config, kQwen3Defaults, path, spec);
    break;
  }
  if (!config.ok())
    return config.status();
  RETURN_IF_ERROR(validate(spec, path));
  return spec;
}

absl::StatusOr<HfFolder> readHfFolder(const std::string &folder) {
  const std::string path = joinPath(folder, "config.json");
  ASSIGN_OR_RETURN(text, readTextFile(path));
  ASSIGN_OR_RETURN(spec, parseHfConfig(text, path, baseName(folder)));
  HfFolder out;
  out.spec = std::move(spec);
  if (!hasCheckpoint(folder))
    return out;
  ASSIGN_OR_RETURN(files, CheckpointFiles::open(folder));
  WeightLayout layout = layoutWeights(out.spec);
  ASSIGN_OR_RETURN(dtype, checkpointDtype(*files, layout));
  if (dtype != out.spec.dtype) {
    out.spec.dtype = dtype;
    RETURN_IF_ERROR(validate(out.spec, path));
    layout = layoutWeights(out.spec);
  }
  // Headers only: a checkpoint that is not this model's is refused before anything is planned for it.
  ASSIGN_OR_RETURN(unused, checkCheckpoint(*files, out.spec, layout));
  out.checkpoint = std::move(files);
  out.notes = std::move(unused);
  return out;
}

} // namespace headrace::model
