// SPDX-License-Identifier: Apache-2.0
//
// The first gap behind a prompt, from compile to simulate: models and hardware whose prefill and decode each have a
// placement of their own that meets its objective, and a change between them of up to 73 s that does not.
#include <gmock/gmock.h>

#include "tests/support/Process.h"
#include "tests/support/SourceDir.h"

namespace headrace::tools {
namespace {

using testing::HasSubstr;
using testing::Not;

struct Case {
  const char *name; // of the inputs
  const char *batch, *context, *newTokens, *factor;
};

class GapCommand : public CommandLine, public testing::WithParamInterface<Case> {
protected:
  std::vector<std::string> compile(const std::vector<std::string> &more) const {
    const Case &c = GetParam();
    const std::string inputs = sourceDir() + "/tests/tools/cases/" + c.name;
    std::vector<std::string> all = {"compile",      inputs + ".model.toml",
                                    "--hardware",   inputs + ".hw.toml",
                                    "--batch",      c.batch,
                                    "--context",    c.context,
                                    "--new-tokens", std::string(c.batch) + "," + c.newTokens,
                                    "--sequences",  c.batch,
                                    "--contexts",   c.context,
                                    "--policy",     "select-n",
                                    "--slo-factor", c.factor,
                                    "-o",           path("out.plan")};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::vector<std::string> simulate() const {
    return {"simulate",      path("out.plan"), "--random-input-len", "8",
            "--num-prompts", GetParam().batch, "--max-new-tokens",   "6"};
  }
  nlohmann::json simulated() const {
    std::vector<std::string> words = simulate();
    words.emplace_back("--json");
    return json(words);
  }
};

TEST_P(GapCommand, TogetherEveryGapIsHeld) {
  const Outcome compiled = headrace(compile({}));
  ASSERT_EQ(compiled.status, 0) << compiled.err;
  EXPECT_THAT(compiled.out, HasSubstr("one placement for all buckets: with one for each a token would come "));
  const nlohmann::json run = simulated();
  EXPECT_EQ(run["gaps"]["gaps"], 5);
  EXPECT_EQ(run["gaps"]["late"], 0);
  EXPECT_LE(run["gaps"]["longest_ms"], run["gaps"]["objective_ms"]);
  // What was predicted of the first gap is what it takes, and named apart from the others.
  EXPECT_EQ(run["changes"]["iterations"], 1);
  EXPECT_NEAR(run["changes"]["ratio"].get<double>(), 1, 1e-9);
  EXPECT_EQ(run["decode"]["iterations"], 4);
  EXPECT_NEAR(run["decode"]["ratio"].get<double>(), 1, 1e-9);
  const Outcome text = headrace(simulate());
  EXPECT_THAT(text.out, HasSubstr("\nchanges "));
  EXPECT_THAT(text.out, HasSubstr("; all 5 held it"));
}

TEST_P(GapCommand, ApartTheFirstGapBreaksTheObjectiveAndTheRunSaysSo) {
  ASSERT_EQ(headrace(compile({"--instances", "apart"})).status, 0);
  const nlohmann::json run = simulated();
  EXPECT_EQ(run["gaps"]["late"], 1);
  EXPECT_TRUE(run["gaps"]["longest_is_change"].get<bool>());
  EXPECT_NEAR(run["changes"]["ratio"].get<double>(), 1, 1e-9); // predicted all the same
  EXPECT_THAT(headrace(simulate()).out,
              HasSubstr("1 of 5 were longer (the plan is for instances apart: changes are not held to it)"));
}

INSTANTIATE_TEST_SUITE_P(Seen, GapCommand,
                         testing::Values(Case{"28-layers", "64", "64", "2048", "2"},
                                         Case{"79-layers", "128", "256", "16384", "1.1"},
                                         Case{"93-layers", "32", "2048", "32768", "4"},
                                         Case{"15-layers", "2", "4096", "4096", "1.02"}),
                         [](const auto &info) { return "Layers" + std::string(info.param.name).substr(0, 2); });

using Instances = CommandLine;
TEST_F(Instances, AreTogetherOrApart) {
  refused({"compile", "opt-6.7b", "--hardware", "a10", "--instances", "alone", "--dry-run"}, 2,
          "expected \"together\" or \"apart\"");
  const std::vector<std::string> asked = {"compile",     "opt-6.7b",  "--hardware",   "a10",        "--batch",
                                          "16",          "--context", "64",           "--contexts", "64",
                                          "--sequences", "16",        "--new-tokens", "1024",       "--slo-factor",
                                          "1.5",         "--json",    "--dry-run"};
  std::vector<std::string> apart = asked;
  apart.insert(apart.end(), {"--instances", "apart"});
  const nlohmann::json one = json(asked), two = json(apart);
  EXPECT_EQ(one["objective"]["instances"], "together");
  EXPECT_THAT(one["command"].get<std::string>(), Not(HasSubstr("--instances")));
  EXPECT_EQ(two["objective"]["instances"], "apart");
  EXPECT_THAT(two["command"].get<std::string>(), HasSubstr("--instances apart"));
  // Every gap is predicted where it is promised.
  for (const nlohmann::json &choice : one["choices"])
    if (choice["class"] == "decode") {
      EXPECT_LE(choice["longest_gap_ns"], choice["slo_ns"]);
    }
  EXPECT_TRUE(two["choices"][0]["longest_gap_ns"].is_null());
}

// Memory in which each bucket of decode has a placement that holds, but no placement holds all of them.
TEST_F(Instances, WhatOneInstanceCannotHoldIsRefusedWithWhatItCould) {
  const auto asked = [](const std::string &memory, const std::string &tpot) {
    return std::vector<std::string>{"compile",   "opt-6.7b", "--hardware", "a10", "--batch",         "128",
                                    "--context", "72",       "--tpot",     tpot,  "--device-memory", memory,
                                    "--dry-run", "--policy", "headrace"};
  };
  const Outcome refused = headrace(asked("16990000000B", "85ms"));
  EXPECT_EQ(refused.status, 1);
  for (const char *text :
       {"TPOT of 85ms cannot be met on one instance by policy headrace for opt-6.7b",
        "each is met in a placement of its own, but between them a token would come ", "; the minimum TPOT of one is ",
        "; the minimum memory of one is ", "; on instances apart (--instances apart) they are met"})
    EXPECT_THAT(refused.err, HasSubstr(text));
  const auto after = [&](const std::string &words) {
    const size_t at = refused.err.find(words) + words.size();
    return refused.err.substr(at, refused.err.find(' ', at) - at);
  };
  EXPECT_EQ(headrace(asked("16990000000B", after("the minimum TPOT of one is "))).status, 0);
  EXPECT_EQ(headrace(asked(after("the minimum memory of one is ") + "B", "85ms")).status, 0);
  std::vector<std::string> apart = asked("16990000000B", "85ms");
  apart.insert(apart.end(), {"--instances", "apart", "--placements", "1"});
  EXPECT_EQ(headrace(apart).status, 0);
}

} // namespace
} // namespace headrace::tools
