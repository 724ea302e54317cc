// SPDX-License-Identifier: Apache-2.0
//
// A model over several devices (compile --stages, run of what it writes), as a user of the command line has it.
#include <gmock/gmock.h>

#include "tests/support/Process.h"

namespace headrace::tools {
namespace {

using testing::HasSubstr;

constexpr const char *kModel = "llama-7-gqa-llama3-f32"; // of seven layers

class StagesCommand : public CommandLine {
protected:
  static std::vector<std::string> with(std::vector<std::string> words, const std::vector<std::string> &more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  std::vector<std::string> compile(const std::string &stages, const std::vector<std::string> &more = {}) const {
    return with(
        {"compile", golden(kModel), "--hardware", "host", "--batch", "4", "--context", "64", "--stages", stages}, more);
  }
  const std::string file = path("model.stages");
  const std::vector<std::string> prompts = {"--prompt-ids", "1,2,3;4,5,6,7,8;6;7,8,9,10", "--max-new-tokens", "12",
                                            "--json"};
};

TEST_F(StagesCommand, TokensAreThoseOfOneDevice) {
  const nlohmann::json one = json(with({"run", golden(kModel), "--hardware", "host"}, prompts));
  for (const std::vector<std::string> &more : {std::vector<std::string>{},
                                               {"--interval", "1"},
                                               {"--kv-device-memory", "0B", "--attention", "cpu"},
                                               {"--mini-batches", "2", "--residuals", "host"}}) {
    ASSERT_EQ(headrace(compile("3", with({"-o", file}, more))).status, 0);
    const nlohmann::json three = json(with({"run", file}, prompts));
    EXPECT_EQ(three["tokens"], one["tokens"]);
    EXPECT_EQ(three["stages"].size(), 3u);
    EXPECT_GT(three["h2d_bytes"], 0);
  }
  // In virtual time as well, where tokens are made up.
  EXPECT_EQ(json(with({"run", file, "--device", "sim"}, prompts))["stages"].size(), 3u);
}

TEST_F(StagesCommand, LogitsAreThoseOfOneDevice) {
  const auto logits = [&](const std::string &source, const std::string &to) {
    EXPECT_EQ(headrace(with({"run", source, "--logits", to}, prompts)).status, 0);
    return readFile(to);
  };
  ASSERT_EQ(headrace(compile("2", {"-o", file, "--interval", "2"})).status, 0);
  ASSERT_EQ(headrace({"compile", golden(kModel), "--hardware", "host", "--batch", "4", "--context", "64", "-o",
                      path("one.plan")})
                .status,
            0);
  EXPECT_EQ(logits(file, path("stages.safetensors")), logits(path("one.plan"), path("one.safetensors")));
}

// Requests that come at their times, with few KV blocks: all are served, on the host and in virtual time.
TEST_F(StagesCommand, ServesTraffic) {
  ASSERT_EQ(headrace(compile("3", {"-o", file, "--kv-tokens", "96"})).status, 0);
  for (const char *device : {"host", "sim"}) {
    const nlohmann::json served =
        json({"bench", "serve", file, "--device", device, "--num-prompts", "12", "--random-input-len", "20",
              "--random-output-len", "30", "--request-rate", "1000", "--json"});
    EXPECT_EQ(served["results"][0]["completed"], 12) << device;
    EXPECT_GT(served["results"][0]["preemptions"], 0);
    EXPECT_EQ(served["micro_batches"], 3);
    EXPECT_EQ(served["kv_blocks"], 6); // of 16 tokens
  }
}

// Chunks of prompts are as large as the plan's iterations with prompts; without any, prompts come a row at a time.
TEST_F(StagesCommand, PromptsComeInChunksThatPlansHave) {
  const nlohmann::json one = json(with({"run", golden(kModel), "--hardware", "host"}, prompts));
  for (const char *newTokens : {"1", "1,3", "1,2,3", "16"}) {
    ASSERT_EQ(headrace(compile("3", {"-o", file, "--new-tokens", newTokens})).status, 0);
    EXPECT_EQ(json(with({"run", file}, prompts))["tokens"], one["tokens"]) << newTokens;
    EXPECT_EQ(json(with({"run", file, "--max-num-seqs", "1"}, prompts))["micro_batches"], 1);
  }
}

TEST_F(StagesCommand, OneStageIsOnePlan) {
  ASSERT_EQ(headrace(compile("auto", {"-o", file})).status, 0);
  EXPECT_EQ(json(with({"run", file}, prompts))["tokens"], json(with({"run", path("model.0.plan")}, prompts))["tokens"]);
}

TEST_F(StagesCommand, OneFileNamesAPlanForEach) {
  const Outcome o = headrace(compile("2", {"-o", file}));
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("\nwhy            Cut by predicted time into "));
  EXPECT_THAT(o.out, HasSubstr("\n0      0 to 3 "));
  EXPECT_EQ(files(), (std::vector<std::string>{path("model.0.plan"), path("model.1.plan"), file}));
  EXPECT_THAT(readFile(file), HasSubstr("[[stage]]\nplan = \"model.1.plan\"\nlayers = \"4 to 6\"\n"));
  // Each is a plan as any other.
  EXPECT_EQ(headrace({"inspect", path("model.1.plan")}).status, 0);
  const std::map<std::string, std::string> before = contents();
  EXPECT_EQ(headrace(compile("2", {"-o", file})).status, 0); // the same, byte for byte
  EXPECT_EQ(contents(), before);
  EXPECT_EQ(json(compile("auto", {"--dry-run", "--json"}))["stages"].size(), 1u);
}

// 1,000 rows of 2,048 in F32 are 8,192,000 bytes: 1 ms at 8.192 GB/s, and 100 us at ten times that.
TEST_F(StagesCommand, APeerCopyIsPricedAndRefused) {
  const std::vector<std::string> words = {"compile",
                                          "tinyllama-1.1b",
                                          "--hardware",
                                          "a10",
                                          "--h2d-bandwidth",
                                          "8.192GB/s",
                                          "--stages",
                                          "2",
                                          "--d2h-bandwidth",
                                          "8.192GB/s",
                                          "--copy-latency",
                                          "0s",
                                          "--batch",
                                          "2",
                                          "--context",
                                          "1024",
                                          "--new-tokens",
                                          "1,1000",
                                          "--sequences",
                                          "2",
                                          "--policy",
                                          "none",
                                          "--peer-copies",
                                          "-o",
                                          file};
  refused(words, 2,
          "--peer-copies: a hop of the largest launch's 1000 rows is 7.81 MiB: by the host it takes 2.00 ms (d2h 1.00 "
          "ms + h2d 1.00 ms); what it would take from device to device nobody has said (a10 has no peer_bandwidth), "
          "and no GPU has shown a peer copy yet: expected no --peer-copies");
  refused(with(words, {"--peer-bandwidth", "81.92GB/s"}), 2,
          "--peer-copies: a hop of the largest launch's 1000 rows is 7.81 MiB: from device to device it would take 100 "
          "us (81.92GB/s), by the host it takes 2.00 ms (d2h 1.00 ms + h2d 1.00 ms); no GPU has shown a peer copy yet: "
          "expected no --peer-copies");
  EXPECT_EQ(files(), std::vector<std::string>{});
}

TEST_F(StagesCommand, RefusesWhatIsNone) {
  refused(compile("0", {"-o", file}), 2, "--stages = \"0\": expected a number of devices from 1 to 16, or auto");
  refused(compile("", {"-o", file}), 2, "--stages");
  refused(compile("two", {"-o", file}), 2, "--stages");
  refused(compile("8", {"-o", file}), 2, "stages: 8: expected 1 to 7, the layers of ");
  refused(compile("2", {"-o", file, "--dump-ir", folder}), 2, "--dump-ir beside --stages");
  refused(compile("2", {"--dry-run", "--explain"}), 2, "--explain beside --stages");
  refused({"compile", golden(kModel), "--hardware", "host", "--peer-copies", "--dry-run"}, 2,
          "--peer-copies: is of rows between stages: expected --stages beside it");
  ASSERT_EQ(headrace(compile("2", {"-o", file})).status, 0);
  const auto run = [&](const std::vector<std::string> &more = {}) {
    return with({"run", file, "--prompt-ids", "1,2"}, more);
  };
  refused(run({"--scheduler", "static"}), 2, "--scheduler static beside stages");
  refused(run({"--swap-space", "1GiB"}), 2, "--swap-space beside stages");
  refused(run({"--device", "sim", "--logits", path("l.safetensors")}), 1, "--logits: the sim device holds no data");
  refused({"bench", "serve", file, "--placement", "3"}, 2, "--placement = 3: expected one of the plan's 1, from 0");
  refused(run({"--placement", "3"}), 2, "--placement = 3: expected one of the plan's 1, from 0");
  refused({"bench", "serve", file, "--tpot", "5"}, 2, "--tpot beside the plan ");
  refused({"chat", file, "--placement", "3"}, 2, "--placement = 3: expected one of the plan's 1, from 0");
  refused(run({"--max-num-seqs", "9"}), 2, "--max-num-seqs = 9: expected 1 to 4, the plan's batch");
  refused(run({"--batch", "2"}), 2, "--batch beside the plan ");
  refused(run({"--repetition-penalty", "1.5"}), 2, "penalties beside stages: expected none");
  refused({"run", file, "--prompt-ids", "100000"}, 2, "100000");
  // A stage by itself, and stages where there is none yet.
  refused({"run", path("model.1.plan"), "--prompt-ids", "1,2"}, 2,
          "model.1.plan: a stage, layers 4 to 6 of 7: expected a plan of a whole model, or the file of stages");
  refused({"bench", "serve", path("model.1.plan")}, 2, "model.1.plan: a stage, layers 4 to 6 of 7: expected a plan");
  // A plan that is missing, and another model's in its place.
  const std::string second = readFile(path("model.1.plan"));
  writeText(file, "format = \"headrace stages\"\nversion = 1\n[[stage]]\nplan = \"model.0.plan\"\n");
  refused(run(), 2, "stage 1 is missing: layers 4 to 6 of ");
  writeText(file, "format = \"headrace stages\"\nversion = 1\n[[stage]]\nplan = \"model.0.plan\"\n[[stage]]\n");
  refused(run(), 2, "stage.plan is missing: expected a plan's file");
  writeText(file, "format = \"headrace stages\"\nversion = 2\n");
  refused(run(), 2, ":2: version = 2: expected ");
  ASSERT_EQ(headrace({"compile", golden(kModel), "--hardware", "host", "--batch", "4", "--context", "64", "--stages",
                      "2", "--kv-dtype", "f16", "-o", path("other.stages")})
                .status,
            0);
  writeText(file, "format = \"headrace stages\"\nversion = 1\n[[stage]]\nplan = \"model.0.plan\"\n[[stage]]\n"
                  "plan = \"other.1.plan\"\n");
  refused(run(), 2, "stage 1 has caches in f16, expected f32 as the first");
}

} // namespace
} // namespace headrace::tools
