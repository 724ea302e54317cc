// SPDX-License-Identifier: Apache-2.0
//
// Model folders that are damaged, lie, or are of models that are not supported: refused by file, key and what was
// expected, by compile and by run alike.
#include <cstring>

#include <gmock/gmock.h>

#include "tests/support/Process.h"

namespace headrace::tools {
namespace {

using testing::HasSubstr;

class BadModel : public CommandLine {
protected:
  void refusedByBoth(const std::string &model, const std::string &message) const {
    refused({"compile", model, "--hardware", "host", "--batch", "1", "--context", "16", "-o", path("out.plan")}, 2,
            message);
    refused({"run", model, "--hardware", "host", "--prompt-ids", "1,2", "--max-new-tokens", "2"}, 2, message);
  }
  // A copy of the model with config.json changed is refused with this message.
  void config(const char *model, const nlohmann::json &patch, const std::string &message) {
    const std::string copy = copyModel(model);
    editConfig(copy, patch);
    SCOPED_TRACE(patch.dump());
    refusedByBoth(copy, message);
    std::filesystem::remove_all(copy);
  }
  // The same with the bytes of model.safetensors.
  void weights(const std::function<void(std::string &)> &damage, const std::string &message) {
    const std::string copy = copyModel("llama-7-gqa-llama3-f32");
    std::string bytes = readFile(copy + "/model.safetensors");
    damage(bytes);
    writeText(copy + "/model.safetensors", bytes);
    refusedByBoth(copy, message);
    std::filesystem::remove_all(copy);
  }
};

void replace(std::string &text, const std::string &from, const std::string &to) {
  const size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
}

TEST_F(BadModel, MissingPieces) {
  refusedByBoth(path("nothing"), path("nothing"));
  std::filesystem::create_directory(path("empty"));
  refusedByBoth(path("empty"), "config.json");
  writeText(path("file"), "x");
  refused({"compile", path("file"), "--hardware", "host", "--dry-run"}, 2, path("file"));
}

TEST_F(BadModel, ConfigsThatAreNoJson) {
  const std::string copy = copyModel("llama-7-gqa-llama3-f32");
  for (const char *text : {"", "{", "[]", "\"config\"", "{\"model_type\": }"}) {
    SCOPED_TRACE(text);
    writeText(copy + "/config.json", text);
    refusedByBoth(copy, copy + "/config.json");
  }
}

TEST_F(BadModel, ModelsThatAreNotSupported) {
  const char *llama = "llama-7-gqa-llama3-f32";
  config(llama, {{"model_type", "gpt2"}}, "gpt2");
  config(llama, {{"model_type", nullptr}}, "model_type");
  config(llama, {{"num_local_experts", 8}}, "num_local_experts");
  config("opt-7-tied-f32", {{"do_layer_norm_before", false}}, "do_layer_norm_before");
}

TEST_F(BadModel, SizesThatMakeNoSense) {
  const char *llama = "llama-7-gqa-llama3-f32";
  config(llama, {{"hidden_size", 0}}, "hidden_size = 0");
  config(llama, {{"hidden_size", -64}}, "hidden_size = -64");
  config(llama, {{"num_hidden_layers", 0}}, "num_hidden_layers = 0");
  config(llama, {{"vocab_size", -1}}, "vocab_size = -1");
  config(llama, {{"vocab_size", "many"}}, "vocab_size");
  config(llama, {{"num_key_value_heads", 3}}, "num_key_value_heads");
  config(llama, {{"intermediate_size", 9000000000000000000}}, "intermediate_size");
  config(llama, {{"hidden_size", 2147483647}, {"intermediate_size", 2147483647}, {"vocab_size", 2147483647}},
         "intermediate = 2147483647: expected at most");
  config(llama, {{"rms_norm_eps", -1}}, "rms_norm_eps");
}

TEST_F(BadModel, ConfigsThatContradictTheWeights) {
  const char *llama = "llama-7-gqa-llama3-f32";
  config(llama, {{"num_hidden_layers", 8}}, "layers.7");
  config(llama, {{"vocab_size", 7}}, "embed_tokens");
}

TEST_F(BadModel, TruncatedWeights) {
  weights([](std::string &b) { b.clear(); }, "model.safetensors");
  weights([](std::string &b) { b.resize(4); }, "model.safetensors");
  weights([](std::string &b) { b.resize(100); }, "model.safetensors");
  weights([](std::string &b) { b.resize(b.size() - 1); }, "model.safetensors");
  weights([](std::string &b) { b += '\0'; }, "model.safetensors");
}

TEST_F(BadModel, WeightsThatLie) {
  weights(
      [](std::string &b) {
        const uint64_t length = ~uint64_t{0};
        std::memcpy(b.data(), &length, 8);
      },
      "model.safetensors");
  weights([](std::string &b) { replace(b, "\"data_offsets\":[0,", "\"data_offsets\":[1,"); }, "model.safetensors");
  weights([](std::string &b) { replace(b, "\"F32\"", "\"F33\""); }, "model.safetensors");
  weights([](std::string &b) { replace(b, "\"F32\"", "\"I32\""); }, "model.safetensors");
  weights([](std::string &b) { replace(b, "lm_head", "lm_tail"); }, "lm_head");
}

TEST_F(BadModel, ShapesThatMakeNoSense) {
  const std::string shape =
      "family = \"llama\"\nlayers = 2\nhidden = 64\nheads = 4\nintermediate = 128\nvocab = 100\nmax_positions = 64\n";
  const auto bad = [&](const std::string &from, const std::string &to, const std::string &message) {
    std::string text = shape;
    replace(text, from, to);
    writeText(path("shape.toml"), text);
    refused({"compile", path("shape.toml"), "--hardware", "host", "-o", path("out.plan")}, 2, message);
  };
  bad("layers = 2", "layers = 0", path("shape.toml") + ":2: layers = 0: expected");
  bad("hidden = 64", "hidden = -64", "hidden = -64: expected");
  bad("hidden = 64", "hiden = 64", "hidden is missing");
  bad("vocab = 100", "vocab = 100\ncolour = 3", "colour");
  bad("heads = 4", "heads = 3", "heads = 3: expected a divisor of hidden");
  bad("intermediate = 128", "intermediate = 99999999999", "intermediate");
  writeText(path("shape.toml"), shape);
  EXPECT_EQ(headrace({"compile", path("shape.toml"), "--hardware", "host", "--dry-run"}).status, 0);
}

TEST_F(BadModel, OverflowingProductsOfDimensionsAreRefused) {
  refused({"compile", "tinyllama-1.1b", "--layers", "10000", "--hardware", "a10", "--dry-run"}, 2,
          "--layers = 10000: expected an integer from 1 to 2000");
  refused({"compile", "--family", "llama", "--layers", "100000", "--hidden", "2147483647", "--heads", "1",
           "--intermediate", "2147483647", "--vocab", "2147483647", "--max-positions", "1024", "--dry-run"},
          2, "expected");
  // Sizes that can be counted, but that nothing could hold: not bad input, but it cannot be met.
  refused(
      {"compile", "opt-6.7b", "--hardware", "a10", "--batch", "1048576", "--context", "2048", "-o", path("out.plan")},
      1, "minimum");
}

} // namespace
} // namespace headrace::tools
