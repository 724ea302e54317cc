// SPDX-License-Identifier: Apache-2.0
//
// How many new tokens an iteration with prompts has at most follows from what is prompted, wherever a model is
// compiled. OPT-30B's weights take 60 GB, 2.4 s of a link of 25 GB/s; 128 prompts of 512 tokens compute for 54.4 s.
#include <gmock/gmock.h>

#include <sstream>

#include "tests/support/Process.h"

namespace headrace::tools {
namespace {

using testing::HasSubstr;

class LargestChunk : public CommandLine {
protected:
  using Words = std::vector<std::string>;

  void SetUp() override {
    writeText(path("slow-link.toml"),
              "name = \"slow-link\"\nkind = \"cuda\"\nmemory = \"48GB\"\nhost_memory = \"252GB\"\n"
              "flops_f32 = \"38.7TFLOP/s\"\nflops_f16 = \"155TFLOP/s\"\nmemory_bandwidth = \"768GB/s\"\n"
              "h2d_bandwidth = \"25GB/s\"\nd2h_bandwidth = \"25GB/s\"\nduplex_bandwidth = \"36GB/s\"\n"
              "copy_latency = \"10us\"\nlaunch_overhead = \"5us\"\nflops_efficiency = 0.5\n"
              "memory_efficiency = 0.8\nlink_efficiency = 1.0\n");
  }

  // All of KV on the host, and all layers.
  Words opt(Words command, const Words &more) const {
    const Words how = {"opt-30b", "--hardware", path("slow-link.toml"), "--interval", "1", "--kv-device-memory", "0B"};
    command.insert(command.end(), how.begin(), how.end());
    command.insert(command.end(), more.begin(), more.end());
    return command;
  }
};

// The weights pass eight times, not 32, and copies of them no longer limit it: 8 x 6.8 s and not 135.7 s to the last
// first token.
TEST_F(LargestChunk, ManyPromptsShareThePassesOfWeights) {
  const Words prompts = {"--batch",
                         "128",
                         "--context",
                         "544",
                         "--separate-prefill",
                         "--random-input-len",
                         "512",
                         "--num-prompts",
                         "128",
                         "--max-new-tokens",
                         "2",
                         "--json"};
  const nlohmann::json run = json(opt({"simulate"}, prompts));
  EXPECT_EQ(run["prefill_iterations"], 8);
  EXPECT_LE(run["first_token_ms"].back().get<double>(), 58'000);
  EXPECT_EQ(run["limited_by"]["prefill"]["resource"], "compute");
  Words usual = prompts;
  usual.insert(usual.end(), {"--new-tokens", "128,2048"});
  EXPECT_GE(json(opt({"simulate"}, usual))["first_token_ms"].back().get<double>(), 130'000);
}

// Of random lengths those, of a trace or a named distribution the mean; an engine's limit that is stated is the plan's.
TEST_F(LargestChunk, BenchServeServesThePlanOfWhatComes) {
  const auto tokens = [&](const Words &more) {
    Words words = {"--device", "sim", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const nlohmann::json run = json(opt({"bench", "serve"}, words));
    return run["max_num_batched_tokens"].get<int64_t>();
  };
  const Words random = {"--num-prompts", "128", "--random-input-len", "512", "--random-output-len", "4"};
  EXPECT_EQ(tokens(random), 8192);
  Words limited = random;
  limited.insert(limited.end(), {"--max-num-batched-tokens", "1024"});
  EXPECT_EQ(tokens(limited), 1024);
  EXPECT_EQ(tokens({"--num-prompts", "64", "--dataset-name", "alpaca"}), 2048); // 64 x some 19 tokens
  std::string trace;
  for (int i = 0; i < 128; ++i) // 256 and 768
    trace +=
        "{\"timestamp\": 0, \"input_length\": " + std::string(i % 2 == 0 ? "256" : "768") + ", \"output_length\": 4}\n";
  writeText(path("trace.jsonl"), trace);
  EXPECT_EQ(tokens({"--dataset-name", "trace", "--dataset-path", path("trace.jsonl")}), 8192);
  writeText(path("none.jsonl"), "{\"timestamp\": 0}\n");
  refused(opt({"bench", "serve"}, {"--device", "sim", "--dataset-name", "trace", "--dataset-path", path("none.jsonl")}),
          2, "none.jsonl: line 1: input_length is missing");
}

// With all weights away a layer's cache would span more than the 128 GiB that attention's kernel takes.
TEST_F(LargestChunk, WithoutAKernelForALargerOneTheUsualStays) {
  const nlohmann::json plan =
      json({"compile", "opt-30b", "--hardware", "h200", "--host-memory", "4TB", "--batch", "64", "--context", "2048",
            "--input-len", "1900", "--output-len", "100", "--dry-run", "--json"});
  EXPECT_THAT(plan["reason"].get<std::string>(), HasSubstr("1900 + 100 tokens, up to 2048 of prompts at a time"));
}

TEST_F(LargestChunk, WhatWasChosenStandsInTheFlagsThatLeadToThePlan) {
  const nlohmann::json first = json(opt({"compile"}, {"--batch", "128", "--context", "544", "--input-len", "512",
                                                      "--output-len", "2", "--dry-run", "--json"}));
  const auto command = first["command"].get<std::string>();
  EXPECT_THAT(command, HasSubstr(" --new-tokens 16,32,64,128,256,512,1024,2048,4096,8192"));
  std::istringstream words(command);
  Words again;
  for (std::string word; words >> word;)
    again.push_back(word);
  again.erase(again.begin()); // headrace
  again.insert(again.end(), {"--dry-run", "--json"});
  const nlohmann::json second = json(again);
  for (const char *key : {"arena_bytes", "host_bytes", "variants", "placements"})
    EXPECT_EQ(first[key], second[key]) << key;
}

} // namespace
} // namespace headrace::tools
