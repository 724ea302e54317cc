// SPDX-License-Identifier: Apache-2.0
//
// Latency objectives and policies on the command line.
#include <cmath>
#include <iterator>
#include <sstream>

#include <set>

#include <gmock/gmock.h>

#include "tests/support/Process.h"
#include "tests/support/SourceDir.h"

namespace headrace::tools {
namespace {

using testing::HasSubstr;
using testing::Not;

class Choice : public CommandLine {
protected:
  static std::vector<std::string> with(std::vector<std::string> first, const std::vector<std::string> &more) {
    first.insert(first.end(), more.begin(), more.end());
    return first;
  }
  // OPT-6.7B on the A10 of Select-N, prefill of 16 x 64 tokens and decode of 128 sequences at context 64.
  static std::vector<std::string> figure11(const std::vector<std::string> &more) {
    return with({"compile", "opt-6.7b", "--hardware", "a10", "--batch", "128", "--context", "64", "--new-tokens",
                 "1024", "--sequences", "16,128", "--contexts", "64"},
                more);
  }
  static std::vector<std::string> tiny(const std::vector<std::string> &more) {
    return with({"compile", golden("llama-7-gqa-llama3-f32"), "--hardware", "host", "--batch", "2", "--context", "64"},
                more);
  }
  static nlohmann::json bucket(const nlohmann::json &plan, const std::string &iterationClass, int64_t sequences) {
    for (const nlohmann::json &choice : plan["choices"])
      if (choice["class"] == iterationClass && choice["sequences"] == sequences)
        return choice;
    return nullptr;
  }
  static std::vector<std::string> again(const nlohmann::json &plan) {
    std::istringstream words(plan["command"].get<std::string>());
    std::vector<std::string> all{std::next(std::istream_iterator<std::string>(words)), {}};
    all.emplace_back("--dry-run");
    return all;
  }
};

TEST_F(Choice, Figure11) {
  const nlohmann::json j =
      json(figure11({"--policy", "select-n", "--slo-factor", "1.5", "--instances", "apart", "--dry-run"}));
  EXPECT_EQ(j["policy"], "select-n");
  EXPECT_EQ(j["objective"]["slo_factor"], 1.5);
  const nlohmann::json prefill = bucket(j, "mixed", 16), decode = bucket(j, "decode", 128);
  EXPECT_EQ(prefill["offloaded_layers"], 10);
  EXPECT_EQ(prefill["interval"], 3);
  EXPECT_EQ(decode["offloaded_layers"], 4);
  EXPECT_EQ(decode["interval"], 8);
  for (const nlohmann::json &choice : j["choices"]) {
    EXPECT_LE(choice["slo_ratio"], 1.0);
    EXPECT_EQ(choice["slo_ratio"], choice["predicted_ns"].get<double>() / choice["slo_ns"].get<double>());
    EXPECT_EQ(choice["slo_ns"], std::floor(1.5 * choice["resident_ns"].get<double>()));
  }
  // Section 4.4 as printed gives nothing; with its factor L, 14 layers in intervals of 2, which would not hold.
  EXPECT_EQ(prefill["printed_formula"]["offload"], 0);
  EXPECT_EQ(prefill["printed_formula"]["offload_times_layers"], 14);
  EXPECT_EQ(prefill["printed_formula"]["interval_times_layers"], 2);
  // A layer and its biases: ten away less one slot; ten moved.
  const auto layer = decode["moved_bytes"].get<int64_t>() / 4;
  EXPECT_EQ(prefill["moved_bytes"], 10 * layer);
  EXPECT_EQ(prefill["freed_bytes"], 9 * layer);
  EXPECT_EQ(decode["freed_bytes"], 3 * layer);
}

TEST_F(Choice, InspectShowsTheChoiceOfThePlanFile) {
  const nlohmann::json made =
      json(figure11({"--policy", "select-n", "--slo-factor", "1.5", "--instances", "apart", "-o", path("out.plan")}));
  const nlohmann::json read = json({"inspect", path("out.plan")});
  for (const char *key : {"policy", "objective", "choices", "reason", "placements"})
    EXPECT_EQ(made[key], read[key]) << key;
  const Outcome text = headrace({"inspect", path("out.plan")});
  EXPECT_THAT(
      text.out,
      HasSubstr("policy           select-n, 1.5 x the iteration without offloading, prefill and decode on instances "
                "apart\n"));
  EXPECT_THAT(text.out, HasSubstr("printed: off"));
  EXPECT_THAT(text.out, HasSubstr("interval 8"));
}

TEST_F(Choice, HeadraceFreesMoreAndDeepspeedMisses) {
  const nlohmann::json selectN = json(figure11({"--policy", "select-n", "--slo-factor", "1.5", "--dry-run"}));
  const nlohmann::json headrace = json(figure11({"--policy", "headrace", "--slo-factor", "1.5", "--dry-run"}));
  const nlohmann::json deepspeed =
      json(figure11({"--policy", "deepspeed", "--slo-factor", "1.5", "--allow-missed", "--dry-run"}));
  for (size_t b = 0; b < selectN["choices"].size(); ++b) {
    EXPECT_GE(headrace["choices"][b]["freed_bytes"], selectN["choices"][b]["freed_bytes"]);
    EXPECT_LE(headrace["choices"][b]["slo_ratio"], 1.0);
  }
  EXPECT_GT(bucket(deepspeed, "decode", 128)["slo_ratio"], 6.0);
  EXPECT_EQ(headrace["choices"][0].contains("printed_formula"), false);
}

// A policy that does not choose by an objective may miss it: that is a refusal with the minimum, unless it is allowed.
TEST_F(Choice, AnObjectiveThatIsMissedIsRefusedUnlessThatIsAllowed) {
  const std::vector<std::string> job = {sourceDir() + "/examples/jobs/four-layers.toml", "--policy", "deepspeed"};
  const std::vector<std::string> prompt = {"--random-input-len", "4", "--max-new-tokens", "2"};
  const std::string message =
      "an iteration of 1.5 times the one without offloading is missed by policy deepspeed, which "
      "does not choose by it";
  refused(with(with({"compile"}, job), {"-o", path("out.plan")}), 1, message);
  refused(with(with({"simulate"}, job), prompt), 1, message);
  refused(with(with({"run", "--device", "sim"}, job), prompt), 1, message);
  const Outcome o = headrace(with(with({"compile"}, job), {"--dry-run"}));
  const std::string least = "so the minimum slo_factor is ";
  ASSERT_THAT(o.err, HasSubstr(least));
  const std::string factor = o.err.substr(o.err.find(least) + least.size(), 8);
  EXPECT_EQ(headrace(with(with({"compile"}, job), {"--slo-factor", factor, "--dry-run"})).status, 0) << factor;
  // Allowed, it is what it was, runs as any plan does, and says so where it is spelled out.
  const nlohmann::json plan = json(with(with({"compile"}, job), {"--allow-missed", "-o", path("out.plan")}));
  EXPECT_THAT(plan["command"].get<std::string>(), HasSubstr(" --allow-missed"));
  EXPECT_EQ(headrace(again(plan)).status, 0);
  EXPECT_EQ(headrace(with(with({"simulate", "--allow-missed"}, job), prompt)).status, 0);
  EXPECT_EQ(headrace(with({"simulate", path("out.plan")}, prompt)).status, 0);
  refused(with({"simulate", path("out.plan"), "--allow-missed"}, prompt), 2, "--allow-missed beside the plan");
  // What compares policies shows it.
  EXPECT_EQ(headrace({"bench", job[0], "--policies", "deepspeed", "--device", "sim", "--batches", "1", "--input-len",
                      "8", "--output-len", "4"})
                .status,
            0);
}

// Memory would do, and the objective does not: the message is of the objective, and its minimum does.
TEST_F(Choice, AMissedObjectiveIsNotSaidToBeAWantOfMemory) {
  const std::vector<std::string> job = {"compile",
                                        "--family",
                                        "qwen3",
                                        "--layers",
                                        "9",
                                        "--hidden",
                                        "512",
                                        "--heads",
                                        "8",
                                        "--intermediate",
                                        "1536",
                                        "--vocab",
                                        "50272",
                                        "--dtype",
                                        "f16",
                                        "--max-positions",
                                        "4096",
                                        "--hardware",
                                        "h100",
                                        "--kv-heads",
                                        "8",
                                        "--batch",
                                        "16",
                                        "--context",
                                        "16",
                                        "--kv-dtype",
                                        "f32",
                                        "--host-memory",
                                        "8GiB",
                                        "--dry-run",
                                        "--device-memory",
                                        "92000000B"};
  const Outcome o = headrace(with(job, {"--slo-factor", "5"}));
  EXPECT_EQ(o.status, 1);
  EXPECT_THAT(o.err, HasSubstr("an iteration of 5 times the one without offloading cannot be met by policy joint"));
  const std::string least = "the minimum slo_factor is ";
  ASSERT_THAT(o.err, HasSubstr(least));
  const std::string factor = std::to_string(std::stod(o.err.substr(o.err.find(least) + least.size())));
  EXPECT_EQ(headrace(with(job, {"--slo-factor", factor})).status, 0) << o.err;
}

// With more memory caches may grow to more blocks, whose tokens' ids take some of it: the minimum counts them.
TEST_F(Choice, TheMinimumDoesWhereCachesMayGrowInIt) {
  const std::vector<std::string> job = {"compile", "--family",        "opt",  "--layers",       "10",  "--hidden",
                                        "128",     "--heads",         "2",    "--intermediate", "512", "--vocab",
                                        "1000",    "--max-positions", "4096", "--dtype",        "f16", "--hardware",
                                        "h100",    "--batch",         "8",    "--context",      "256", "--kv-dtype",
                                        "f32",     "--kv-tokens",     "1449", "--dry-run"};
  const Outcome o = headrace(with(job, {"--device-memory", "8MiB"}));
  const std::string would = "What would do: a device memory of ";
  ASSERT_THAT(o.err, HasSubstr(would));
  const uint64_t least = std::stoull(o.err.substr(o.err.find(would) + would.size()));
  EXPECT_EQ(headrace(with(job, {"--device-memory", std::to_string(least) + "B"})).status, 0) << o.err;
  EXPECT_EQ(headrace(with(job, {"--device-memory", std::to_string(least - 1) + "B"})).status, 1);
}

// What an iteration makes leaves the device under the rule eager: placements of other rules are not to choose from.
TEST_F(Choice, ObjectivesBesideWhatLeavesTheDevice) {
  for (const std::vector<std::string> &leaves :
       std::vector<std::vector<std::string>>{{"--residuals", "host"}, {"--act-ratio", "1/2", "--act-home", "host"}})
    for (const char *factor : {"1.5", "4"}) {
      const nlohmann::json plan = json(with(tiny({"--slo-factor", factor, "--dry-run"}), leaves));
      for (const nlohmann::json &choice : plan["choices"])
        EXPECT_LE(choice["slo_ratio"], 1.0);
    }
}

// The table that docs/placement.md opens with, in MiB and ms.
TEST_F(Choice, TheFourLayersOfTheDocs) {
  struct Row {
    const char *policy;
    long moved, freed, ms;
  };
  constexpr Row kRows[] = {{"none", 0, 0, 40},
                           {"deepspeed", 80, 40, 90},
                           {"flexgen", 48, 24, 58},
                           {"select-n", 40, 20, 60},
                           {"headrace", 60, 44, 60}};
  for (const Row &row : kRows) {
    const nlohmann::json plan = json({"compile", sourceDir() + "/examples/jobs/four-layers.toml", "--policy",
                                      row.policy, "--allow-missed", "--dry-run"});
    const nlohmann::json choice = plan["choices"][0];
    EXPECT_EQ(std::lround(choice["moved_bytes"].get<double>() / (1 << 20)), row.moved) << row.policy;
    EXPECT_EQ(std::lround(choice["freed_bytes"].get<double>() / (1 << 20)), row.freed) << row.policy;
    EXPECT_EQ(std::lround(choice["predicted_ns"].get<double>() / 1e6), row.ms) << row.policy;
  }
}

TEST_F(Choice, TheFlagsItPrintsGiveThePlanAgain) {
  for (const std::vector<std::string> &goal :
       std::vector<std::vector<std::string>>{{"--policy", "select-n", "--tpot", "1s"},
                                             {"--policy", "headrace", "--slo-factor", "3"},
                                             {"--tpot", "1s", "--ttft", "2.5s", "--placements", "3"},
                                             {"--policy", "deepspeed"},
                                             {"--policy", "none", "--tpot", "1s"},
                                             {"--policy", "flexgen", "--bus-devices", "2", "--slo-factor", "50"},
                                             {"--placements", "3", "--offload-head", "off"}}) {
    const nlohmann::json first = json(with(tiny(goal), {"--dry-run"}));
    const nlohmann::json second = json(again(first));
    for (const char *key : {"placements", "variants", "transitions", "arena_bytes", "host_bytes", "budget_bytes"})
      EXPECT_EQ(first[key], second[key]) << first["command"];
  }
}

TEST_F(Choice, TheTextNamesPolicyObjectiveAndEachBucket) {
  const Outcome o = headrace(tiny({"--tpot", "50ms", "--dry-run"}));
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("policy         joint, TPOT 50ms\n"));
  EXPECT_THAT(o.out, HasSubstr("\nchoice "));
  EXPECT_THAT(o.out, HasSubstr("\ndecode "));
  const Outcome plain = headrace(tiny({"--dry-run"}));
  EXPECT_THAT(plain.out, Not(HasSubstr("\nchoice ")));
}

TEST_F(Choice, AnObjectiveThatCannotBeMetIsRefusedWithMinimaThatHold) {
  const std::vector<std::string> asked = {"compile",     "opt-13b",   "--hardware", "a10",        "--batch",
                                          "8",           "--context", "64",         "--contexts", "64",
                                          "--sequences", "8",         "--policy",   "select-n"};
  const auto tpot = [&](const std::string &value) { return with(asked, {"--tpot", value, "--dry-run"}); };
  refused(with(asked, {"--tpot", "100ms", "-o", path("out.plan")}), 1, "the minimum memory is ");
  const Outcome o = headrace(tpot("100ms"));
  EXPECT_THAT(o.err, HasSubstr("the minimum memory at any latency is "));
  const std::string before = "the minimum TPOT is ";
  ASSERT_THAT(o.err, HasSubstr(before));
  const size_t at = o.err.find(before) + before.size();
  const std::string least = o.err.substr(at, o.err.find(' ', at) - at); // "104.123456ms"
  const Outcome held = headrace(tpot(least));
  EXPECT_EQ(held.status, 0) << held.err;
  const auto ns = static_cast<int64_t>(std::llround(std::stod(least) * 1e6));
  refused(tpot(std::to_string(ns - 1) + "ns"), 1, before + least);
}

TEST_F(Choice, BadObjectivesAndPoliciesAreTwo) {
  const auto bad = [&](const std::vector<std::string> &flags, const std::string &message) {
    refused(with(tiny(flags), {"-o", path("out.plan")}), 2, message);
  };
  for (const char *flag : {"--ttft", "--tpot"}) {
    bad({flag, "0"}, std::string(flag) + " = \"0\": expected a time with its unit");
    bad({flag, "0ms"}, std::string(flag) + " = \"0ms\": expected a time above zero");
    bad({flag, "-5ms"}, std::string(flag) + " = \"-5ms\": expected a time");
    bad({flag, "nan"}, std::string(flag) + " = \"nan\": expected a time");
    bad({flag, "5 days"}, std::string(flag) + " = \"5 days\": expected a time");
    bad({flag, "50ms", "--slo-factor", "1.5"}, std::string(flag) + " = 50 ms: expected either a time or --slo-factor");
  }
  bad({"--slo-factor", "0.9"}, "--slo-factor = 0.9: expected a factor");
  bad({"--slo-factor", "-1"}, "--slo-factor = -1: expected a factor");
  bad({"--slo-factor", "nan"}, "--slo-factor = \"nan\"");
  bad({"--bus-devices", "0"}, "--bus-devices = 0: expected an integer from 1 to 64");
  bad({"--bus-devices", "65"}, "--bus-devices = 65: expected an integer from 1 to 64");
  bad({"--placements", "0"}, "--placements = 0: expected an integer from 1 to 64");
  bad({"--policy", "vllm"}, "--policy = \"vllm\": expected \"auto\", \"interval\"");
  bad({"--policy", "select-n"}, "--policy = \"select-n\": expected --ttft, --tpot or --slo-factor");
  bad({"--policy", "deepspeed", "--interval", "2"}, "--policy = \"deepspeed\": expected \"interval\"");
  bad({"--record", path("none.toml")}, path("none.toml"));
  writeText(path("empty.toml"), "");
  refused(with(tiny({"--record", path("empty.toml")}), {"--dry-run"}), 2, path("empty.toml"));
}

TEST_F(Choice, ARecordPricesThePlan) {
  // The record of virtual time gives what the roofline gives, on the grid.
  const std::vector<std::string> model = {"opt-6.7b", "--hardware", "a10"};
  ASSERT_EQ(headrace(with({"profile"}, with(model, {"--device", "sim", "--batches", "64,128", "--sequences", "64,128",
                                                    "-o", path("record.toml")})))
                .status,
            0);
  const std::vector<std::string> goal = {"--batch",  "128",         "--context",    "64",           "--contexts",
                                         "64",       "--sequences", "128",          "--new-tokens", "128",
                                         "--policy", "select-n",    "--slo-factor", "1.5",          "--dry-run"};
  const nlohmann::json measured = json(with({"compile"}, with(model, with({"--record", path("record.toml")}, goal))));
  const nlohmann::json roofline = json(with({"compile"}, with(model, goal)));
  EXPECT_EQ(measured["objective"]["record"], path("record.toml"));
  EXPECT_EQ(bucket(measured, "decode", 128)["interval"], bucket(roofline, "decode", 128)["interval"]);
  EXPECT_NEAR(bucket(measured, "decode", 128)["resident_ns"].get<double>(),
              bucket(roofline, "decode", 128)["resident_ns"].get<double>(),
              0.02 * bucket(roofline, "decode", 128)["resident_ns"].get<double>());
  // Of another model it is refused.
  refused({"compile", "opt-13b", "--hardware", "a10", "--record", path("record.toml"), "--tpot", "1s", "--dry-run"}, 2,
          path("record.toml"));
}

TEST_F(Choice, TheExamplesInTheHelpWork) {
  const std::vector<std::string> model = {"compile", "opt-6.7b", "--hardware", "a10",
                                          "--batch", "16",       "--context",  "64"};
  EXPECT_EQ(headrace(with(model, {"--tpot", "60ms", "--dry-run"})).status, 0);
  EXPECT_EQ(headrace(with(model, {"--policy", "select-n", "--slo-factor", "1.5", "--dry-run"})).status, 0);
}

TEST_F(Choice, AJobFileMayStateThem) {
  writeText(path("job.toml"), "[model]\nshape = \"opt-6.7b\"\n[hardware]\nfile = \"a10\"\n[goal]\nbatch = 8\ncontext = "
                              "256\ntpot = \"60ms\"\nttft = \"1s\"\n[policy]\nname = \"select-n\"\nplacements = 3\n");
  const nlohmann::json j = json({"compile", path("job.toml"), "--dry-run"});
  EXPECT_EQ(j["objective"]["tpot_ns"], 60'000'000);
  EXPECT_EQ(j["objective"]["ttft_ns"], 1'000'000'000);
  EXPECT_EQ(j["placements"].size(), 3u);
  // A flag wins, and a factor replaces both times.
  EXPECT_EQ(json({"compile", path("job.toml"), "--tpot", "70ms", "--dry-run"})["objective"]["tpot_ns"], 70'000'000);
  const nlohmann::json factor = json({"compile", path("job.toml"), "--slo-factor", "1.5", "--dry-run"});
  EXPECT_EQ(factor["objective"]["slo_factor"], 1.5);
  EXPECT_FALSE(factor["objective"].contains("tpot_ns"));
}

// Prefill and decode each in the placement chosen for their bucket, by planned transitions, with the resident tokens.
TEST_F(Choice, ARunTakesThePlacementOfEachBucket) {
  const std::string model = golden("llama-12-tied-bias-bf16-sharded");
  const std::vector<std::string> goal = {"--h2d-bandwidth", "200MB/s", "--batch",      "2", "--context",   "64",
                                         "--new-tokens",    "64",      "--slo-factor", "4", "--instances", "apart"};
  const std::vector<std::string> prompts = {
      "--prompt-ids", "1,2,3,4,5,6,7,8;9,10,11", "--max-new-tokens", "6", "--separate-prefill", "--json"};
  std::vector<std::string> compile = {"compile", model, "--hardware", "host", "-o", path("slo.plan")};
  compile.insert(compile.end(), goal.begin(), goal.end());
  ASSERT_EQ(headrace(compile).status, 0);
  const nlohmann::json plan = json({"inspect", path("slo.plan")});
  std::set<std::string> chosen;
  for (const auto &choice : plan["choices"])
    chosen.insert(choice["placement"].get<std::string>());
  ASSERT_GT(chosen.size(), 1U) << "one placement for all: nothing to switch";
  const nlohmann::json run = json(with({"run", path("slo.plan")}, prompts));
  EXPECT_GT(run["transitions"], 0);
  EXPECT_EQ(run["tokens"], json(with({"run", model, "--hardware", "host", "--interval", "none"}, prompts))["tokens"]);
  // One for all is what --placement asks for.
  const nlohmann::json fixed = json(with({"run", path("slo.plan"), "--placement", "0"}, prompts));
  EXPECT_EQ(fixed["tokens"], run["tokens"]);
  EXPECT_LE(fixed["transitions"], run["transitions"]);
}

// In the time of 1.2 iterations the link brings less than a layer of 416 MiB, of units of at least 32 MiB.
TEST_F(Choice, WhatKeepsTheLinkFromBeingFullIsNamed) {
  const auto why = [](const std::string &factor) {
    return headrace({"compile", "llama-3.1-8b", "--hardware", "h100", "--batch", "8", "--context", "256", "--instances",
                     "apart", "--slo-factor", factor, "--dry-run"})
        .out;
  };
  EXPECT_THAT(why("1.2"),
              testing::ContainsRegex("; moves 9[0-6]\\.[0-9]% of the bytes that the link can bring in that time: "
                                     "what is left of it brings no further unit"));
  EXPECT_THAT(why("100"), testing::Not(HasSubstr("the link can bring")));
}

} // namespace
} // namespace headrace::tools
