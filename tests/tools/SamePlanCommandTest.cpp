// SPDX-License-Identifier: Apache-2.0
//
// For the same goal compile, run, simulate, bench and bench serve have the same plan, by its hash.
#include <gmock/gmock.h>

#include "tests/support/Process.h"

namespace headrace::tools {
namespace {

using Words = std::vector<std::string>;

class SamePlan : public CommandLine {
protected:
  static Words with(Words words, const Words &more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  static std::string hash(const Words &words) { return json(with(words, {"--json"}))["plan_hash"]; }
  static std::string compiled(const Words &words) { return hash(with(with({"compile"}, words), {"--dry-run"})); }
  // Of a command line that a report gives.
  static std::string compiledAs(const std::string &command) {
    const std::string name = "headrace ";
    EXPECT_EQ(command.substr(0, name.size()), name);
    const Outcome made = shell("\"$HEADRACE\" " + command.substr(name.size()) + " --allow-missed --dry-run --json");
    EXPECT_EQ(made.status, 0) << command << "\n" << made.err;
    return made.status == 0 ? nlohmann::json::parse(made.out)["plan_hash"] : "";
  }
  static nlohmann::json bench(const Words &words) {
    return json(with(with({"bench"}, words), {"--device", "sim", "--rounds", "1", "--json"}))["rows"];
  }
};

// 128 requests of 64 tokens and 8 more; what the device holds at the first does not fit at the second.
TEST_F(SamePlan, OfOneGoal) {
  for (const Words &goal :
       {Words{"opt-6.7b", "--hardware", "a10"}, Words{"opt-6.7b", "--hardware", "a10", "--device-memory", "15GiB"},
        Words{"opt-6.7b", "--hardware", "a10", "--tpot", "200ms"}}) {
    SCOPED_TRACE(goal.back());
    const std::string plan =
        compiled(with(goal, {"--batch", "128", "--context", "72", "--input-len", "64", "--output-len", "8"}));
    EXPECT_EQ(hash(with(with({"simulate"}, goal), {"--batch", "128", "--random-input-len", "64", "--num-prompts", "128",
                                                   "--max-new-tokens", "8"})),
              plan);
    const nlohmann::json row = bench(with(goal, {"--policies", "auto", "--batches", "128", "--input-len", "64",
                                                 "--output-len", "8", "--instances", "together"}))[0];
    EXPECT_EQ(row["prefill"]["plan_hash"], plan);
    EXPECT_EQ(row["decode"]["plan_hash"], plan);
    // Its KV cache is what memory is left, which here is all of it, or less.
    const std::string fitted = compiled(with(
        goal, {"--batch", "128", "--context", "72", "--input-len", "64", "--output-len", "8", "--kv-tokens", "auto"}));
    EXPECT_EQ(hash(with(with({"bench", "serve"}, goal), {"--device", "sim", "--random-input-len", "64",
                                                         "--random-output-len", "8", "--num-prompts", "128"})),
              fitted);
    EXPECT_EQ(fitted == plan, goal.back() != "15GiB");
  }
}

// Byte for byte, whether defaults are stated, and where.
TEST_F(SamePlan, OfAJobFileAndOfFlags) {
  writeText(path("job.toml"), "[model]\nshape = \"tinyllama-1.1b\"\n[hardware]\nfile = \"a10\"\n"
                              "[policy]\ninterval = 3\n[goal]\ncontext = 64\nbatch = 1\n");
  ASSERT_EQ(headrace({"compile", path("job.toml"), "-o", path("job.plan")}).status, 0);
  ASSERT_EQ(headrace({"compile", "tinyllama-1.1b", "--hardware", "a10", "--interval", "3", "--batch", "1", "--context",
                      "64", "--device-memory", "24GB", "--block-tokens", "16", "-o", path("flags.plan")})
                .status,
            0);
  EXPECT_TRUE(readFile(path("job.plan")) == readFile(path("flags.plan")));
}

TEST_F(SamePlan, OfARunOnTheHost) {
  const Words goal = {golden("opt-7-tied-f32"), "--hardware", "host", "--batch", "2", "--context", "24"};
  EXPECT_EQ(hash(with(with({"run"}, goal), {"--prompt-ids", "1,2,3,4,5;6,7,8", "--max-new-tokens", "4"})),
            compiled(goal));
}

// What is packed is found alike.
TEST_F(SamePlan, OfWhatMayBePacked) {
  const Words goal = {"tinyllama-1.1b", "--hardware",        "host", "--h2d-bandwidth", "1GB/s", "--device-memory",
                      "500MiB",         "--allow-quantized", "both"};
  const Words lengths = {"--batch", "4", "--context", "72", "--input-len", "64", "--output-len", "8"};
  const nlohmann::json made = json(with(with({"compile"}, with(goal, lengths)), {"--dry-run", "--json"}));
  const std::string plan = made["plan_hash"];
  EXPECT_EQ(made["model"]["weight_encoding"], "q4");
  EXPECT_EQ(compiledAs(made["command"]), plan); // which states what was found
  EXPECT_EQ(hash(with(with({"simulate"}, goal),
                      {"--batch", "4", "--random-input-len", "64", "--num-prompts", "4", "--max-new-tokens", "8"})),
            plan);
  const nlohmann::json row = bench(with(goal, {"--policies", "auto", "--batches", "4", "--input-len", "64",
                                               "--output-len", "8", "--instances", "together"}))[0];
  EXPECT_EQ(row["decode"]["plan_hash"], plan);
  EXPECT_EQ(compiledAs(row["decode"]["compiled"]), plan); // which asks for it again
  const nlohmann::json serve =
      json(with(with({"bench", "serve"}, goal), {"--device", "sim", "--random-input-len", "64", "--random-output-len",
                                                 "8", "--num-prompts", "4", "--json"}));
  EXPECT_EQ(serve["plan_hash"], compiled(with(goal, with(lengths, {"--kv-tokens", "auto"}))));
  const Words small = {golden("llama-2-heads-64-f16"),
                       "--hardware",
                       "host",
                       "--batch",
                       "2",
                       "--context",
                       "24",
                       "--allow-quantized",
                       "both"};
  EXPECT_EQ(hash(with(with({"run"}, small), {"--prompt-ids", "1,2,3,4,5;6,7,8", "--max-new-tokens", "4"})),
            compiled(small));
}

// What a bench asks for beyond the goal it says, and the compiler makes the same of that.
TEST_F(SamePlan, OfWhatABenchSaysThatItAskedFor) {
  for (const Words &how :
       {Words{"--slo-factor", "1.5"}, Words{"--tpot", "100ms", "--ttft", "2s", "--instances", "together"},
        Words{"--slo-factor", "1.5", "--instances", "together", "--max-num-batched-tokens", "512"},
        Words{"--tpot", "100ms", "--phase", "decode", "--fill"}}) {
    Words words = {"opt-6.7b",    "--hardware", "a10",          "--policies", "select-n,joint",
                   "--input-len", "64",         "--output-len", "8"};
    if (how.back() != "--fill")
      words = with(words, {"--batches", "16"});
    int ran = 0;
    for (const nlohmann::json &row : bench(with(words, how)))
      for (const char *phase : {"prefill", "decode"})
        if (!row[phase].is_null() && row[phase]["refused"].is_null()) {
          SCOPED_TRACE(row["policy"].get<std::string>() + " " + phase + " " + how.back());
          EXPECT_EQ(row[phase]["plan_hash"], compiledAs(row[phase]["compiled"]));
          ++ran;
        }
    EXPECT_GE(ran, 2);
  }
}

TEST_F(SamePlan, OfWhatABenchOfTrafficSaysThatItAskedFor) {
  for (const Words &how :
       {Words{"--dataset-name", "sharegpt", "--max-num-seqs", "64"},
        Words{"--no-chunked-prefill", "--random-input-len", "3000", "--max-num-seqs", "4"},
        Words{"--mini-batches", "auto", "--device-memory", "8GiB", "--max-num-seqs", "16"},
        Words{"--expansion", "1.5", "--max-num-seqs", "32"},
        Words{"--kv-tokens", "4096", "--max-num-seqs", "8", "--policy", "headrace", "--tpot", "1s"}}) {
    const nlohmann::json report = json(with(
        {"bench", "serve", "llama-3.1-8b", "--hardware", "rtx4090", "--device", "sim", "--num-prompts", "64", "--json"},
        how));
    SCOPED_TRACE(how.back() + ": " + report["compiled"].get<std::string>());
    EXPECT_EQ(report["plan_hash"], compiledAs(report["compiled"]));
  }
}

// The batch that is found serves as many as come.
TEST_F(SamePlan, OfTheBatchThatMakesTheMostTokens) {
  const Words goal = {"llama-3.1-8b", "--hardware", "rtx4090", "--device-memory", "18GB",      "--batch",
                      "16",           "--context",  "4096",    "--prefer",        "throughput"};
  const std::string plan = compiled(with(goal, {"--input-len", "3072", "--output-len", "1024"}));
  const nlohmann::json run = json(with(with({"simulate"}, goal), {"--random-input-len", "3072", "--num-prompts", "16",
                                                                  "--max-new-tokens", "1024", "--json"}));
  EXPECT_EQ(run["plan_hash"], plan);
  EXPECT_EQ(run["tokens"].size(), 16U);
  const nlohmann::json serve =
      json(with(with({"bench", "serve"}, goal), {"--device", "sim", "--random-input-len", "3072", "--random-output-len",
                                                 "1024", "--num-prompts", "16", "--json"}));
  EXPECT_EQ(serve["plan_hash"], plan);
  EXPECT_LT(serve["max_num_seqs"], 16);
  refused({"bench", "opt-6.7b", "--hardware", "a10", "--prefer", "throughput"}, 2, "--prefer throughput finds a batch");
}

} // namespace
} // namespace headrace::tools
