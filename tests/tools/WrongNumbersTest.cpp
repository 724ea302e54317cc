// SPDX-License-Identifier: Apache-2.0
//
// Checkpoints whose values are not numbers, or are another model's: what is refused, what is warned of, and what is
// never printed.
#include <cstring>

#include <gmock/gmock.h>

#include "runtime/base/HalfFloat.h"
#include "tests/support/Process.h"

namespace headrace::tools {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char *kLlama = "llama-7-gqa-llama3-f32", *kMistral = "mistral-7-gqa-f16", *kQwen = "qwen2-12-gqa-bf16";

// A model.safetensors, to be changed in place.
class Checkpoint {
public:
  explicit Checkpoint(const std::string &folder) : path_(folder + "/model.safetensors") {
    const std::string file = readFile(path_);
    uint64_t length = 0;
    std::memcpy(&length, file.data(), sizeof(length));
    header_ = nlohmann::json::parse(file.substr(8, length));
    data_ = file.substr(8 + length);
  }
  Checkpoint &put(const std::string &tensor, int64_t row, int64_t col, float value) {
    const auto &entry = header_.at(tensor);
    const auto cols = entry["shape"].size() > 1 ? entry["shape"][1].get<int64_t>() : 1;
    std::string bytes(4, '\0');
    std::memcpy(bytes.data(), &value, 4);
    if (entry["dtype"] != "F32") {
      const uint16_t half = entry["dtype"] == "F16" ? model::f32ToF16(value) : model::f32ToBf16(value);
      bytes.assign(reinterpret_cast<const char *>(&half), 2);
    }
    const size_t at = entry["data_offsets"][0].get<size_t>() + static_cast<size_t>(row * cols + col) * bytes.size();
    data_.replace(at, bytes.size(), bytes);
    return *this;
  }
  Checkpoint &add(const std::string &tensor, const nlohmann::json &like = nullptr) {
    std::string bytes(4, '\0');
    nlohmann::json entry = {{"dtype", "F32"}, {"shape", {1}}};
    if (!like.is_null()) {
      entry = header_.at(like.get<std::string>());
      const auto begin = entry["data_offsets"][0].get<size_t>();
      bytes = data_.substr(begin, entry["data_offsets"][1].get<size_t>() - begin);
    }
    entry["data_offsets"] = {data_.size(), data_.size() + bytes.size()};
    header_[tensor] = entry;
    data_ += bytes;
    return *this;
  }
  void write() const {
    std::string header = header_.dump();
    header.resize((header.size() + 7) / 8 * 8, ' ');
    const uint64_t length = header.size();
    writeText(path_, std::string(reinterpret_cast<const char *>(&length), 8) + header + data_);
  }

private:
  const std::string path_;
  nlohmann::json header_;
  std::string data_;
};

class WrongNumbers : public CommandLine {
protected:
  static Outcome run(const std::string &what, std::vector<std::string> more = {}) {
    std::vector<std::string> all = {"run", what, "--prompt-ids", "1,2,3;4,5", "--max-new-tokens", "4"};
    if (!what.ends_with(".plan")) // which has its hardware
      all.insert(all.end(), {"--hardware", "host"});
    all.insert(all.end(), more.begin(), more.end());
    return headrace(all);
  }
  std::string compiled(const std::string &model, std::vector<std::string> more = {}) const {
    std::vector<std::string> all = {"compile", model,       "--hardware", "host", "--batch",
                                    "2",       "--context", "16",         "-o",   path("out.plan")};
    all.insert(all.end(), more.begin(), more.end());
    const Outcome outcome = headrace(all);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return path("out.plan");
  }
  // The run fails and says this; it prints no tokens.
  static void fails(const Outcome &outcome, const std::string &step) {
    EXPECT_EQ(outcome.status, 1) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("headrace: error: prompt 0, position 3: the logits"));
    EXPECT_THAT(outcome.err, HasSubstr("the first step that made such numbers: " + step));
    EXPECT_THAT(outcome.out, Not(HasSubstr("tokens 0")));
  }
};

// A bias that makes a value of v 7e4, which F32 holds and no code does: its group of 64 is no number.
TEST_F(WrongNumbers, BeyondWhatAPackedCacheHoldsAreNamed) {
  const std::string copy = copyModel("qwen2-2-heads-64-bf16"); // 16 heads and 2 of keys: v's are columns 1152 to 1279
  Checkpoint(copy).put("model.layers.1.self_attn.v_proj.bias", 65, 0, 7e4f).write();
  EXPECT_EQ(run(copy).status, 0);
  for (const char *bits : {"q8", "q4"})
    fails(run(copy, {"--kv-dtype", bits}),
          std::string("layer 1, rope_append, at position 0, column 1216 (nan); a KV cache in ") + bits +
              " holds magnitudes up to 65504");
}

// One value of each type and of each kind of tensor: named as it is loaded, and the run ends where it is used.
TEST_F(WrongNumbers, InACheckpointAreNamedAndEndTheRun) {
  const struct {
    const char *model, *tensor;
    int64_t row, col;
    float value;
    const char *step;
  } cases[] = {
      {kLlama, "model.embed_tokens.weight", 2, 0, NAN, "embed embedding, at position 1, column 0 (nan)"},
      {kLlama, "model.layers.3.mlp.down_proj.weight", 5, 0, INFINITY, "layer 3, linear layers.3.down, at position 0"},
      {kLlama, "lm_head.weight", 7, 1, NAN, "linear head, at position 2, column 7 (nan)"},
      {kMistral, "model.embed_tokens.weight", 3, 4, -INFINITY, "embed embedding, at position 2, column 4 (-inf)"},
      {kMistral, "model.layers.6.post_attention_layernorm.weight", 9, 0, NAN,
       "layer 6, norm layers.6.up, at position 0"},
      {kQwen, "model.layers.11.self_attn.v_proj.bias", 1, 0, NAN, "layer 11, linear layers.11.qkv, at position 0"},
      {kQwen, "model.layers.0.self_attn.q_proj.weight", 1, 1, NAN, "layer 0, linear layers.0.qkv, at position 0"},
  };
  for (const auto &c : cases) {
    SCOPED_TRACE(c.tensor);
    const std::string copy = copyModel(c.model);
    Checkpoint(copy).put(c.tensor, c.row, c.col, c.value).write();
    const Outcome outcome = run(copy);
    fails(outcome, c.step);
    EXPECT_THAT(outcome.err, HasSubstr("headrace: warning: " + copy + "/model.safetensors: tensor \"" + c.tensor +
                                       "\": 1 value is not finite (NaN or infinite), the first at ["));
    std::filesystem::remove_all(copy);
  }
}

TEST_F(WrongNumbers, EndARunOfEveryKindOfPlan) {
  const std::string copy = copyModel(kLlama);
  Checkpoint(copy).put("model.layers.3.mlp.up_proj.weight", 0, 0, NAN).write();
  const std::string step = "layer 3, linear layers.3.up, at position 0";
  fails(run(copy, {"--offload-layers", "7"}), step);
  fails(run(compiled(copy), {"--temperature", "0.8", "--top-p", "0.5"}), step);
  fails(run(path("out.plan"), {"--separate-prefill", "--stop-ids", "9", "--json"}), step);
  const std::vector<std::string> before = files();
  fails(run(path("out.plan"), {"--logits", path("l.safetensors"), "--trace", path("t.json")}), step);
  EXPECT_EQ(files(), before); // no output of a run that failed
  const Outcome bench =
      headrace({"bench", copy, "--hardware", "host", "--policies", "none", "--batches", "2", "--input-len", "4",
                "--output-len", "3", "--rounds", "1", "--tpot", "10s", "--ttft", "10s"});
  EXPECT_EQ(bench.status, 1) << bench.err;
  EXPECT_THAT(bench.err, HasSubstr("linear layers.3.up"));
  // The sim device has no numbers.
  EXPECT_EQ(headrace({"simulate", path("out.plan"), "--prompt-ids", "1", "--max-new-tokens", "4"}).status, 0);
}

// Values that no prompt reads are warned of, and harm nobody.
TEST_F(WrongNumbers, ThatNothingReadsAreWarnedOf) {
  const std::string copy = copyModel(kMistral);
  Checkpoint(copy).put("model.embed_tokens.weight", 130, 0, NAN).put("model.embed_tokens.weight", 131, 0, NAN).write();
  const Outcome outcome = run(copy);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("\"model.embed_tokens.weight\": 2 values are not finite (NaN or infinite), the "
                                     "first at [130, 0]\n"));
}

// All weights are finite; keys of 60000 * 60000 are so in the F32 cache, and not in one of F16.
TEST_F(WrongNumbers, ThatComeOfAnOverflowEndTheRunWithoutAWarning) {
  const std::string copy = copyModel(kMistral);
  Checkpoint(copy)
      .put("model.layers.2.input_layernorm.weight", 7, 0, 60000)
      .put("model.layers.2.self_attn.k_proj.weight", 4, 7, 60000)
      .write();
  const Outcome wide = run(copy);
  EXPECT_EQ(wide.status, 0) << wide.err;
  const Outcome narrow = run(copy, {"--kv-dtype", "f16"});
  fails(narrow, "layer 2, rope_append, at position 0");
  EXPECT_THAT(narrow.err, Not(HasSubstr("warning")));
}

TEST_F(WrongNumbers, OfAFleetsRequestEndItAndTheCommand) {
  const std::string copy = copyModel("opt-7-tied-f32");
  Checkpoint(copy).put("model.decoder.layers.3.fc1.weight", 0, 0, NAN).write();
  writeText(path("job.toml"),
            "[model]\npath = \"model\"\n[hardware]\nfile = \"host\"\n[goal]\nbatch = 2\ncontext = 32\n"
            "slo_factor = 4\n");
  writeText(path("fleet.toml"),
            "[bus]\nbandwidth = \"2GB/s\"\n[[device]]\nname = \"a\"\njob = \"job.toml\"\n[[requests]]\nmodel = "
            "\"model\"\ncount = 2\nevery = \"1ms\"\nbatch = 1\ninput_len = 8\noutput_len = 6\nttft = \"30s\"\ntpot = "
            "\"10s\"\n");
  const Outcome o = headrace({"fleet", path("fleet.toml"), "--device", "host", "--each"});
  EXPECT_EQ(o.status, 1) << o.err;
  EXPECT_THAT(o.err, HasSubstr("request 0: prompt 0, position 8: the logits"));
  EXPECT_THAT(o.err, HasSubstr("layer 3, linear layers.3.up"));
  EXPECT_THAT(o.out, AllOf(HasSubstr("2 admitted, 0 refused"), HasSubstr("ended: prompt 0, position 8")));
}

TEST_F(WrongNumbers, TensorsThatNothingUsesAreNamed) {
  const std::string copy = copyModel(kLlama);
  Checkpoint(copy).add("score.weight").add("model.rotary_emb.inv_freq").write();
  const std::string note =
      "headrace: warning: " + copy + ": 1 tensor that no llama model of this config.json uses: score.weight\n";
  EXPECT_EQ(
      headrace({"compile", copy, "--hardware", "host", "--batch", "2", "--context", "16", "-o", path("out.plan")}).err,
      note);
  for (const std::string &what : {copy, path("out.plan")}) { // once, also where it is compiled on the way
    const Outcome outcome = run(what);
    EXPECT_EQ(outcome.status, 0);
    EXPECT_EQ(outcome.err, note);
  }
}

TEST_F(WrongNumbers, AConfigOfAnotherModelIsRefused) {
  const std::string copy = copyModel(kLlama);
  const auto refusedByBoth = [&](const std::string &message) {
    refused({"compile", copy, "--hardware", "host", "-o", path("out.plan")}, 2, message);
    refused({"run", copy, "--hardware", "host", "--prompt-ids", "1,2"}, 2, message);
  };
  editConfig(copy, {{"num_hidden_layers", 6}});
  refusedByBoth(copy + "/model.safetensors: tensor \"model.layers.6.input_layernorm.weight\": expected no layer beyond "
                       "5, as config.json says num_hidden_layers = 6; the checkpoint has layers 0 to 6");
  editConfig(copy, {{"num_hidden_layers", 7}, {"architectures", {"MistralForCausalLM"}}});
  refusedByBoth("config.json: architectures has \"MistralForCausalLM\": expected \"LlamaForCausalLM\"");
  editConfig(copy, {{"architectures", {"LlamaForCausalLM"}}, {"tie_word_embeddings", true}});
  refusedByBoth("tensor \"lm_head.weight\" differs in row 0 from model.embed_tokens.weight");
  std::filesystem::remove_all(copy);
  // A tied head that is stored all the same.
  const std::string tied = copyModel("qwen2-7-tied-f32");
  Checkpoint(tied).add("lm_head.weight", "model.embed_tokens.weight").write();
  EXPECT_EQ(run(tied).err, "");
}

TEST_F(WrongNumbers, VerifyWeightsComparesTheirValues) {
  const std::string copy = copyModel(kLlama);
  const std::string without = readFile(compiled(copy));
  const Outcome none = run(path("out.plan"), {"--verify-weights"});
  EXPECT_EQ(none.status, 2);
  EXPECT_THAT(none.err, HasSubstr("--verify-weights: the plan has no hash of its weights: expected one that was "
                                  "compiled with --verify-weights"));
  const std::string file = compiled(copy, {"--verify-weights"});
  EXPECT_NE(readFile(file), without);
  EXPECT_EQ(readFile(compiled(copy, {"--verify-weights"})), readFile(file));
  EXPECT_EQ(readFile(compiled(copy)), without); // and not otherwise
  compiled(copy, {"--verify-weights"});
  EXPECT_EQ(run(file, {"--verify-weights"}).status, 0);

  Checkpoint(copy).put("model.layers.4.mlp.gate_proj.weight", 3, 3, 0.5f).write();
  const Outcome other = run(file, {"--verify-weights"});
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, testing::ContainsRegex("model: layers.4.up: the weights' hash is [0-9a-f]{16}, expected the "
                                                "plan's [0-9a-f]{16}: these are not the values"));
  EXPECT_EQ(run(file).status, 0); // not asked for

  refused({"compile", "opt-6.7b", "--hardware", "a10", "--verify-weights", "-o", path("b.plan")}, 2,
          "has no weights: expected a model folder");
  refused({"run", file, "--prompt-ids", "1", "--max-new-tokens", "4", "--verify-weights", "--synthetic-weights", "1"},
          2, "--verify-weights beside --synthetic-weights");
  refused({"run", copy, "--hardware", "host", "--prompt-ids", "1", "--verify-weights"}, 2,
          "the plan has no hash of its weights");
}

} // namespace
} // namespace headrace::tools
