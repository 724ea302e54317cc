// SPDX-License-Identifier: Apache-2.0
//
// Activation blocks, as a user of the command line asks for them and hears of them.
#include <gmock/gmock.h>

#include <algorithm>

#include "tests/support/Process.h"

namespace headrace::tools {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

constexpr const char *kOpt = "opt-12-gelu-f16"; // as many key heads as query heads
constexpr const char *kGrouped = "llama-12-tied-bias-bf16-sharded";

class ActBlocks : public CommandLine {
protected:
  static std::vector<std::string> compiled(const std::string &model, const std::vector<std::string> &more) {
    std::vector<std::string> all = {"compile", golden(model), "--hardware", "host", "--context", "64", "--batch", "4"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  void expectUsage(const std::vector<std::string> &more, const std::string &expected) const {
    SCOPED_TRACE(expected);
    std::vector<std::string> words = compiled(kOpt, more);
    words.emplace_back("--dry-run");
    const Outcome o = headrace(words);
    EXPECT_EQ(o.status, 2) << o.err;
    EXPECT_THAT(o.err, HasSubstr(expected));
    EXPECT_EQ(o.out, "");
  }
};

TEST_F(ActBlocks, ThePlanHasThemAndSaysSo) {
  const std::string plan = path("half.plan");
  const Outcome o = headrace(compiled(kOpt, {"--act-ratio", "1/2", "-o", plan}));
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_EQ(o.err, "");
  EXPECT_THAT(o.out,
              HasSubstr("activations    f32, 8 blocks of 16 tokens a layer, on the device, 1/2 of each sequence's: "));
  EXPECT_THAT(o.out, HasSubstr(" --act-ratio 1/2 "));
  const Outcome inspected = headrace({"inspect", plan});
  EXPECT_EQ(inspected.status, 0) << inspected.err;
  // 4 sequences of 4 blocks, two of each kind, and the scratch block.
  EXPECT_THAT(inspected.out, HasSubstr("KV cache         f32, 9 blocks of 16 tokens a layer, context up to 64"));
  EXPECT_THAT(inspected.out, HasSubstr("activations      f32, 8 blocks of 16 tokens a layer, on the device, "));
  const nlohmann::json half = json({"inspect", plan, "--json"});
  EXPECT_EQ(half["kv_blocks"], 9);
  EXPECT_EQ(half["act_blocks"], 8);
  EXPECT_EQ(half["act_ratio"], "1/2");
  EXPECT_EQ(half["act_layers_on_host"], 0);
  // In a job file, and on the host.
  writeText(path("job.toml"),
            "[model]\npath = \"" + golden(kOpt) +
                "\"\n[goal]\nbatch = 4\ncontext = 64\n[policy]\nact_ratio = 0.5\nact_home = \"host\"\n");
  const Outcome host = headrace({"compile", path("job.toml"), "--hardware", "host", "-o", path("host.plan")});
  ASSERT_EQ(host.status, 0) << host.err;
  EXPECT_THAT(host.out, HasSubstr("8 blocks of 16 tokens a layer, on the host, 1/2"));
  EXPECT_THAT(host.out, HasSubstr(" --act-ratio 1/2 --act-home host "));
  // Nobody is told of none.
  EXPECT_THAT(headrace(compiled(kOpt, {"--dry-run"})).out, Not(HasSubstr("activations    ")));
}

TEST_F(ActBlocks, TokensAreTheSame) {
  const auto tokens = [&](const std::vector<std::string> &more) {
    std::vector<std::string> words = {
        "run",          golden(kOpt),      "--hardware",     "host", "--context",        "64",
        "--prompt-ids", "1,2,3,4,5,6,7;9", "--block-tokens", "4",    "--max-new-tokens", "24"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome o = headrace(words);
    EXPECT_EQ(o.status, 0) << o.err;
    const size_t at = o.out.find("tokens 0");
    return o.out.substr(at, o.out.find("device ", at) - at);
  };
  const std::string expected = tokens({});
  EXPECT_THAT(expected, HasSubstr("tokens 1"));
  for (const char *ratio : {"0", "1/3", "0.5", "1"})
    for (const char *home : {"device", "host", "auto"})
      EXPECT_EQ(tokens({"--act-ratio", ratio, "--act-home", home}), expected) << ratio << " " << home;
}

TEST_F(ActBlocks, AutoSaysWhatAlgorithm1AndThePlansSay) {
  const Outcome o = headrace(compiled(kOpt, {"--policy", "interval", "--act-ratio", "auto", "--dry-run"}));
  ASSERT_EQ(o.status, 0) << o.err;
  // All fits on the device: nothing is saved that anybody waits for.
  EXPECT_THAT(o.out, HasSubstr("Activation blocks: the share of 0 takes the least of "));
  EXPECT_THAT(o.out, HasSubstr(": compute is the longer. Algorithm 1 over the host's memory: as printed "));
  EXPECT_THAT(o.out, HasSubstr("; over this batch, corrected: "));
  EXPECT_THAT(o.out, HasSubstr(" --act-ratio 0 "));
}

// What it stands for, stated; and what is stated beside it is had.
TEST_F(ActBlocks, HybridServeKeepsThemAndKvOnTheHost) {
  const auto compile = [&](const std::vector<std::string> &more) {
    std::vector<std::string> words = compiled(kOpt, more);
    words.emplace_back("--dry-run");
    const Outcome o = headrace(words);
    EXPECT_EQ(o.status, 0) << o.err;
    return o.out;
  };
  // What is predicted of all iterations, and what they bring.
  const auto iterations = [](const std::string &out) {
    const size_t from = out.find("\ndecode "), to = out.find("\nas flags ");
    EXPECT_LT(from, to) << out;
    return out.substr(from, to - from);
  };
  const std::string asked = compile({"--policy", "hybridserve"});
  EXPECT_THAT(asked, HasSubstr(" --kv-device-memory 0B --act-ratio "));
  EXPECT_THAT(asked, HasSubstr(" (interval 1), "));
  EXPECT_EQ(iterations(asked),
            iterations(compile({"--interval", "1", "--kv-device-memory", "0B", "--act-ratio", "auto"})));
  const std::string stated = compile({"--policy", "hybridserve", "--interval", "2", "--act-ratio", "1/3"});
  EXPECT_THAT(stated, HasSubstr(" --kv-device-memory 0B --act-ratio 1/3 "));
  EXPECT_THAT(stated, HasSubstr(" --interval 2 "));
  expectUsage({"--policy", "hybridserve", "--expansion", "1.5"},
              "--policy = \"hybridserve\" beside --expansion = 1.5: expected one of them: how many activation blocks "
              "there are");
}

// Fewer key heads than heads: what is kept is larger than the keys and values that are not.
TEST_F(ActBlocks, WhatDoesNotPayIsDoneAndSaid) {
  const Outcome o = headrace(compiled(kGrouped, {"--act-ratio", "1", "--dry-run"}));
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr("warning: policy.act_ratio = 1: an activation block of "));
  EXPECT_THAT(o.err, HasSubstr("nothing is saved, and they are rebuilt"));
}

TEST_F(ActBlocks, WhatCannotBeIsRefused) {
  for (const char *ratio : {"1.5", "-0.5", "half", "4/3", "1/0", "0.1234567"})
    expectUsage({"--act-ratio", ratio},
                std::string("--act-ratio = \"") + ratio +
                    "\": expected \"auto\", or a share from 0 to 1 of at most six decimals or in "
                    "millionths at the finest: 0.25, or 1/3");
  expectUsage({"--act-ratio", "1/2", "--act-home", "disk"}, "--act-home = \"disk\": expected auto, device or host");
  expectUsage({"--act-home", "host"}, "--act-home = \"host\": expected --act-ratio beside it");
  expectUsage(
      {"--policy", "hybridserve", "--start-rule", "paper"},
      "--policy = \"hybridserve\" beside --start-rule = \"paper\": expected start rule eager: what an iteration "
      "writes moves under the rule eager alone");
  const std::string beside = "--act-ratio = 1/2 beside ",
                    alike = ": how many activation blocks there are, and their home, is fixed";
  expectUsage({"--act-ratio", "1/2", "--expansion", "1.5"}, beside + "--expansion = 1.5: expected one of them" + alike);
  expectUsage({"--act-ratio", "1/2", "--kv-places", "3"}, beside + "--kv-places = 3: expected one of them" + alike);
  expectUsage({"--act-ratio", "1/2", "--elastic-kv", "on"},
              beside + "--elastic-kv = true: expected elastic_kv \"auto\" or off" + alike);
  expectUsage({"--act-ratio", "1/2", "--instances", "apart"},
              beside + "--instances = \"apart\": expected instances \"together\": keys and values are handed over");
  expectUsage({"--act-ratio", "1/2", "--policy", "pie"},
              beside + "--policy = \"pie\": expected another policy" + alike);
  expectUsage({"--act-ratio", "auto", "--policy", "pie"},
              "--act-ratio = auto beside --policy = \"pie\": expected another");
  expectUsage({"--act-ratio", "1/2", "--act-home", "host", "--interval", "2", "--start-rule", "paper"},
              "--act-home = \"host\" beside --start-rule = \"paper\": expected start rule eager");
  const Outcome swap = headrace({"bench", "serve", golden(kOpt), "--hardware", "host", "--context", "64", "--act-ratio",
                                 "1/2", "--num-prompts", "1", "--random-input-len", "8", "--random-output-len", "4",
                                 "--preemption-mode", "swap", "--swap-space", "1MiB"});
  EXPECT_EQ(swap.status, 2);
  EXPECT_THAT(
      swap.err,
      HasSubstr("beside activation blocks of the plan: expected recompute: swap space takes keys and values alone"));
}

// What is refused is what the table has.
TEST_F(ActBlocks, WhatDoesNotStandBesideThemIsListed) {
  const Outcome o = headrace({"compile", "--beside"});
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.out, ContainsRegex("\n--act-ratio +--instances apart +keys and values are handed over"));
  const nlohmann::json rows = nlohmann::json::parse(headrace({"compile", "--beside", "--json"}).out);
  EXPECT_EQ(rows.size() + 1, static_cast<size_t>(std::count(o.out.begin(), o.out.end(), '\n')));
  EXPECT_EQ(headrace({"compile", "opt-6.7b", "--beside"}).status, 2);
  EXPECT_EQ(headrace({"compile", "--beside", "--batch", "2"}).status, 2);
  for (const std::vector<std::string> &flags : std::vector<std::vector<std::string>>{
           {"--dry-run"}, {"--overwrite"}, {"--verify-weights"}, {"-o", path("a.plan")}, {"--dump-ir", path("ir")}}) {
    std::vector<std::string> words = {"compile", "--beside"};
    words.insert(words.end(), flags.begin(), flags.end());
    refused(words, 2, "--beside: expected no other flag than --json beside it");
  }
}

// Host memory that activation blocks on the host do not fit: the minimum, and exit status 1.
TEST_F(ActBlocks, HostMemoryIsCounted) {
  const Outcome o =
      headrace(compiled(kOpt, {"--act-ratio", "1", "--act-home", "host", "--host-memory", "64KiB", "--dry-run"}));
  EXPECT_EQ(o.status, 1) << o.err;
  EXPECT_THAT(o.err, HasSubstr("host memory"));
}

} // namespace
} // namespace headrace::tools
