// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/HfConfig.h"

#include <nlohmann/json.hpp>

#include "tests/support/SourceDir.h"
#include "tests/support/TestFiles.h"

namespace headrace::model {
namespace {

using nlohmann::json;

absl::StatusOr<ModelSpec> parse(const json &config) { return parseHfConfig(config.dump(), "config.json", "model"); }

// As published, without the keys that nothing here reads.
json llama31() {
  return json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "attention_bias": false, "hidden_act": "silu", "hidden_size": 4096,
    "intermediate_size": 14336, "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama",
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "pretraining_tp": 1,
    "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
    "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                     "original_max_position_embeddings": 8192, "rope_type": "llama3"},
    "vocab_size": 128256})");
}

json opt67() {
  return json::parse(R"({
    "_remove_final_layer_norm": false, "activation_function": "relu", "do_layer_norm_before": true, "ffn_dim": 16384,
    "hidden_size": 4096, "max_position_embeddings": 2048, "model_type": "opt", "num_attention_heads": 32,
    "num_hidden_layers": 32, "torch_dtype": "float16", "vocab_size": 50272, "word_embed_proj_dim": 4096})");
}

json qwen25() {
  return json::parse(R"({
    "hidden_act": "silu", "hidden_size": 3584, "intermediate_size": 18944, "max_position_embeddings": 131072,
    "max_window_layers": 28, "model_type": "qwen2", "num_attention_heads": 28, "num_hidden_layers": 28,
    "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 131072,
    "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_mrope": false, "use_sliding_window": false,
    "vocab_size": 152064})");
}

json mistral03() {
  return json::parse(R"({
    "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 32768,
    "model_type": "mistral", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "sliding_window": null, "tie_word_embeddings": false,
    "torch_dtype": "bfloat16", "vocab_size": 32768})");
}

json qwen3() {
  return json::parse(R"({
    "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "head_dim": 128, "hidden_act": "silu",
    "hidden_size": 4096, "intermediate_size": 12288, "max_position_embeddings": 40960, "max_window_layers": 36,
    "model_type": "qwen3", "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null,
    "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_sliding_window": false, "vocab_size": 151936
  })");
}

// A config with some keys replaced (null stays null, unlike in a JSON merge patch) and some taken away.
json with(json config, const json &changes) {
  for (const auto &[key, value] : changes.items())
    config[key] = value;
  return config;
}
json without(json config, const std::string &key) {
  config.erase(key);
  return config;
}

void expectRefused(const json &config, const std::string &message) {
  EXPECT_REFUSED(parse(config), absl::StatusCode::kInvalidArgument, "config.json: " + message);
}

TEST(HfConfig, ArchitecturesAreClassesOfTheModelType) {
  const auto accepted = [](const json &config, const json &architectures) {
    EXPECT_TRUE(parse(with(config, {{"architectures", architectures}})).ok()) << architectures;
  };
  for (const char *name : {"LlamaForCausalLM", "LLaMAForCausalLM"})
    accepted(llama31(), {name});
  accepted(llama31(), json::array());
  accepted(llama31(), nullptr);
  accepted(opt67(), {"OPTForCausalLM"});
  accepted(qwen25(), {"Qwen2ForCausalLM"});
  accepted(mistral03(), {"MistralForCausalLM"});
  accepted(qwen3(), {"Qwen3ForCausalLM"});

  const auto refused = [](const json &config, const json &architectures, const std::string &expected) {
    expectRefused(with(config, {{"architectures", architectures}}),
                  "architectures has " + architectures.back().dump() + ": expected \"" + expected +
                      "ForCausalLM\", which of model_type = \"" + config["model_type"].get<std::string>() +
                      "\" makes text: models of other tasks are not supported");
  };
  const std::string llama = "Llama";
  refused(llama31(), {"Qwen2ForCausalLM"}, llama);
  refused(llama31(), {"LlamaForCausalLM", "OPTForCausalLM"}, llama);
  refused(llama31(), {"LlamaMoeForCausalLM"}, llama);
  for (const char *other : {"LlamaForSequenceClassification", "LlamaForTokenClassification", "LlamaModel"})
    refused(llama31(), {other}, llama); // another head, or none
  refused(llama31(), {3}, llama);
  expectRefused(with(llama31(), {{"architectures", "LlamaForCausalLM"}}),
                "architectures = \"LlamaForCausalLM\": expected a list");
  refused(qwen25(), {"Qwen2MoeForCausalLM"}, "Qwen2");
  refused(qwen25(), {"Qwen2VLForConditionalGeneration"}, "Qwen2");
  refused(qwen3(), {"Qwen3MoeForCausalLM"}, "Qwen3");
  refused(opt67(), {"LlamaForCausalLM"}, "OPT");
  refused(mistral03(), {"MixtralForCausalLM"}, "Mistral");
}

TEST(HfConfig, ReadsLlama) {
  const auto spec = parse(llama31());
  ASSERT_TRUE(spec.ok()) << messageOf(spec);
  EXPECT_EQ(spec->name, "model");
  EXPECT_EQ(spec->family, Family::Llama);
  EXPECT_EQ(spec->layers, 32);
  EXPECT_EQ(spec->hidden, 4096);
  EXPECT_EQ(spec->heads, 32);
  EXPECT_EQ(spec->kvHeads, 8);
  EXPECT_EQ(spec->headDim, 128); // 4096 / 32
  EXPECT_EQ(spec->intermediate, 14336);
  EXPECT_EQ(spec->vocab, 128256);
  EXPECT_EQ(spec->maxPositions, 131072);
  EXPECT_EQ(spec->norm, NormKind::RmsNorm);
  EXPECT_EQ(spec->normEps, 1e-5);
  EXPECT_EQ(spec->activation, Activation::SiluGate);
  EXPECT_FALSE(spec->qkvBias || spec->outBias || spec->mlpBias);
  EXPECT_TRUE(spec->rope.enabled);
  EXPECT_EQ(spec->rope.theta, 500000.0);
  EXPECT_EQ(spec->rope.scaling, RopeScalingKind::Llama3);
  EXPECT_EQ(spec->rope.factor, 8.0);
  EXPECT_EQ(spec->rope.lowFreqFactor, 1.0);
  EXPECT_EQ(spec->rope.highFreqFactor, 4.0);
  EXPECT_EQ(spec->rope.originalMaxPositions, 8192);
  EXPECT_FALSE(spec->learnedPositions);
  EXPECT_FALSE(spec->tiedEmbeddings);
  EXPECT_EQ(spec->dtype, DType::BF16);
}

TEST(HfConfig, ReadsOpt) {
  const auto spec = parse(opt67());
  ASSERT_TRUE(spec.ok()) << messageOf(spec);
  EXPECT_EQ(spec->family, Family::Opt);
  EXPECT_EQ(spec->kvHeads, 32);
  EXPECT_EQ(spec->headDim, 128);
  EXPECT_EQ(spec->intermediate, 16384);
  EXPECT_EQ(spec->norm, NormKind::LayerNorm);
  EXPECT_EQ(spec->normEps, 1e-5);
  EXPECT_EQ(spec->activation, Activation::Relu);
  EXPECT_TRUE(spec->qkvBias && spec->outBias && spec->mlpBias);
  EXPECT_FALSE(spec->rope.enabled);
  EXPECT_TRUE(spec->learnedPositions);
  EXPECT_EQ(spec->positionOffset, 2);
  EXPECT_TRUE(spec->tiedEmbeddings);
  EXPECT_EQ(spec->dtype, DType::F16);
}

TEST(HfConfig, ReadsQwen2WithItsBias) {
  const auto spec = parse(qwen25());
  ASSERT_TRUE(spec.ok()) << messageOf(spec);
  EXPECT_EQ(spec->family, Family::Qwen2);
  EXPECT_TRUE(spec->qkvBias);
  EXPECT_FALSE(spec->outBias || spec->mlpBias);
  EXPECT_EQ(spec->kvHeads, 4);
  EXPECT_EQ(spec->rope.theta, 1e6);
  EXPECT_EQ(spec->rope.scaling, RopeScalingKind::None);
}

TEST(HfConfig, ReadsQwen3WithItsNormsOfHeads) {
  const auto spec = parse(qwen3());
  ASSERT_TRUE(spec.ok()) << messageOf(spec);
  EXPECT_EQ(spec->family, Family::Qwen3);
  EXPECT_TRUE(spec->qkNorm);
  EXPECT_FALSE(spec->qkvBias || spec->outBias || spec->mlpBias || spec->tiedEmbeddings);
  EXPECT_EQ(spec->headDim, 128);
  EXPECT_EQ(spec->kvHeads, 8);
  EXPECT_EQ(spec->maxPositions, 40960);
  EXPECT_EQ(spec->rope.theta, 1e6);
  EXPECT_EQ(spec->dtype, DType::BF16);
  for (const json &other : {llama31(), opt67(), qwen25(), mistral03()})
    EXPECT_FALSE(parse(other)->qkNorm);

  const auto biased = parse(with(qwen3(), {{"attention_bias", true}}));
  ASSERT_TRUE(biased.ok()) << messageOf(biased);
  EXPECT_TRUE(biased->qkvBias && biased->outBias);
  EXPECT_FALSE(biased->mlpBias);
  // Missing, head_dim is 128 whatever the width is.
  EXPECT_EQ(parse(with(without(qwen3(), "head_dim"), {{"hidden_size", 5120}, {"num_attention_heads", 64}}))->headDim,
            128);
  const auto defaults = parse({{"model_type", "qwen3"}});
  ASSERT_TRUE(defaults.ok()) << messageOf(defaults);
  EXPECT_EQ(defaults->vocab, 151936);
  EXPECT_EQ(defaults->intermediate, 22016);
  EXPECT_EQ(defaults->kvHeads, 32);
  EXPECT_EQ(parse(with(qwen3(), {{"use_sliding_window", true}, {"max_window_layers", 18}, {"sliding_window", 4096}}))
                ->longestContext(),
            4096);
}

TEST(HfConfig, ReadsMistral) {
  const auto spec = parse(mistral03());
  ASSERT_TRUE(spec.ok()) << messageOf(spec);
  EXPECT_EQ(spec->family, Family::Mistral);
  EXPECT_EQ(spec->kvHeads, 8);
  EXPECT_FALSE(spec->qkvBias || spec->outBias || spec->mlpBias);
  // Mistral-Nemo: 32 heads of 128 beside a width of 5120.
  const auto nemo = parse(with(mistral03(), {{"head_dim", 128}, {"hidden_size", 5120}}));
  ASSERT_TRUE(nemo.ok()) << messageOf(nemo);
  EXPECT_EQ(nemo->headDim, 128);
  EXPECT_EQ(nemo->qRows(), 4096);
}

TEST(HfConfig, FillsInTransformersDefaults) {
  const auto opt = parse({{"model_type", "opt"}});
  ASSERT_TRUE(opt.ok()) << messageOf(opt);
  EXPECT_EQ(opt->layers, 12);
  EXPECT_EQ(opt->hidden, 768);
  EXPECT_EQ(opt->heads, 12);
  EXPECT_EQ(opt->intermediate, 3072);
  EXPECT_EQ(opt->vocab, 50272);
  EXPECT_EQ(opt->maxPositions, 2048);
  EXPECT_EQ(opt->dtype, DType::F32);
  EXPECT_TRUE(opt->tiedEmbeddings);

  const auto llama = parse({{"model_type", "llama"}});
  ASSERT_TRUE(llama.ok()) << messageOf(llama);
  EXPECT_EQ(llama->intermediate, 11008);
  EXPECT_EQ(llama->vocab, 32000);
  EXPECT_EQ(llama->kvHeads, 32);
  EXPECT_EQ(llama->maxPositions, 2048);
  EXPECT_EQ(llama->normEps, 1e-6);
  EXPECT_EQ(llama->rope.theta, 10000.0);
  EXPECT_FALSE(llama->tiedEmbeddings);

  const auto qwen = parse({{"model_type", "qwen2"}});
  ASSERT_TRUE(qwen.ok()) << messageOf(qwen);
  EXPECT_EQ(qwen->intermediate, 22016);
  EXPECT_EQ(qwen->vocab, 151936);
  EXPECT_EQ(qwen->kvHeads, 32);
  EXPECT_EQ(qwen->maxPositions, 32768);

  const auto mistral = parse({{"model_type", "mistral"}, {"sliding_window", nullptr}});
  ASSERT_TRUE(mistral.ok()) << messageOf(mistral);
  EXPECT_EQ(mistral->intermediate, 14336);
  EXPECT_EQ(mistral->kvHeads, 8);
  EXPECT_EQ(mistral->maxPositions, 131072);
}

TEST(HfConfig, TellsAMissingKeyFromNull) {
  // Missing, mistral has 8 key/value heads; null means as many as heads.
  EXPECT_EQ(parse(without(mistral03(), "num_key_value_heads"))->kvHeads, 8);
  EXPECT_EQ(parse(with(mistral03(), {{"num_key_value_heads", nullptr}}))->kvHeads, 32);
  EXPECT_EQ(parse(with(llama31(), {{"head_dim", nullptr}}))->headDim, 128);
  EXPECT_EQ(parse(with(llama31(), {{"rope_scaling", nullptr}}))->rope.scaling, RopeScalingKind::None);
  EXPECT_TRUE(parse(with(llama31(), {{"quantization_config", nullptr}})).ok());
  expectRefused(with(llama31(), {{"hidden_size", nullptr}}),
                "hidden_size = null: expected an integer from 1 to 2147483647");
}

TEST(HfConfig, ReadsLlamaOptions) {
  const auto biased = parse(with(llama31(), {{"attention_bias", true},
                                             {"mlp_bias", true},
                                             {"head_dim", 64},
                                             {"tie_word_embeddings", true},
                                             {"hidden_act", "swish"}}));
  ASSERT_TRUE(biased.ok()) << messageOf(biased);
  EXPECT_TRUE(biased->qkvBias && biased->outBias && biased->mlpBias);
  EXPECT_EQ(biased->headDim, 64);
  EXPECT_EQ(biased->qRows(), 2048);
  EXPECT_TRUE(biased->tiedEmbeddings);
}

TEST(HfConfig, ReadsOptOptions) {
  EXPECT_EQ(parse(with(opt67(), {{"activation_function", "gelu"}}))->activation, Activation::Gelu);
  EXPECT_EQ(parse(with(opt67(), {{"activation_function", "gelu_new"}}))->activation, Activation::GeluTanh);
  EXPECT_EQ(parse(with(opt67(), {{"activation_function", "gelu_pytorch_tanh"}}))->activation, Activation::GeluTanh);
  const auto plain = parse(with(opt67(), {{"enable_bias", false}, {"tie_word_embeddings", false}}));
  ASSERT_TRUE(plain.ok()) << messageOf(plain);
  EXPECT_FALSE(plain->qkvBias || plain->outBias || plain->mlpBias || plain->tiedEmbeddings);
}

TEST(HfConfig, ReadsBothSpellingsOfTheElementType) {
  EXPECT_EQ(parse(with(llama31(), {{"torch_dtype", "float32"}}))->dtype, DType::F32);
  EXPECT_EQ(parse(with(llama31(), {{"torch_dtype", "torch.float16"}}))->dtype, DType::F16);
  EXPECT_EQ(parse(with(without(llama31(), "torch_dtype"), {{"dtype", "float16"}}))->dtype, DType::F16);
  EXPECT_EQ(parse(with(llama31(), {{"dtype", "bfloat16"}}))->dtype, DType::BF16);
  EXPECT_EQ(parse(with(llama31(), {{"torch_dtype", nullptr}}))->dtype, DType::F32);
  expectRefused(with(llama31(), {{"torch_dtype", "float8_e4m3fn"}}),
                "torch_dtype = \"float8_e4m3fn\": expected \"float32\", \"float16\" or \"bfloat16\"");
  expectRefused(with(llama31(), {{"dtype", 16}, {"torch_dtype", nullptr}}),
                "dtype = 16: expected \"float32\", \"float16\" or \"bfloat16\"");
  expectRefused(with(llama31(), {{"dtype", "float16"}}),
                "dtype = \"float16\": expected the same as torch_dtype = \"bfloat16\"");
}

TEST(HfConfig, ReadsTheOlderSpellingOfTheScalingType) {
  const auto linear = parse(with(llama31(), {{"rope_scaling", {{"type", "linear"}, {"factor", 2.5}}}}));
  ASSERT_TRUE(linear.ok()) << messageOf(linear);
  EXPECT_EQ(linear->rope.scaling, RopeScalingKind::Linear);
  EXPECT_EQ(linear->rope.factor, 2.5);
  EXPECT_EQ(parse(with(llama31(), {{"rope_scaling", {{"rope_type", "default"}}}}))->rope.scaling,
            RopeScalingKind::None);
  EXPECT_EQ(parse(with(llama31(), {{"rope_scaling", json::object()}}))->rope.scaling, RopeScalingKind::None);
}

TEST(HfConfig, ReadsRopeParametersOfTransformers5) {
  json config = without(without(llama31(), "rope_theta"), "rope_scaling");
  config["rope_parameters"] = {{"rope_type", "llama3"},   {"rope_theta", 150.0},
                               {"factor", 8.0},           {"low_freq_factor", 1.0},
                               {"high_freq_factor", 2.0}, {"original_max_position_embeddings", 16}};
  const auto spec = parse(config);
  ASSERT_TRUE(spec.ok()) << messageOf(spec);
  EXPECT_EQ(spec->rope.theta, 150.0);
  EXPECT_EQ(spec->rope.scaling, RopeScalingKind::Llama3);
  EXPECT_EQ(spec->rope.highFreqFactor, 2.0);
  EXPECT_EQ(spec->rope.originalMaxPositions, 16);

  // Without an original length, transformers 5 takes the model's own; one beside the parameters wins.
  config["rope_parameters"].erase("original_max_position_embeddings");
  EXPECT_EQ(parse(config)->rope.originalMaxPositions, 131072);
  EXPECT_EQ(parse(with(config, {{"original_max_position_embeddings", 4096}}))->rope.originalMaxPositions, 4096);

  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 1e6}};
  EXPECT_EQ(parse(config)->rope.theta, 1e6);
  EXPECT_EQ(parse(config)->rope.scaling, RopeScalingKind::None);
  expectRefused(with(config, {{"rope_theta", 10000.0}}),
                "rope_theta = 10000.0: expected the same as rope_parameters.rope_theta = 1e+06");
  expectRefused(with(config, {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}}}),
                "rope_parameters = {...}: expected no rope_scaling beside it, or the same");
}

// Vicuna-16k: 4096 positions by 4. As FastChat and vLLM count.
TEST(HfConfig, LinearScalingReachesFactorTimesTheOriginalPositions) {
  const auto reached = [](int64_t positions, const json &scaling, const json &more = json::object()) {
    return parse(with(with(llama31(), {{"max_position_embeddings", positions}, {"rope_scaling", scaling}}), more))
        ->maxPositions;
  };
  const json linear = {{"type", "linear"}, {"factor", 4.0}};
  EXPECT_EQ(reached(4096, linear), 16384);
  EXPECT_EQ(reached(4096, with(linear, {{"factor", 1.5}})), 6144);
  EXPECT_EQ(reached(16384, with(linear, {{"original_max_position_embeddings", 4096}})), 16384);
  EXPECT_EQ(reached(16384, with(linear, {{"original_max_position_embeddings", 8192}})), 32768);
  EXPECT_EQ(reached(16384, with(linear, {{"original_max_position_embeddings", nullptr}})), 65536);
  EXPECT_EQ(reached(16384, linear, {{"original_max_position_embeddings", 4096}}), 16384);
  EXPECT_EQ(reached(4096, with(linear, {{"factor", 1e300}})), 2147483647);
  EXPECT_EQ(reached(131072, llama31()["rope_scaling"]), 131072); // of other kinds they are what they are
}

TEST(HfConfig, TakesBothSpellingsOfARopeThatAgree) {
  json both = llama31();
  both["rope_parameters"] = with(both["rope_scaling"], {{"rope_theta", 500000.0}});
  const auto spec = parse(both);
  ASSERT_TRUE(spec.ok()) << messageOf(spec);
  EXPECT_EQ(spec->rope.theta, 500000.0);
  EXPECT_EQ(spec->rope.originalMaxPositions, 8192);
  const std::string differ = "rope_parameters = {...}: expected no rope_scaling beside it, or the same";
  for (const char *key : {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"})
    expectRefused(with(both, {{"rope_scaling", with(both["rope_scaling"], {{key, 3}})}}), differ);
  expectRefused(
      with(without(both, "rope_theta"), {{"rope_scaling", with(both["rope_scaling"], {{"rope_theta", 10000.0}})}}),
      differ);
  expectRefused(with(both, {{"rope_theta", 10000.0}}),
                "rope_theta = 10000.0: expected the same as rope_parameters.rope_theta = 500000");
}

TEST(HfConfig, TakesRopeParametersByLayerTypeWhereThereIsOneType) {
  const json full = {{"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 500000.0}};
  const json nested = {{"full_attention", full}, {"sliding_attention", {{"rope_theta", 10000.0}}}};
  const json plain = without(without(qwen25(), "rope_theta"), "rope_scaling");
  for (const char *key : {"rope_parameters", "rope_scaling"}) {
    const auto spec = parse(with(plain, {{key, nested}}));
    ASSERT_TRUE(spec.ok()) << messageOf(spec);
    EXPECT_EQ(spec->rope.theta, 500000.0);
    EXPECT_EQ(spec->rope.scaling, RopeScalingKind::Linear);
    EXPECT_EQ(spec->maxPositions, 262144);
  }
  EXPECT_EQ(parse(with(without(mistral03(), "rope_theta"), {{"rope_parameters", nested}}))->rope.theta, 500000.0);
  // Never ignored.
  expectRefused(with(plain, {{"rope_parameters", {{"sliding_attention", full}}}}),
                "rope_parameters.full_attention is missing: expected it: all layers are of that type");
  expectRefused(with(plain, {{"rope_parameters", {{"full_attention", full}, {"rope_theta", 1.0}}}}),
                "rope_parameters.rope_theta = 1.0: expected an object for each type of layer, as there is one");
  expectRefused(with(plain, {{"rope_parameters", {{"full_attention", {{"rope_type", "yarn"}}}}}}),
                "rope_parameters.full_attention.rope_type = \"yarn\": expected \"default\", \"linear\" or \"llama3\": "
                "other rope scaling is not supported");
  expectRefused(
      with(plain, {{"rope_parameters", nested}, {"use_sliding_window", true}, {"max_window_layers", 2}}),
      "rope_parameters.full_attention = {...}: expected one for all layers: rotary embedding by layer type is "
      "not supported where some layers slide");
}

TEST(HfConfig, RefusesOtherRopeScalingByName) {
  for (const char *type : {"yarn", "dynamic", "longrope", "su", "mrope"}) {
    expectRefused(with(llama31(), {{"rope_scaling", {{"rope_type", type}, {"factor", 2.0}}}}),
                  "rope_scaling.rope_type = \"" + std::string(type) +
                      "\": expected \"default\", \"linear\" or \"llama3\": other rope scaling is not supported");
    expectRefused(with(llama31(), {{"rope_scaling", {{"type", type}, {"factor", 2.0}}}}),
                  "rope_scaling.type = \"" + std::string(type) +
                      "\": expected \"default\", \"linear\" or \"llama3\": other rope scaling is not supported");
  }
  expectRefused(with(llama31(), {{"rope_scaling", {{"type", "mrope"}, {"rope_type", "default"}}}}),
                "rope_scaling.rope_type = \"default\": expected the same as type = \"mrope\"");
  expectRefused(with(llama31(), {{"rope_scaling", 2.0}}), "rope_scaling = 2.0: expected an object");
  expectRefused(with(llama31(), {{"rope_scaling", {{"rope_type", 3}}}}),
                "rope_scaling.rope_type = 3: expected a string");
}

TEST(HfConfig, RefusesImpossibleRopeScaling) {
  const json llama3 = llama31()["rope_scaling"];
  expectRefused(with(llama31(), {{"rope_scaling", {{"rope_type", "linear"}}}}),
                "rope_scaling.factor is missing: expected a finite number");
  expectRefused(with(llama31(), {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 0.5}}}}),
                "rope_scaling.factor = 0.5: expected a finite number of at least 1");
  expectRefused(with(llama31(), {{"rope_scaling", with(llama3, {{"low_freq_factor", 0}})}}),
                "rope_scaling.low_freq_factor = 0: expected a positive finite number");
  expectRefused(with(llama31(), {{"rope_scaling", with(llama3, {{"high_freq_factor", 1.0}})}}),
                "rope_scaling.high_freq_factor = 1.0: expected a number above low_freq_factor = 1");
  expectRefused(with(llama31(), {{"rope_scaling", without(llama3, "original_max_position_embeddings")}}),
                "rope_scaling.original_max_position_embeddings is missing: expected an integer from 1 to 2147483647");
  expectRefused(with(llama31(), {{"rope_theta", -1}}), "rope_theta = -1: expected a positive rope_theta");
  expectRefused(with(llama31(), {{"rope_theta", "big"}}), "rope_theta = \"big\": expected a finite number");
  expectRefused(with(llama31(), {{"partial_rotary_factor", 0.5}}),
                "partial_rotary_factor = 0.5: expected 1: partial rotary embedding is not supported");
  expectRefused(with(llama31(), {{"rope_scaling", {{"rope_type", "default"}, {"partial_rotary_factor", 0.25}}}}),
                "rope_scaling.partial_rotary_factor = 0.25: expected 1: partial rotary embedding is not supported");
  expectRefused(with(qwen25(), {{"use_mrope", true}}),
                "use_mrope = true: expected false: multimodal rotary embedding is not supported");
}

TEST(HfConfig, RefusesUnknownModelTypesByName) {
  expectRefused(with(llama31(), {{"model_type", "gemma2"}}),
                "model_type = \"gemma2\": expected opt, llama, qwen2, mistral or qwen3");
  expectRefused(without(llama31(), "model_type"),
                "model_type is missing: expected opt, llama, qwen2, mistral or qwen3");
  expectRefused(with(llama31(), {{"model_type", 7}}), "model_type = 7: expected a string");
}

TEST(HfConfig, RefusesMixtureOfExpertsByName) {
  expectRefused(with(llama31(), {{"model_type", "mixtral"}, {"num_local_experts", 8}}),
                "num_local_experts = 8: expected a dense model: mixture of experts is not supported");
  expectRefused(with(qwen25(), {{"num_experts", 60}}),
                "num_experts = 60: expected a dense model: mixture of experts is not supported");
  expectRefused(
      with(llama31(), {{"model_type", "mixtral"}}),
      "model_type = \"mixtral\": expected opt, llama, qwen2, mistral or qwen3: mixture of experts is not supported");
  expectRefused(
      with(qwen25(), {{"model_type", "qwen2_moe"}}),
      "model_type = \"qwen2_moe\": expected opt, llama, qwen2, mistral or qwen3: mixture of experts is not supported");
  EXPECT_TRUE(parse(with(llama31(), {{"num_local_experts", 0}})).ok());
}

TEST(HfConfig, RefusesQuantisedCheckpointsByMethod) {
  expectRefused(
      with(llama31(), {{"quantization_config", {{"quant_method", "gptq"}, {"bits", 4}}}}),
      "quantization_config.quant_method = \"gptq\": expected no quantization_config: quantised checkpoints are "
      "not supported");
  expectRefused(
      with(llama31(), {{"quantization_config", true}}),
      "quantization_config.quant_method = null: expected no quantization_config: quantised checkpoints are not "
      "supported");
}

TEST(HfConfig, AWindowThatHidesPartOfTheContextBoundsIt) {
  const auto longest = [](const json &config) { return parse(config)->longestContext(); };
  EXPECT_EQ(longest(with(mistral03(), {{"sliding_window", 4096}})), 4096); // Mistral-7B-v0.1
  EXPECT_EQ(longest(without(mistral03(), "sliding_window")), 4096);        // the default
  EXPECT_EQ(longest(mistral03()), 32768);
  EXPECT_EQ(longest(with(mistral03(), {{"sliding_window", 32768}})), 32768);
  EXPECT_FALSE(parse(with(mistral03(), {{"sliding_window", 4096}, {"max_position_embeddings", 4096}}))->window);
  expectRefused(with(mistral03(), {{"sliding_window", 0}}),
                "sliding_window = 0: expected an integer from 1 to 2147483647");
  EXPECT_EQ(longestContextText(*parse(with(mistral03(), {{"sliding_window", 4096}}))),
            "the sliding window of model, 4096 tokens (attention that does not see all of its context is not "
            "supported)");
  EXPECT_EQ(longestContextText(*parse(mistral03())), "the 32768 positions of model");
}

TEST(HfConfig, LetsAWindowStandThatIsNotInUse) {
  const json window = with(qwen25(), {{"sliding_window", 4096}});
  EXPECT_FALSE(parse(window)->window); // use_sliding_window is false
  const json used = with(window, {{"use_sliding_window", true}});
  EXPECT_FALSE(parse(used)->window); // from layer 28 on, there are 28
  EXPECT_EQ(parse(with(used, {{"max_window_layers", 20}}))->window, 4096);
  EXPECT_FALSE(parse(with(used, {{"max_window_layers", 20}, {"sliding_window", nullptr}}))->window);
  EXPECT_FALSE(parse(with(used, {{"max_window_layers", 20}, {"sliding_window", 131072}}))->window);
}

TEST(HfConfig, BelievesListedLayerTypes) {
  const json full = json::array({"full_attention", "full_attention"});
  const json mixed = json::array({"full_attention", "sliding_attention"});
  EXPECT_FALSE(parse(with(mistral03(), {{"sliding_window", 4096}, {"layer_types", full}}))->window);
  EXPECT_EQ(parse(with(mistral03(), {{"sliding_window", 4096}, {"layer_types", mixed}}))->window, 4096);
  expectRefused(with(llama31(), {{"layer_types", json::array({"chunked_attention"})}}),
                "layer_types has \"chunked_attention\": expected \"full_attention\": other kinds of attention are not "
                "supported");
  expectRefused(with(llama31(), {{"layer_types", "full_attention"}}),
                "layer_types = \"full_attention\": expected a list");
}

TEST(HfConfig, RefusesOptVariantsByName) {
  expectRefused(with(opt67(), {{"do_layer_norm_before", false}}),
                "do_layer_norm_before = false: expected true: post-layer-norm OPT is not supported");
  expectRefused(with(opt67(), {{"word_embed_proj_dim", 512}}),
                "word_embed_proj_dim = 512: expected hidden_size = 4096: projected embeddings are not supported");
  expectRefused(with(opt67(), {{"_remove_final_layer_norm", true}}),
                "_remove_final_layer_norm = true: expected false: OPT without its final layer norm is not supported");
  expectRefused(with(opt67(), {{"layer_norm_elementwise_affine", false}}),
                "layer_norm_elementwise_affine = false: expected true: layer norm without weights is not supported");
  expectRefused(with(opt67(), {{"activation_function", "silu"}}),
                "activation_function = \"silu\": expected \"relu\", \"gelu\", \"gelu_new\" or \"gelu_pytorch_tanh\"");
}

TEST(HfConfig, RefusesOtherActivationsByName) {
  expectRefused(with(llama31(), {{"hidden_act", "gelu"}}), "hidden_act = \"gelu\": expected \"silu\"");
}

TEST(HfConfig, RefusesContradictions) {
  expectRefused(with(llama31(), {{"num_attention_heads", 24}}),
                "num_attention_heads = 24: expected a divisor of hidden_size = 4096");
  expectRefused(with(llama31(), {{"num_key_value_heads", 5}}),
                "num_key_value_heads = 5: expected a divisor of num_attention_heads = 32");
  expectRefused(with(without(mistral03(), "num_key_value_heads"), {{"num_attention_heads", 4}}),
                "num_key_value_heads = 8 (the default): expected a divisor of num_attention_heads = 4");
  expectRefused(with(opt67(), {{"num_attention_heads", 33}}),
                "num_attention_heads = 33: expected a divisor of hidden_size = 4096");
  expectRefused(with(llama31(), {{"head_dim", 127}}),
                "head_dim = 127: expected an even number: rotary embedding turns pairs of elements");
  expectRefused(
      with(without(llama31(), "num_key_value_heads"), {{"hidden_size", 96}}),
      "head_dim = 3 (hidden_size / num_attention_heads): expected an even number: rotary embedding turns pairs "
      "of elements");
}

TEST(HfConfig, RefusesSizesThatAreNone) {
  for (const char *key : {"vocab_size", "hidden_size", "num_attention_heads", "intermediate_size",
                          "max_position_embeddings", "num_key_value_heads"}) {
    const std::string expected = ": expected an integer from 1 to 2147483647";
    expectRefused(with(llama31(), {{key, 0}}), std::string(key) + " = 0" + expected);
    expectRefused(with(llama31(), {{key, -5}}), std::string(key) + " = -5" + expected);
    expectRefused(with(llama31(), {{key, 2.5}}), std::string(key) + " = 2.5" + expected);
    expectRefused(with(llama31(), {{key, "8"}}), std::string(key) + " = \"8\"" + expected);
    expectRefused(with(llama31(), {{key, 18446744073709551615ull}}),
                  std::string(key) + " = 18446744073709551615" + expected);
  }
  expectRefused(with(llama31(), {{"num_hidden_layers", 100000}}),
                "num_hidden_layers = 100000: expected an integer from 1 to 2000");
  expectRefused(with(llama31(), {{"rms_norm_eps", 0}}), "rms_norm_eps = 0: expected a number above 0 and below 1");
  expectRefused(with(llama31(), {{"tie_word_embeddings", "no"}}),
                "tie_word_embeddings = \"no\": expected true or false");
}

TEST(HfConfig, RefusesProductsThatWouldOverflow) {
  expectRefused(
      with(llama31(),
           {{"vocab_size", 2147483647}, {"hidden_size", 1 << 30}, {"rope_scaling", nullptr}, {"head_dim", 2}}),
      "layers = 32, hidden = 1073741824, intermediate = 14336, vocab = 2147483647: expected weights of at most "
      "9007199254740992 bytes in all");
}

TEST(HfConfig, RefusesWhatIsNoJsonObject) {
  const auto parseText = [](const std::string &text) { return parseHfConfig(text, "config.json", "model"); };
  EXPECT_THAT(messageOf(parseText("")), testing::StartsWith("config.json: expected JSON: parse error at line 1"));
  EXPECT_THAT(messageOf(parseText("{\"a\": 1,}")), testing::StartsWith("config.json: expected JSON: parse error"));
  EXPECT_THAT(messageOf(parseText("{\"a\": \"\xff\"}")), testing::StartsWith("config.json: expected JSON: "));
  EXPECT_EQ(messageOf(parseText("[1]")), "config.json: [...]: expected an object");
  EXPECT_EQ(messageOf(parseText("{\"model_type\": \"llama\", \"model_type\": \"opt\"}")),
            "config.json: key \"model_type\" stands twice: expected each key once in an object");
  const std::string deep = std::string(100000, '[');
  EXPECT_EQ(messageOf(parseText("{\"a\": " + deep)), "config.json: expected JSON nested at most 64 deep");
}

TEST(HfFolder, ReadsTheConfigAndNamesTheModelAfterTheFolder) {
  const TempFolder folder;
  folder.write("tiny/config.json", llama31().dump());
  const auto read = readHfFolder(folder.file("tiny/"));
  ASSERT_TRUE(read.ok()) << messageOf(read);
  EXPECT_EQ(read->spec.name, "tiny");
  EXPECT_EQ(read->checkpoint, nullptr);
  EXPECT_FALSE(hasCheckpoint(folder.file("tiny")));
}

TEST(HfFolder, RefusesAFolderWithoutAConfig) {
  const TempFolder folder;
  EXPECT_REFUSED(readHfFolder(folder.path()), absl::StatusCode::kNotFound,
                 folder.file("config.json") + ": no such file");
}

TEST(HfFolder, ReadsTheGoldenModelsConfigs) {
  const std::string golden = sourceDir() + "/tests/golden/";
  const auto older = readHfFolder(golden + "legacy-config"); // as transformers 4 wrote it
  ASSERT_TRUE(older.ok()) << messageOf(older);
  EXPECT_EQ(older->spec.rope.scaling, RopeScalingKind::Llama3);
  EXPECT_EQ(older->spec.rope.theta, 150.0);
  EXPECT_EQ(older->spec.rope.originalMaxPositions, 16);
}

} // namespace
} // namespace headrace::model
