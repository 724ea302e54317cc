// SPDX-License-Identifier: Apache-2.0
//
// Model folders as people have them: golden models in other words or with other files beside them give the tokens that
// transformers gives; what is no such model is refused by what was found.
#include <cstring>

#include <gmock/gmock.h>

#include "absl/strings/str_join.h"
#include "tests/support/Process.h"
#include "tests/support/TestFiles.h"

namespace headrace::tools {
namespace {

using model::kLfsPointer;
using testing::HasSubstr;

// The header of a safetensors file changed, its data as it was.
void editHeader(const std::string &file, const std::function<void(nlohmann::json &)> &edit) {
  const std::string bytes = readFile(file);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  nlohmann::json header = nlohmann::json::parse(bytes.substr(sizeof(length), length));
  edit(header);
  writeText(file, model::safetensorsOf(header.dump(), bytes.substr(sizeof(length) + length)));
}

class Folders : public CommandLine {
protected:
  // Runs the reference's prompts on the folder, as far as `most` tokens, and expects its tokens.
  void givesTheTokensOf(const std::string &golden, const std::string &folder,
                        const std::vector<std::string> &flags = {}, size_t most = 64) const {
    const nlohmann::json expected = reference(golden);
    std::vector<std::string> prompts;
    for (const std::vector<int> prompt : expected["prompts"])
      prompts.push_back(absl::StrJoin(prompt, ","));
    nlohmann::json tokens = expected["tokens"];
    for (nlohmann::json &each : tokens)
      each.erase(each.begin() + static_cast<ptrdiff_t>(std::min(most, each.size())), each.end());
    std::vector<std::string> arguments = {"run",
                                          folder,
                                          "--hardware",
                                          "host",
                                          "--prompt-ids",
                                          absl::StrJoin(prompts, ";"),
                                          "--device",
                                          "host",
                                          "--max-new-tokens",
                                          std::to_string(most)};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    EXPECT_EQ(json(arguments)["tokens"], tokens);
  }
  void refusedByBoth(const std::string &model, const std::string &message) const {
    refused({"compile", model, "--batch", "1", "--context", "16", "-o", path("out.plan")}, 2, message);
    refused({"run", model, "--prompt-ids", "1,2", "--max-new-tokens", "2"}, 2, message);
  }
};

TEST_F(Folders, ATiedModelMayHoldItsHeadAlone) {
  for (const auto &[golden, table] : {std::pair("qwen2-7-tied-f32", "model.embed_tokens.weight"),
                                      {"opt-7-tied-f32", "model.decoder.embed_tokens.weight"}}) {
    SCOPED_TRACE(golden);
    const std::string copy = copyModel(golden);
    editHeader(copy + "/model.safetensors", [&](nlohmann::json &header) {
      header["lm_head.weight"] = header[table];
      header.erase(table);
      header["__metadata__"] = {{"format", "pt"}, {table, "lm_head.weight"}};
    });
    givesTheTokensOf(golden, copy, {}, 16);
    // Not where the two are of their own.
    editConfig(copy, {{"tie_word_embeddings", false}});
    refusedByBoth(copy, table);
    std::filesystem::remove_all(copy);
  }
}

TEST_F(Folders, FilesThatNothingNamesAreNobodys) {
  const char *golden = "llama-7-gqa-llama3-f32";
  const std::string copy = copyModel(golden), stray = copy + "/consolidated.safetensors";
  const std::string whole = readFile(copy + "/model.safetensors");
  json({"compile", copy, "--batch", "1", "--context", "16", "-o", path("before.plan")});
  for (const std::string &content : {std::string(kLfsPointer), whole.substr(0, whole.size() - 1000), std::string()}) {
    writeText(stray, content);
    givesTheTokensOf(golden, copy, {}, 4);
  }
  std::filesystem::remove(stray);
  std::filesystem::create_symlink("../blobs/gone", stray);
  givesTheTokensOf(golden, copy, {}, 4);
  // Nor is a plan of these weights of others because of them.
  json({"run", path("before.plan"), "--prompt-ids", "1", "--max-new-tokens", "2"});
}

TEST_F(Folders, MetadataMayBeNull) {
  const std::string copy = copyModel("llama-7-gqa-llama3-f32");
  editHeader(copy + "/model.safetensors", [](nlohmann::json &header) { header["__metadata__"] = nullptr; });
  givesTheTokensOf("llama-7-gqa-llama3-f32", copy, {}, 4);
}

TEST_F(Folders, ShardsAreReadWholeWhateverTheIndexLeavesOut) {
  const char *golden = "llama-12-tied-bias-bf16-sharded";
  const std::string copy = copyModel(golden), path = copy + "/model.safetensors.index.json";
  nlohmann::json index = nlohmann::json::parse(readFile(path));
  nlohmann::json &map = index["weight_map"];
  map.erase("model.layers.1.mlp.gate_proj.weight");
  ASSERT_NE(map["model.layers.0.mlp.up_proj.weight"], "model-00003-of-00003.safetensors");
  map["model.layers.0.mlp.up_proj.weight"] = "model-00003-of-00003.safetensors"; // it is in another
  writeText(path, index.dump());
  givesTheTokensOf(golden, copy, {}, 16);
}

TEST_F(Folders, BothSpellingsOfTheRotaryEmbeddingMayStandSideBySide) {
  const char *golden = "llama-7-gqa-llama3-f32";
  const std::string copy = copyModel(golden);
  nlohmann::json scaling = nlohmann::json::parse(readFile(copy + "/config.json"))["rope_parameters"];
  const nlohmann::json theta = scaling["rope_theta"];
  scaling.erase("rope_theta");
  editConfig(copy, {{"rope_scaling", scaling}, {"rope_theta", theta}});
  givesTheTokensOf(golden, copy, {}, 16);
  editConfig(copy, {{"rope_scaling", {{"factor", 2.0}}}});
  refusedByBoth(copy, "rope_parameters = {...}: expected no rope_scaling beside it, or the same");
}

TEST_F(Folders, RotaryParametersOfTheOneTypeOfLayerAreTaken) {
  const char *golden = "qwen2-7-tied-f32";
  const std::string copy = copyModel(golden);
  nlohmann::json config = nlohmann::json::parse(readFile(copy + "/config.json"));
  config["rope_parameters"] = {{"full_attention", config["rope_parameters"]},
                               {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 10000.0}}}};
  writeText(copy + "/config.json", config.dump());
  givesTheTokensOf(golden, copy, {}, 16);
}

TEST_F(Folders, LinearScalingReachesFactorTimesThePositions) {
  const char *golden = "llama-12-tied-bias-bf16-sharded"; // 120 positions, factor 4
  const std::string copy = copyModel(golden);
  editConfig(copy, {{"max_position_embeddings", 30}}); // its prompts of 33 tokens and 64 new ones are within 4 x 30
  givesTheTokensOf(golden, copy);
  refused({"run", copy, "--random-input-len", "80", "--max-new-tokens", "41"}, 2,
          "prompt 0 of 80 tokens with its 41 new tokens: expected at most the 120 positions of model");
}

TEST_F(Folders, AWindowBoundsTheContextOnly) {
  const char *golden = "mistral-12-head-dim-f32"; // 128 positions, prompts of 33 tokens
  const std::string copy = copyModel(golden);
  editConfig(copy, {{"sliding_window", 97}});
  givesTheTokensOf(golden, copy); // 97 tokens: as many as every layer sees
  const std::string window = "at most the sliding window of model, 97 tokens (attention that does not see all of its "
                             "context is not supported)";
  refused({"run", copy, "--random-input-len", "80", "--max-new-tokens", "18"}, 2, window);
  refused({"compile", copy, "--batch", "1", "--context", "98", "-o", path("out.plan")}, 2,
          "--context = 98: expected " + window);
  refused({"bench", copy, "--input-len", "80", "--output-len", "18", "--batches", "1"}, 2, window);
  // A plan is within it; without a context it is the window that is planned for.
  json({"compile", copy, "--batch", "1", "-o", path("out.plan")});
  refused({"run", path("out.plan"), "--random-input-len", "80", "--max-new-tokens", "18"}, 2, "97");
}

TEST_F(Folders, NumbersThatAreNotFiniteAreReadAsPythonWritesThem) {
  const char *golden = "llama-7-gqa-llama3-f32";
  const std::string copy = copyModel(golden);
  const std::string config = readFile(copy + "/config.json");
  const auto with = [&](const std::string &keys) {
    writeText(copy + "/config.json", "{" + keys + ", " + config.substr(config.find('{') + 1));
  };
  with("\"attn_temperature_tuning\": Infinity, \"x\": [NaN, -Infinity]");
  writeText(copy + "/generation_config.json", "{\"max_length\": Infinity, \"eos_token_id\": 2}");
  givesTheTokensOf(golden, copy, {}, 4);
  with("\"rope_theta\": Infinity");
  refusedByBoth(copy, "config.json: rope_theta = Infinity: expected a finite number");
}

TEST_F(Folders, AnAdapterBesideTheWeightsIsRefusedOrIgnoredBySayingSo) {
  const char *golden = "llama-7-gqa-llama3-f32";
  const std::string copy = copyModel(golden);
  writeText(copy + "/adapter_config.json", R"({"peft_type": "LORA", "base_model_name_or_path": "some/base"})");
  refusedByBoth(copy,
                "adapter_config.json: an adapter (LORA) of \"some/base\" beside the model: expected it merged "
                "into the weights (peft's merge_and_unload), or --ignore-adapter, which runs the model without it");
  givesTheTokensOf(golden, copy, {"--ignore-adapter"}, 4);
  const Outcome made =
      headrace({"compile", copy, "--batch", "1", "--context", "16", "--ignore-adapter", "-o", path("out.plan")});
  EXPECT_EQ(made.status, 0);
  const std::string note = "headrace: warning: " + copy +
                           ": the model runs without the adapter beside it, as "
                           "--ignore-adapter says";
  EXPECT_THAT(made.err, HasSubstr(note));
  refused({"run", path("out.plan"), "--prompt-ids", "1", "--max-new-tokens", "2"}, 2,
          "adapter_config.json: an adapter");
  const Outcome ran =
      headrace({"run", path("out.plan"), "--prompt-ids", "1", "--max-new-tokens", "2", "--ignore-adapter"});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr(note));
}

TEST_F(Folders, ModelsOfOtherTasksAreRefused) {
  const std::string copy = copyModel("qwen3-7-gqa-f32");
  for (const char *other : {"Qwen3ForSequenceClassification", "Qwen3Model"}) {
    editConfig(copy, {{"architectures", {other}}});
    refusedByBoth(copy, "architectures has \"" + std::string(other) + "\": expected \"Qwen3ForCausalLM\"");
  }
}

// In place of every file that is read.
TEST_F(Folders, GitLfsPointersAreRefusedAsSuch) {
  const auto refusesPointer = [&](const std::string &file, const std::vector<std::string> &arguments) {
    const std::string was = std::filesystem::exists(file) ? readFile(file) : "";
    writeText(file, kLfsPointer);
    refused(arguments, 2, file + ": a Git LFS pointer in place of the file: expected the file itself");
    was.empty() ? static_cast<void>(std::filesystem::remove(file)) : writeText(file, was);
  };
  const std::string chat = copyModel("text-models/llama-byte-fallback");
  for (const char *name :
       {"config.json", "model.safetensors", "generation_config.json", "tokenizer.json", "adapter_config.json"})
    refusesPointer(chat + "/" + name, {"run", chat, "--prompt", "the", "--max-new-tokens", "2"});
  writeText(path("talk.json"), R"([{"role": "user", "content": "the"}])");
  for (const char *name : {"chat_template.jinja", "tokenizer_config.json"})
    refusesPointer(chat + "/" + name, {"tokenize", chat, "--messages", path("talk.json")});
  std::filesystem::remove(chat + "/tokenizer.json");
  refusesPointer(chat + "/tokenizer.model", {"tokenize", chat, "the"});
  writeText(chat + "/merges.txt", "#version: 0.2\n");
  refusesPointer(chat + "/vocab.json", {"tokenize", chat, "the"});
  writeText(chat + "/vocab.json", R"({"t": 0})");
  refusesPointer(chat + "/merges.txt", {"tokenize", chat, "the"});
  std::filesystem::remove_all(chat);
  const std::string shards = copyModel("llama-12-tied-bias-bf16-sharded");
  for (const char *name : {"model.safetensors.index.json", "model-00002-of-00003.safetensors"})
    refusesPointer(shards + "/" + name, {"run", shards, "--prompt-ids", "1", "--max-new-tokens", "2"});
}

TEST_F(Folders, ALinkToNothingIsNotTakenForAFileThatIsNotThere) {
  const auto refusesLink = [&](const std::string &file, const std::vector<std::string> &arguments) {
    std::filesystem::remove(file);
    std::filesystem::create_symlink("../../blobs/1a2b", file);
    refused(arguments, 2, file + ": a link to \"../../blobs/1a2b\", which is not there");
    std::filesystem::remove(file);
  };
  writeText(path("talk.json"), R"([{"role": "user", "content": "the"}])");
  for (const char *name : {"model.safetensors", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
                           "config.json", "adapter_config.json"}) {
    const std::string chat = copyModel("text-models/llama-byte-fallback");
    refusesLink(chat + "/" + name, {"run", chat, "--messages", path("talk.json"), "--max-new-tokens", "2"});
    std::filesystem::remove_all(chat);
  }
  std::filesystem::create_symlink("gone", path("link"));
  refusedByBoth(path("link"), "link: a link to \"gone\", which is not there");
}

TEST_F(Folders, WhatIsThereInPlaceOfAModelIsSaid) {
  const std::string copy = copyModel("llama-7-gqa-llama3-f32");
  std::filesystem::rename(copy + "/model.safetensors", copy + "/pytorch_model.bin");
  refused({"run", copy, "--prompt-ids", "1,2", "--max-new-tokens", "2"}, 2,
          copy + ": no model.safetensors or model.safetensors.index.json; there is \"pytorch_model.bin\", weights of "
                 "PyTorch's own form: expected safetensors, which transformers writes of a model loaded from them "
                 "(save_pretrained); or --synthetic-weights SEED");
  std::filesystem::create_directory(path("other"));
  writeText(path("other/model.Q4_K_M.gguf"), "GGUF");
  refusedByBoth(path("other"), "config.json: no such file; there is \"model.Q4_K_M.gguf\", a model of llama.cpp: "
                               "expected a Hugging Face folder with safetensors, which it was made from");
  refusedByBoth(path("other/model.Q4_K_M.gguf"), "model.Q4_K_M.gguf: a model of llama.cpp: expected a Hugging Face");
  // A plan may have any name.
  json({"compile", copy, "--batch", "1", "--context", "16", "-o", path("plan.bin")});
  json({"simulate", path("plan.bin"), "--prompt-ids", "1", "--max-new-tokens", "2"});
  writeText(path("other/model.safetensors"), "x");
  refusedByBoth(path("other/model.safetensors"),
                "model.safetensors: a file of a model: expected its folder, " + path("other"));
}

} // namespace
} // namespace headrace::tools
