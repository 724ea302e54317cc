// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include <gmock/gmock.h>

#include "runtime/base/HalfFloat.h"
#include "tests/support/Process.h"

namespace headrace::tools {
namespace {

using testing::HasSubstr;

constexpr const char *kModel = "llama-2-heads-64-f16", *kIds = "1,2,3,4,5,6,7,8,9,10,11;90,80,70";

class Drift : public CommandLine {
protected:
  // 14 tokens; the output projection reads 1024 features, and is the one operand of this model that groups divide.
  static std::vector<std::string> drift(const std::string &model, std::vector<std::string> more) {
    std::vector<std::string> all = {"drift",  model,          "--hardware", "host", "--weight-encoding",
                                    "out=q4", "--prompt-ids", kIds};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  // A copy of the model whose output projections are multiples of 1/64 from -8 to 7, all of them in every group of 64
  // columns: lo = -8/64, hi = 7/64, scale = 1/64, so that packed in 4 bits they are what they were.
  std::string copyOfCodes() const {
    const std::string copy = copyModel(kModel), file = copy + "/model.safetensors";
    std::string bytes = readFile(file);
    uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof(length));
    const nlohmann::json header = nlohmann::json::parse(bytes.substr(8, length));
    int changed = 0;
    for (const auto &[name, tensor] : header.items()) {
      if (!name.ends_with("o_proj.weight"))
        continue;
      EXPECT_EQ(tensor["dtype"], "F16");
      const size_t first = 8 + length + tensor["data_offsets"][0].get<size_t>();
      const auto rows = tensor["shape"][0].get<size_t>(), columns = tensor["shape"][1].get<size_t>();
      for (size_t r = 0; r < rows; ++r)
        for (size_t c = 0; c < columns; ++c) {
          const auto code = static_cast<int>((7 * c + r) % 16);
          const uint16_t half = model::f32ToF16(static_cast<float>(code - 8) / 64);
          std::memcpy(bytes.data() + first + 2 * (r * columns + c), &half, sizeof(half));
        }
      ++changed;
    }
    EXPECT_EQ(changed, 2);
    writeText(file, bytes);
    return copy;
  }
};

TEST_F(Drift, IsTheSameWholeOrInChunksOnAnyThreads) {
  const std::string whole = headrace(drift(golden(kModel), {"--json", "--each"})).out;
  for (const char *rows : {"1", "3", "11"}) {
    const Outcome chunks = headrace(drift(golden(kModel), {"--json", "--each", "--max-num-batched-tokens", rows}));
    EXPECT_EQ(chunks.status, 0) << chunks.err;
    EXPECT_EQ(chunks.out, whole) << rows;
  }
  const Outcome away = headrace(drift(golden(kModel), {"--json", "--each", "--device-memory", "400KiB"}));
  EXPECT_EQ(away.status, 0) << away.err;
  EXPECT_EQ(away.out, whole);
  const auto j = nlohmann::json::parse(whole);
  EXPECT_EQ(j["prompts"], 2);
  EXPECT_EQ(j["positions"], 14);
  EXPECT_EQ(j["each"].size(), 14u);
  EXPECT_EQ(j["perplexity"]["tokens"], 12); // the last of each prompt predicts none
  EXPECT_EQ(j["packed"]["weights"], "out=q4");
  EXPECT_EQ(j["full_precision"]["weights"], "f16");
  EXPECT_EQ(j["packed"]["kv_dtype"], "f32");
  // Of 2 layers' out, [48, 1024] each: 2 bytes an element, and 36 bytes 64 of them.
  EXPECT_EQ(j["full_precision"]["weight_bytes"].get<int64_t>() - j["packed"]["weight_bytes"].get<int64_t>(),
            2 * 48 * 1024 * (64 * 2 - 36) / 64);
  EXPECT_GT(j["logit_error"]["mean"], 0);
  EXPECT_GT(j["kl"]["mean"], 0);
}

TEST_F(Drift, OfEightBitsIsLessThanOfFour) {
  const auto meanKl = [&](const char *encoding) {
    return json({"drift", golden(kModel), "--hardware", "host", "--prompt-ids", kIds, "--weight-encoding",
                 encoding})["kl"]["mean"]
        .get<double>();
  };
  EXPECT_LT(meanKl("out=q8"), meanKl("out=q4") / 10);
}

TEST_F(Drift, OfValuesThatCodesAreIsNothing) {
  const nlohmann::json j = json(drift(copyOfCodes(), {"--each"}));
  for (const nlohmann::json &at : j["each"]) {
    EXPECT_EQ(at["logit_error"]["largest"], 0);
    EXPECT_EQ(at["logit_error"]["mean"], 0);
    EXPECT_EQ(at["kl"], 0);
    EXPECT_EQ(at["same_first_token"], true);
  }
  EXPECT_EQ(j["logit_error"]["largest"], 0);
  EXPECT_EQ(j["first_token"]["share"], 1);
  EXPECT_EQ(j["perplexity"]["ratio"], 1);
  EXPECT_EQ(j["perplexity"]["packed"], j["perplexity"]["full"]);
}

// Keys and values in 16 bits drift as well, and by themselves.
TEST_F(Drift, CachesInOtherTypesDrift) {
  const nlohmann::json j =
      json({"drift", golden(kModel), "--hardware", "host", "--prompt-ids", kIds, "--kv-dtype", "bf16"});
  EXPECT_EQ(j["packed"]["weights"], j["full_precision"]["weights"]);
  EXPECT_EQ(j["packed"]["kv_dtype"], "bf16");
  EXPECT_EQ(j["full_precision"]["kv_dtype"], "f32");
  EXPECT_GT(j["kl"]["mean"], 0);
  EXPECT_EQ(
      json({"drift", golden(kModel), "--hardware", "host", "--prompt-ids", kIds, "--kv-dtype", "f32"})["kl"]["largest"],
      0);
}

TEST_F(Drift, TakesTextsAndDrawsAPicture) {
  const std::string model = golden("text-models/qwen3-chat");
  writeText(path("prompt.txt"), "The wheel turns, and the mill goes on.\n");
  const Outcome text = headrace({"drift", model, "--hardware", "host", "--weight-encoding", "out=q8:32",
                                 "--prompt-file", path("prompt.txt"), "--svg", path("drift.svg")});
  ASSERT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("\npacked           weights out=q8:32, "));
  EXPECT_THAT(text.out, HasSubstr(" of 1 prompt\n"));
  EXPECT_THAT(text.out, HasSubstr("\nperplexity       "));
  EXPECT_THAT(readFile(path("drift.svg")), HasSubstr(">KL, nats"));
}

TEST_F(Drift, RefusesByName) {
  const std::string model = golden(kModel);
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> all = {"drift", model, "--hardware", "host"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  refused(with({"--prompt-ids", "1,2"}), 2,
          "nothing is packed, so nothing drifts from full precision: expected "
          "--weight-encoding");
  refused(with({"--weight-encoding", "q3", "--prompt-ids", "1,2"}), 2,
          "--weight-encoding = \"q3\": expected q8 or q4, ");
  refused(with({"--weight-encoding", "q4", "--prompt-ids", "1,2"}), 2, "expected a group that divides the 48");
  refused(with({"--weight-encoding", "out=q4"}), 2, "no prompts: expected one of --prompt");
  refused(with({"--weight-encoding", "out=q4", "--prompt-ids", "1,2;3"}), 2,
          "prompt 1 of 1 token: expected at least 2, as logits are held against the token that follows");
  refused(with({"--weight-encoding", "out=q4", "--prompt-ids", "1,101"}), 2,
          "prompt 0: token id 101: expected ids below 101, the vocabulary");
  refused(with({"--weight-encoding", "out=q4", "--random-input-len", "601"}), 2,
          "--random-input-len: prompt 0 of 601 tokens: expected at most the 600 positions");
  refused(with({"--weight-encoding", "out=q4", "--prompt-ids", "1,2", "--max-num-batched-tokens", "0"}), 2,
          "--max-num-batched-tokens = \"0\": expected an integer from 1");
  refused(with({"--weight-encoding", "out=q4", "--prompt-ids", "1,2", "--svg", model + "/config.json"}), 2, "--svg = ");
  refused(with({"--weight-encoding", "out=q4", "--prompt-ids", "1,2", "--device", "sim"}), 1,
          "drift: the sim device holds no data: use --device host");
  refused({"drift", path("a.plan"), "--prompt-ids", "1,2"}, 2,
          "a plan, which holds its model one way: expected a model, or a job file");
  refused({"drift", "opt-6.7b", "--hardware", "host", "--weight-encoding", "q4", "--prompt-ids", "1,2"}, 2,
          "a shape has no weights: expected --synthetic-weights SEED");
}

} // namespace
} // namespace headrace::tools
