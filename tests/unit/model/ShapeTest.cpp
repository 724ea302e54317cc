// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/Shape.h"

#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"
#include "tests/support/SourceDir.h"
#include "tests/support/TestFiles.h"

namespace headrace::model {
namespace {

constexpr char kLlama[] = "family = \"llama\"\nlayers = 4\nhidden = 64\nheads = 8\nintermediate = 172\nvocab = 500\n"
                          "max_positions = 256\n";

TEST(Shape, FillsInWhatTheFamilyMeans) {
  const auto llama = parseShape(kLlama, "a/tiny.toml");
  ASSERT_TRUE(llama.ok()) << messageOf(llama);
  EXPECT_EQ(llama->name, "tiny");
  EXPECT_EQ(llama->kvHeads, 8);
  EXPECT_EQ(llama->headDim, 8);
  EXPECT_EQ(llama->dtype, DType::F16);
  EXPECT_EQ(llama->norm, NormKind::RmsNorm);
  EXPECT_EQ(llama->normEps, 1e-6);
  EXPECT_EQ(llama->activation, Activation::SiluGate);
  EXPECT_TRUE(llama->rope.enabled);
  EXPECT_EQ(llama->rope.theta, 10000.0);
  EXPECT_FALSE(llama->qkvBias || llama->outBias || llama->mlpBias || llama->tiedEmbeddings);

  const std::string sizes = std::string(kLlama).substr(16);
  const auto opt = parseShape("family = \"opt\"" + sizes, "tiny.toml");
  ASSERT_TRUE(opt.ok()) << messageOf(opt);
  EXPECT_EQ(opt->norm, NormKind::LayerNorm);
  EXPECT_EQ(opt->activation, Activation::Relu);
  EXPECT_TRUE(opt->qkvBias && opt->outBias && opt->mlpBias && opt->tiedEmbeddings && opt->learnedPositions);
  EXPECT_EQ(opt->positionOffset, 2);
  EXPECT_FALSE(opt->rope.enabled);

  const auto qwen = parseShape("family = \"qwen2\"" + sizes, "tiny.toml");
  ASSERT_TRUE(qwen.ok()) << messageOf(qwen);
  EXPECT_TRUE(qwen->qkvBias);
  EXPECT_FALSE(qwen->outBias);

  const auto qwen3 = parseShape("family = \"qwen3\"" + sizes, "tiny.toml");
  ASSERT_TRUE(qwen3.ok()) << messageOf(qwen3);
  EXPECT_TRUE(qwen3->qkNorm);
  EXPECT_FALSE(qwen3->qkvBias || llama->qkNorm || opt->qkNorm || qwen->qkNorm);
  EXPECT_FALSE(parseShape("family = \"qwen3\"\nqk_norm = false" + sizes, "tiny.toml")->qkNorm);
  EXPECT_TRUE(parseShape("family = \"llama\"\nqk_norm = true" + sizes, "tiny.toml")->qkNorm);
}

TEST(Shape, ReadsEveryKey) {
  const auto spec =
      parseShape("name = \"odd\"\nfamily = \"mistral\"\nlayers = 4\nhidden = 60\nheads = 8\nkv_heads = 2\n"
                 "head_dim = 16\nintermediate = 172\nvocab = 500\nmax_positions = 256\ndtype = \"bf16\"\n"
                 "norm = \"layernorm\"\nnorm_eps = 1e-4\nactivation = \"silu_gate\"\nqkv_bias = true\n"
                 "out_bias = true\nmlp_bias = true\ntied_embeddings = true\nlearned_positions = false\n"
                 "qk_norm = true\n"
                 "position_offset = 0\nrope_theta = 150\n"
                 "rope_scaling = { type = \"llama3\", factor = 8, low_freq_factor = 1.5, "
                 "high_freq_factor = 3.0, original_max_positions = 16 }\n",
                 "f");
  ASSERT_TRUE(spec.ok()) << messageOf(spec);
  EXPECT_EQ(spec->name, "odd");
  EXPECT_EQ(spec->family, Family::Mistral);
  EXPECT_EQ(spec->kvHeads, 2);
  EXPECT_EQ(spec->headDim, 16);
  EXPECT_EQ(spec->dtype, DType::BF16);
  EXPECT_EQ(spec->norm, NormKind::LayerNorm);
  EXPECT_EQ(spec->normEps, 1e-4);
  EXPECT_TRUE(spec->qkvBias && spec->outBias && spec->mlpBias && spec->tiedEmbeddings && spec->qkNorm);
  EXPECT_EQ(spec->rope.theta, 150.0);
  EXPECT_EQ(spec->rope.scaling, RopeScalingKind::Llama3);
  EXPECT_EQ(spec->rope.factor, 8.0);
  EXPECT_EQ(spec->rope.lowFreqFactor, 1.5);
  EXPECT_EQ(spec->rope.highFreqFactor, 3.0);
  EXPECT_EQ(spec->rope.originalMaxPositions, 16);
  const auto linear = parseShape(std::string(kLlama) + "[rope_scaling]\ntype = \"linear\"\nfactor = 2.0\n", "f");
  ASSERT_TRUE(linear.ok()) << messageOf(linear);
  EXPECT_EQ(linear->rope.scaling, RopeScalingKind::Linear);
}

TEST(Shape, RefusesBadKeysByFileAndLine) {
  const std::string base = kLlama; // 7 lines, the next is line 8
  const std::pair<std::string, std::string> refusals[] = {
      {base + "layer = 3\n",
       "f:8: layer: unknown key: expected one of activation, dtype, family, head_dim, heads, hidden, intermediate, "
       "kv_heads, layers, learned_positions, max_positions, mlp_bias, name, norm, norm_eps, out_bias, position_offset, "
       "qk_norm, qkv_bias, rope_scaling, rope_theta, tied_embeddings, vocab, weight_encoding; did you mean layers?"},
      {base + "kv_heads = 3\n", "f: kv_heads = 3: expected a divisor of heads = 8"},
      {base + "kv_heads = 0\n", "f:8: kv_heads = 0: expected an integer from 1 to 2147483647"},
      {base + "kv_heads = 2.5\n", "f:8: kv_heads = 2.5: expected an integer from 1 to 2147483647"},
      {base + "dtype = \"fp16\"\n", "f:8: dtype = \"fp16\": expected \"f32\", \"f16\" or \"bf16\""},
      {base + "norm = \"none\"\n", "f:8: norm = \"none\": expected \"layernorm\" or \"rmsnorm\""},
      {base + "norm_eps = \"small\"\n", "f:8: norm_eps = \"small\": expected a finite number"},
      {base + "norm_eps = inf\n", "f:8: norm_eps = inf: expected a finite number"},
      {base + "activation = \"tanh\"\n",
       "f:8: activation = \"tanh\": expected \"relu\", \"gelu\", \"gelu_tanh\" or \"silu_gate\""},
      {base + "activation = \"relu\"\n", "f: activation = relu: expected silu_gate in family llama"},
      {base + "qkv_bias = 1\n", "f:8: qkv_bias = 1: expected true or false"},
      {base + "name = 1\n", "f:8: name = 1: expected a string"},
      {base + "rope_scaling = 2\n", "f:8: rope_scaling = 2: expected a table"},
      {base + "rope_scaling = { factor = 2.0 }\n",
       "f:8: rope_scaling.type is missing: expected \"none\", \"linear\" or \"llama3\""},
      {base + "rope_scaling = { type = \"yarn\", factor = 2.0 }\n",
       "f:8: rope_scaling.type = \"yarn\": expected \"none\", \"linear\" or \"llama3\""},
      {base + "rope_scaling = { type = \"linear\" }\n", "f:8: rope_scaling.factor is missing: expected a number"},
      {base + "rope_scaling = { type = \"linear\", factor = 2.0, x = 1 }\n",
       "f:8: rope_scaling.x: unknown key: expected one of factor, type"},
      {base + "rope_scaling = { type = \"linear\", factor = 0.5 }\n",
       "f: rope_scaling.factor = 0.5: expected a finite number of at least 1"},
      {base + "heads = 8\n",
       "f:8: expected TOML: Error while parsing key-value pair: cannot redefine existing integer 'heads'"},
      {base + "vocab == 3\n", ""},
      {base + "position_offset = 2\n", "f: position_offset = 2: expected 0 in a model without learned positions"},
      {"layers = 4\n", "f:1: family is missing: expected \"opt\", \"llama\", \"qwen2\", \"mistral\" or \"qwen3\""},
      {"family = \"gemma\"\n",
       "f:1: family = \"gemma\": expected \"opt\", \"llama\", \"qwen2\", \"mistral\" or \"qwen3\""},
      {"family = \"llama\"\nlayers = 4\n", "f:1: hidden is missing: expected an integer from 1 to 2147483647"},
      {"family = \"llama\"\nlayers = 4\nhidden = 65\nheads = 8\nintermediate = 1\nvocab = 1\nmax_positions = 1\n",
       "f:4: heads = 8: expected a divisor of hidden = 65, or head_dim"},
      {"family = \"opt\"\nlayers = 4\nhidden = 64\nheads = 8\nintermediate = 1\nvocab = 1\nmax_positions = 1\n"
       "rope_theta = 1.0\n",
       "f:8: rope_theta = 1: expected no rotary embedding in family opt"},
  };
  for (const auto &[text, message] : refusals) {
    const auto refused = parseShape(text, "f");
    EXPECT_EQ(codeOf(refused), absl::StatusCode::kInvalidArgument) << text;
    if (message.empty())
      EXPECT_THAT(messageOf(refused), testing::StartsWith("f:8: expected TOML: ")) << text;
    else
      EXPECT_EQ(messageOf(refused), message);
  }
}

TEST(Shape, RefusesLettersOutsideStringsThatAreNotAscii) {
  // Between U+00A1 and U+0499, where toml++ 3.3 has undefined behaviour of its own.
  for (const char *text : {"fam\xC4\x81 = 1\n", "\xC3\xA9 = 1\n", "layers \xD0\xB6 = 1\n", "layers = 1 \xC4\x81\n"})
    EXPECT_THAT(messageOf(parseShape(text, "f")), testing::StartsWith("f:1: expected TOML: ")) << text;
}

TEST(Shape, RefusesTablesWithoutAName) {
  // "[=" breaks an assertion of toml++ 3.3 (in builds that have assertions).
  EXPECT_REFUSED(
      parseShape("[= 2", "f"), absl::StatusCode::kInvalidArgument,
      "f:1: expected TOML: Error while parsing key: expected bare key starting character or string delimiter, "
      "saw '='");
}

TEST(Shape, RefusesAMissingFile) {
  EXPECT_REFUSED(readShape("gone.toml"), absl::StatusCode::kNotFound, "gone.toml: no such file");
}

TEST(ShippedShapes, HaveTheNumberOfParametersOfTheirModelCards) {
  const std::pair<const char *, double> billions[] = {
      {"opt-6.7b", 6.658},         {"opt-13b", 12.853},     {"opt-30b", 29.975},     {"opt-66b", 65.720},
      {"llama-2-7b", 6.738},       {"llama-2-13b", 13.016}, {"llama-2-70b", 68.977}, {"llama-13b", 13.016},
      {"llama-30b", 32.529},       {"llama-65b", 65.286},   {"llama-3.1-8b", 8.030}, {"llama-3.1-70b", 70.554},
      {"llama-3.1-405b", 405.853}, {"qwen1.5-7b", 7.721},   {"qwen2.5-7b", 7.616},   {"qwen3-8b", 8.191},
      {"qwen3-32b", 32.762},
  };
  for (const auto &[name, expected] : billions) {
    const auto spec = readShape(sourceDir() + "/examples/models/" + name + ".toml");
    ASSERT_TRUE(spec.ok()) << messageOf(spec);
    EXPECT_EQ(spec->name, name);
    EXPECT_NEAR(static_cast<double>(parameterCount(layoutWeights(*spec))) / 1e9, expected, 0.0005) << name;
    EXPECT_EQ(spec->headDim, 128) << name; // true of every model in the list
  }
}

TEST(ShippedShapes, MatchTheirConfigs) {
  const auto read = [](const std::string &name) {
    return readShape(sourceDir() + "/examples/models/" + name + ".toml").value();
  };
  const ModelSpec llama = read("llama-3.1-405b");
  EXPECT_EQ(llama.layers, 126);
  EXPECT_EQ(llama.kvHeads, 8);
  EXPECT_EQ(llama.rope.scaling, RopeScalingKind::Llama3);
  EXPECT_EQ(llama.rope.factor, 8.0);
  EXPECT_EQ(llama.dtype, DType::BF16);
  EXPECT_EQ(read("llama-65b").normEps, 1e-5); // unlike the smaller first LLaMAs
  EXPECT_EQ(read("llama-30b").normEps, 1e-6);
  EXPECT_TRUE(read("qwen1.5-7b").qkvBias);
  EXPECT_EQ(read("opt-66b").heads, 72);
  EXPECT_EQ(read("llama-2-70b").maxPositions, 4096);
}

} // namespace
} // namespace headrace::model
