// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/HfConfig.h"

#include <optional>

#include "absl/strings/match.h"
#include "runtime/base/FileIo.h"
#include "runtime/base/JsonReader.h"
#include "runtime/base/Names.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/model/CheckpointFiles.h"
#include "runtime/model/HfRope.h"
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

// Whether a layer's attention has a window.
bool anyWindow(JsonReader &config, const ModelSpec &spec) {
  const bool listed = config.find("layer_types") != nullptr;
  const bool slides = anyLayerSlides(config);
  if (const json *window = config.raw("sliding_window"); window != nullptr && window->is_null())
    return false;
  switch (spec.family) {
  case Family::Qwen2:
  case Family::Qwen3:
    if (!config.boolean("use_sliding_window", false))
      return false;
    return listed ? slides : config.integer("max_window_layers", 28, 0, kMaxDimension) < spec.layers;
  case Family::Mistral:
    return slides || !listed;
  case Family::Opt:
  case Family::Llama:
    break;
  }
  return slides;
}

// The window, if it hides part of the longest context.
void readWindow(JsonReader &config, ModelSpec &spec) {
  if (const int64_t tokens = sizeOf(config, "sliding_window", kDefaultWindow); tokens < spec.maxPositions)
    spec.window = tokens;
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
  const bool slides = anyWindow(config, spec);
  readRope(config, where, slides, spec);
  if (slides)
    readWindow(config, spec);
}

// The classes that a checkpoint was saved from, where the config lists them: the model type's that predicts the next
// token. In whatever case: early checkpoints say LLaMAForCausalLM. Others lack that head, or have another in its place.
void checkArchitectures(JsonReader &config, Family family) {
  const json *architectures = config.find("architectures");
  if (architectures == nullptr)
    return;
  if (!architectures->is_array())
    config.refuse("architectures", "a list");
  const std::string expected = cat(traitsOf(family).className, "ForCausalLM");
  for (const json &name : *architectures)
    if (!name.is_string() || !absl::EqualsIgnoreCase(name.get_ref<const std::string &>(), expected))
      config.refuseWith(cat("architectures has ", jsonText(name), ": expected \"", expected,
                            "\", which of model_type = \"", familyName(family),
                            "\" makes text: models of other tasks are not supported"));
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

absl::StatusOr<HfFolder> readHfFolder(const std::string &folder, const FolderOptions &options) {
  const std::string path = joinPath(folder, "config.json");
  if (!isName(baseName(folder))) // plans have both
    return absl::InvalidArgumentError(
        cat("\"", escaped(folder), "\": the name of a folder is its model's: expected ", kNameExpected));
  if (!isThere(path))
    return absl::NotFoundError(cat(path, ": no such file", otherContentsText(folder)));
  ASSIGN_OR_RETURN(text, readTextFile(path));
  const absl::Status adapter = refuseAdapter(folder);
  if (!options.ignoreAdapter)
    RETURN_IF_ERROR(adapter);
  ASSIGN_OR_RETURN(spec, parseHfConfig(text, path, baseName(folder)));
  HfFolder out;
  out.spec = std::move(spec);
  if (!adapter.ok())
    out.notes.push_back(cat(folder, ": the model runs without the adapter beside it, as --ignore-adapter says"));
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
  out.notes.insert(out.notes.end(), unused.begin(), unused.end());
  return out;
}

} // namespace headrace::model
