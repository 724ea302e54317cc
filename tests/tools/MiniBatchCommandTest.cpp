// SPDX-License-Identifier: Apache-2.0
//
// Layers that are passed for several mini-batches, as a user of the command line asks for them and hears of them.
#include <gmock/gmock.h>

#include <set>

#include "tests/support/Process.h"

namespace headrace::tools {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

constexpr const char *kModel = "llama-7-gqa-llama3-f32";

class MiniBatches : public CommandLine {
protected:
  static std::vector<std::string> arguments(const std::string &command, const std::vector<std::string> &more) {
    std::vector<std::string> all = {command, golden(kModel), "--hardware", "host", "--context", "64"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  static std::vector<std::string> compiled(const std::vector<std::string> &more) {
    std::vector<std::string> all = {"--batch", "8", "--interval", "1"};
    all.insert(all.end(), more.begin(), more.end());
    return arguments("compile", all);
  }
  // Exit 2 with the key or the flag, and what was expected.
  void expectUsage(const std::vector<std::string> &words, const std::string &expected) const {
    SCOPED_TRACE(expected);
    const Outcome o = headrace(words);
    EXPECT_EQ(o.status, 2) << o.err;
    EXPECT_THAT(o.err, HasSubstr(expected));
    EXPECT_EQ(o.out, "");
  }
};

TEST_F(MiniBatches, ThePlanHasThemAndSaysSo) {
  const std::string plan = path("four.plan");
  const Outcome o = headrace(compiled({"--mini-batches", "4", "-o", plan}));
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("mini-batches   4, each of up to 2 sequences with "));
  EXPECT_THAT(o.out, HasSubstr("2 tokens of 2 sequences at context 64 in each of 4 mini-batches: "));
  EXPECT_THAT(o.out, HasSubstr("Decode of 2 at context 64 in each of 4 mini-batches: "));
  EXPECT_THAT(o.out, HasSubstr(" --batch 8 --mini-batches 4 "));
  const Outcome inspected = headrace({"inspect", plan});
  EXPECT_EQ(inspected.status, 0) << inspected.err;
  EXPECT_THAT(inspected.out, HasSubstr("mini-batches     4, each of up to 2 sequences with "));
  EXPECT_THAT(inspected.out, HasSubstr("blocks of 16 tokens a layer and mini-batch, context up to 64"));
  const nlohmann::json four = json({"inspect", plan, "--json"});
  EXPECT_EQ(four["mini_batches"], 4);
  // The same plan by its own words.
  EXPECT_EQ(json(compiled({"--mini-batches", "4", "--dry-run", "--json"}))["variants"], four["variants"]);
  // Of one nobody is told.
  const Outcome one = headrace(compiled({"--dry-run"}));
  EXPECT_THAT(one.out, Not(HasSubstr("mini")));
}

TEST_F(MiniBatches, AutoFindsHowMany) {
  const std::vector<std::string> away = {"--kv-device-memory", "0B", "--dry-run"};
  std::vector<std::string> words = {"--mini-batches", "auto"};
  words.insert(words.end(), away.begin(), away.end());
  const Outcome o = headrace(compiled(words));
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr(". Mini-batches: the batch packs into 1; of those tried (1 "));
  EXPECT_THAT(o.out, Not(HasSubstr("--mini-batches auto")));
  writeText(path("auto.toml"), "[model]\npath = \"" + golden(kModel) +
                                   "\"\n[goal]\nbatch = 8\nmini_batches = \"auto\"\ncontext = 64\n"
                                   "kv_device_memory = \"0B\"\n[policy]\ninterval = 1\n");
  EXPECT_EQ(json({"compile", path("auto.toml"), "--hardware", "host", "--dry-run", "--json"})["variants"],
            json(compiled({"--mini-batches", "auto", "--kv-device-memory", "0B", "--dry-run", "--json"}))["variants"]);
}

// Batch 8 of context 64: 512 tokens of KV, 64 of them each of 8 mini-batches.
TEST_F(MiniBatches, AutoPassesOverWhatIsRuledOut) {
  const auto why = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--mini-batches", "auto", "--kv-device-memory", "0B", "--dry-run"});
    const Outcome o = headrace(compiled(more));
    EXPECT_EQ(o.status, 0) << o.err;
    return o.out;
  };
  EXPECT_THAT(why({"--new-tokens", "16,512"}), ContainsRegex("rules out 2, 4, 8 .buckets.new_tokens = 512: "));
  EXPECT_THAT(why({"--sequences", "8"}), ContainsRegex("rules out 2, 4, 8 .buckets.sequences = 8: "));
  EXPECT_THAT(why({"--kv-tokens", "64"}), ContainsRegex("rules out 2, 4, 8 .goal.kv_tokens = 64: "));
  expectUsage(compiled({"--mini-batches", "auto", "--new-tokens", "16,1024", "--dry-run"}),
              "--new-tokens = 1024: expected at most the 512 tokens that the KV cache holds");
}

TEST_F(MiniBatches, AutoRefusesWithTheLeastOfAll) {
  const auto least = [&](const std::string &count) {
    const Outcome o = headrace(
        compiled({"--mini-batches", count, "--kv-device-memory", "0B", "--device-memory", "64KiB", "--dry-run"}));
    EXPECT_EQ(o.status, 1) << o.out;
    const std::string said = "the minimum is ";
    const size_t at = o.err.find(said);
    return at == std::string::npos ? 0 : std::stoll(o.err.substr(at + said.size()));
  };
  const int64_t ofAny = std::min({least("1"), least("2"), least("4"), least("8")});
  EXPECT_GT(ofAny, 0);
  EXPECT_EQ(least("auto"), ofAny);
}

TEST_F(MiniBatches, ItIsAskedForInAJobFileAsWell) {
  writeText(path("job.toml"), "[model]\npath = \"" + golden(kModel) +
                                  "\"\n[goal]\nbatch = 8\nmini_batches = 4\ncontext = 64\n[policy]\ninterval = 1\n");
  const nlohmann::json file = json({"compile", path("job.toml"), "--hardware", "host", "--dry-run", "--json"});
  EXPECT_EQ(file["mini_batches"], 4);
  EXPECT_EQ(file["variants"], json(compiled({"--mini-batches", "4", "--dry-run", "--json"}))["variants"]);
}

TEST_F(MiniBatches, WhatCannotBeIsRefused) {
  const auto asked = [](const std::string &count, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"--mini-batches", count, "--dry-run"});
    return compiled(more);
  };
  const std::string range = "expected an integer from 1 to 64";
  expectUsage(asked("0"), "--mini-batches = 0: " + range);
  expectUsage(asked("65"), "--mini-batches = 65: " + range);
  expectUsage(asked("-1"), "--mini-batches = -1: " + range);
  expectUsage(asked("four"), "--mini-batches = \"four\": " + range);
  expectUsage(asked("2.5"), "--mini-batches = 2.5: " + range);
  expectUsage(asked("3"), "--mini-batches = 3: expected a divisor of the batch of 8");
  expectUsage(asked("16"), "--mini-batches = 16: expected a divisor of the batch of 8");
  expectUsage(asked("2", {"--kv-device-memory", "345KiB", "--kv-places", "14"}),
              "--kv-places = 14: expected less than the 7 layers of ");
  expectUsage(asked("2", {"--policy", "pie"}),
              "--policy = \"pie\" beside --mini-batches = 2: expected one of them: a layer's cache is swapped whole");
  expectUsage(asked("4", {"--kv-tokens", "100"}), "expected at least 4 sequences of context 64");
  writeText(path("job.toml"), "[model]\npath = \"" + golden(kModel) + "\"\n[goal]\nbatch = 8\nmini_batches = 65\n");
  expectUsage({"compile", path("job.toml"), "--dry-run"}, "job.toml:5: goal.mini_batches = 65: " + range);
  writeText(path("job.toml"), "[model]\npath = \"" + golden(kModel) + "\"\n[goal]\nbatch = 8\nmini_batches = \"4\"\n");
  expectUsage({"compile", path("job.toml"), "--dry-run"}, "job.toml:5: goal.mini_batches");
}

TEST_F(MiniBatches, WhatDoesNotFitNamesTheirResiduals) {
  const Outcome o = headrace(compiled({"--mini-batches", "4", "--device-memory", "64KiB", "--dry-run"}));
  EXPECT_EQ(o.status, 1);
  EXPECT_THAT(o.err, ContainsRegex("the minimum is [0-9]+ bytes .* of which residuals of 4 mini-batches "));
  EXPECT_THAT(o.err, HasSubstr(", or fewer mini-batches"));
}

// Seven prompts in four mini-batches of two: the tokens are those of a batch of one, and weights are read once an
// iteration.
TEST_F(MiniBatches, RunsGiveTheSameTokens) {
  const std::vector<std::string> asked = {"--prompt-ids", "1,2,3;4,5;6;7,8,9,10;11;12,13;14,15,16", "--max-new-tokens",
                                          "6", "--json"};
  const auto ran = [&](std::vector<std::string> more) {
    more.insert(more.end(), asked.begin(), asked.end());
    return json(arguments("run", more));
  };
  const nlohmann::json whole = ran({});
  const nlohmann::json four = ran({"--mini-batches", "4", "--interval", "1"});
  EXPECT_EQ(four["tokens"], whole["tokens"]);
  // A batch that is not stated becomes as many as the mini-batches hold.
  const nlohmann::json three = ran({"--mini-batches", "3", "--kv-device-memory", "0B", "--kv-write-back", "all"});
  EXPECT_EQ(three["tokens"], whole["tokens"]);
}

// Residuals that leave between layers: the same tokens, their bytes in both directions, and words for it.
TEST_F(MiniBatches, ResidualsMayLeaveBetweenLayers) {
  const std::vector<std::string> asked = {"--prompt-ids", "1,2,3;4,5;6;7,8,9,10", "--max-new-tokens", "6", "--json"};
  const auto ran = [&](std::vector<std::string> more) {
    more.insert(more.end(), asked.begin(), asked.end());
    return json(arguments("run", more));
  };
  const nlohmann::json whole = ran({});
  for (const char *count : {"1", "2", "4"})
    EXPECT_EQ(ran({"--mini-batches", count, "--interval", "1", "--residuals", "host"})["tokens"], whole["tokens"]);
  const std::string plan = path("leave.plan");
  const Outcome o = headrace(compiled({"--mini-batches", "4", "--residuals", "host", "-o", plan}));
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("residuals between layers"));
  EXPECT_THAT(o.out, HasSubstr(" --residuals host "));
  EXPECT_THAT(headrace({"inspect", plan}).out, HasSubstr("residuals between layers"));
  const Outcome small =
      headrace(compiled({"--mini-batches", "4", "--residuals", "host", "--device-memory", "64KiB", "--dry-run"}));
  EXPECT_EQ(small.status, 1);
  EXPECT_THAT(small.err, ContainsRegex("the minimum is [0-9]+ bytes .* of which slots of residuals "));
  EXPECT_THAT(headrace(compiled({"--mini-batches", "4", "--device-memory", "64KiB", "--dry-run"})).err,
              HasSubstr(", or residual streams that leave the device (residuals = \"host\")"));
  expectUsage(compiled({"--residuals", "disk", "--dry-run"}), "--residuals = \"disk\": expected device or host");
  expectUsage(compiled({"--residuals", "host", "--start-rule", "paper", "--dry-run"}),
              "--residuals = \"host\" beside --start-rule = \"paper\": expected start rule eager: ");
  expectUsage(compiled({"--residuals", "host", "--kv-device-memory", "345KiB", "--kv-places", "3", "--dry-run"}),
              "--kv-places = 3 beside --residuals = \"host\": expected one of them: residual streams stay where tails");
}

TEST_F(MiniBatches, TheTimelineSaysWhoseAStepIs) {
  const std::string plan = path("two.plan");
  ASSERT_EQ(headrace(compiled({"--mini-batches", "2", "--kv-device-memory", "0B", "-o", plan})).status, 0);
  const Outcome text = headrace({"timeline", plan, "--width", "400"});
  ASSERT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr(", in each of 2 mini-batches; "));
  for (const char *pass : {"L3.0", "L3.1", "L6.1"}) // with KV on h2d too; weights are no one's
    EXPECT_THAT(text.out, HasSubstr(pass));
  EXPECT_THAT(text.out, ContainsRegex("h2d +.*\\[L[0-9]="));
  EXPECT_THAT(text.out, HasSubstr("[L3.1==] those of mini-batch 1"));
  ASSERT_EQ(headrace({"timeline", plan, "--format", "svg", "-o", path("two.svg")}).status, 0);
  const std::string svg = readFile(path("two.svg"));
  for (const char *name : {">L3.1<", "L3.1 kv: ", "L3.0 attention: ", "L3 up: "})
    EXPECT_THAT(svg, HasSubstr(name));
  ASSERT_EQ(headrace({"timeline", plan, "--format", "json", "-o", path("two.json")}).status, 0);
  std::set<int> whose;
  const nlohmann::json drawn = nlohmann::json::parse(readFile(path("two.json")));
  for (const nlohmann::json &event : drawn["traceEvents"])
    if (event["args"].contains("mini_batch"))
      whose.insert(event["args"]["mini_batch"].get<int>());
  EXPECT_EQ(whose, (std::set<int>{0, 1}));
}

// What a run measured is read back, with what each mini-batch had in use.
TEST_F(MiniBatches, AMeasuredTimelineHasWhatEachHadInUse) {
  const std::string plan = path("two.plan"), trace = path("trace.json");
  ASSERT_EQ(headrace(compiled({"--mini-batches", "2", "--kv-device-memory", "0B", "-o", plan})).status, 0);
  const Outcome run = headrace({"run", plan, "--prompt-ids", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18",
                                "--max-new-tokens", "4", "--trace", trace});
  ASSERT_EQ(run.status, 0) << run.err;
  const nlohmann::json measured = nlohmann::json::parse(readFile(trace))["otherData"]["measured"];
  EXPECT_EQ(measured["kv_blocks_in_use"], (std::vector<int>{3, 1})); // the scratch block, and two of the one prompt
  const Outcome drawn = headrace({"timeline", plan, "--measured", trace});
  ASSERT_EQ(drawn.status, 0) << drawn.err;
  EXPECT_THAT(drawn.out, HasSubstr("the copies of KV are those of blocks below 3, 1 of 17, by mini-batch"));
}

TEST_F(MiniBatches, AFleetRefusesThem) {
  writeText(path("job.toml"), "[model]\npath = \"" + golden(kModel) +
                                  "\"\n[hardware]\nfile = \"host\"\n[goal]\nbatch = 2\nmini_batches = 2\n"
                                  "context = 32\nslo_factor = 4\n");
  writeText(path("fleet.toml"), "[bus]\nbandwidth = \"2GB/s\"\n[[device]]\nname = \"a\"\njob = \"job.toml\"\n"
                                "[[requests]]\nmodel = \"llama-7-gqa-llama3-f32\"\ncount = 1\nevery = \"1ms\"\n"
                                "batch = [1, 2]\ninput_len = 8\noutput_len = 6\nttft = \"30s\"\ntpot = \"1s\"\n");
  expectUsage({"fleet", path("fleet.toml")}, "2 mini-batches, expected 1: hand-over knows one range of KV blocks");
}

TEST_F(MiniBatches, BenchWantsBatchesThatTheyDivide) {
  const auto bench = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"--device", "sim", "--input-len", "8", "--output-len", "4", "--slo-factor", "4",
                               "--policies", "interval=1", "--mini-batches", "2"});
    return arguments("bench", more);
  };
  const Outcome o = headrace(bench({"--batches", "2,4"}));
  EXPECT_EQ(o.status, 0) << o.err;
  expectUsage(bench({"--batches", "3"}), "--batches = 3: expected a multiple of goal.mini_batches = 2");
  expectUsage(bench({"--fill"}), "--fill");
}

// Buckets are of as many as are found.
TEST_F(MiniBatches, BenchAndBenchServeFindThem) {
  const std::vector<std::string> bench = {"--device",       "sim",
                                          "--input-len",    "16",
                                          "--output-len",   "4",
                                          "--batches",      "8",
                                          "--policies",     "interval=1,hybridserve",
                                          "--instances",    "together",
                                          "--mini-batches", "auto",
                                          "--json"};
  const nlohmann::json rows = json(arguments("bench", bench))["rows"];
  ASSERT_EQ(rows.size(), 2U);
  for (const nlohmann::json &row : rows)
    EXPECT_GT(row["decode"]["samples"], 0) << row;
  // 4 seats of 64 tokens: an iteration of 256 rows leaves one mini-batch, of more none.
  const std::vector<std::string> serve = {"bench",
                                          "serve",
                                          golden(kModel),
                                          "--hardware",
                                          "host",
                                          "--device",
                                          "sim",
                                          "--batch",
                                          "4",
                                          "--context",
                                          "64",
                                          "--random-input-len",
                                          "16",
                                          "--random-output-len",
                                          "4",
                                          "--num-prompts",
                                          "8",
                                          "--request-rate",
                                          "inf",
                                          "--kv-device-memory",
                                          "0B",
                                          "--interval",
                                          "1"};
  const auto served = [&](std::vector<std::string> more) {
    more.insert(more.begin(), serve.begin(), serve.end());
    return headrace(more);
  };
  const Outcome found = served({"--mini-batches", "auto"});
  EXPECT_EQ(found.status, 0) << found.err;
  EXPECT_EQ(served({"--mini-batches", "auto", "--max-num-batched-tokens", "256"}).status, 0);
  const Outcome tooMany = served({"--mini-batches", "auto", "--max-num-batched-tokens", "257"});
  EXPECT_EQ(tooMany.status, 2);
  EXPECT_THAT(tooMany.err,
              HasSubstr("--max-num-batched-tokens = 257: expected at most 256, the tokens of batch 4 x context 64"));
}

// Interval 1 is the policy's own where nobody states another.
TEST_F(MiniBatches, WhySaysWhoseThePlacementIs) {
  const auto why = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"--batch", "8", "--policy", "hybridserve", "--dry-run"});
    return headrace(arguments("compile", more)).out;
  };
  EXPECT_THAT(why({}), HasSubstr("7 layers: as policy hybridserve has it; takes "));
  EXPECT_THAT(why({"--interval", "2"}), HasSubstr("7 layers: as asked for; takes "));
}

TEST_F(MiniBatches, BenchNamesTheFlagThatActivationsWant) {
  const std::vector<std::string> load = {"--device", "sim", "--input-len", "8", "--output-len", "4", "--batches", "2"};
  std::vector<std::string> named = load, shared = load;
  named.insert(named.end(), {"--policies", "hybridserve"});
  shared.insert(shared.end(), {"--policies", "interval=1", "--act-ratio", "1/2"});
  expectUsage(arguments("bench", named), "--policies \"hybridserve\": expected --instances together beside it");
  expectUsage(arguments("bench", shared),
              "--policies \"interval=1\" with --act-ratio: expected --instances together beside it");
}

} // namespace
} // namespace headrace::tools
