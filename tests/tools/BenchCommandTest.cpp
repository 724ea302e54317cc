// SPDX-License-Identifier: Apache-2.0
//
// headrace bench: several policies in one run.
#include <gmock/gmock.h>

#include "tests/support/Process.h"

namespace headrace::tools {
namespace {

using testing::HasSubstr;

class BenchCommand : public CommandLine {};

TEST_F(BenchCommand, ComparesOnTheSimDevice) {
  const nlohmann::json j =
      json({"bench", "opt-6.7b", "--hardware", "a10", "--device", "sim", "--policies", "none,deepspeed", "--batches",
            "1,4", "--input-len", "64", "--output-len", "4", "--json", "--svg", path("b.svg"), "-o", path("b.json")});
  ASSERT_EQ(j["rows"].size(), 4U); // 2 policies x 2 batches
  EXPECT_EQ(j["rows"][0]["policy"], "none");
  EXPECT_EQ(j["rows"][0]["decode"]["host_bytes"], 0);
  EXPECT_EQ(j["rows"][0]["decode"]["moved_bytes"], 0);
  EXPECT_TRUE(j["rows"][0]["decode"]["slo_ms"].is_null());
  EXPECT_EQ(j["rows"][0]["prefill"]["samples"], 3); // one prompt, three rounds
  EXPECT_EQ(j["rows"][2]["prefill"]["samples"], 12);
  EXPECT_EQ(j["rows"][0]["decode"]["samples"], 6); // 4 tokens are 3 gaps, the first does not count; three rounds
  EXPECT_EQ(j["rows"][1]["decode"]["offloaded_layers"], 32);
  // All layers over the link in each iteration: 24 GB/s.
  const double moved = j["rows"][1]["decode"]["moved_bytes"];
  EXPECT_GE(j["rows"][1]["decode"]["p50_ms"].get<double>(), moved / 24e9 * 1e3 * 0.999);
  EXPECT_GT(j["rows"][1]["decode"]["link_busy"].get<double>(), 0.9);
  EXPECT_GT(j["rows"][1]["decode"]["max_tokens"], j["rows"][0]["decode"]["max_tokens"]);
  EXPECT_THAT(readFile(path("b.svg")), HasSubstr("</svg>"));
  EXPECT_EQ(nlohmann::json::parse(readFile(path("b.json"))), j);
}

TEST_F(BenchCommand, EveryPolicyIsHeldAgainstTheSameObjective) {
  const nlohmann::json j = json({"bench", "opt-6.7b", "--hardware", "a10", "--device", "sim", "--policies",
                                 "none,deepspeed,interval,select-n,headrace", "--batches", "16", "--input-len", "64",
                                 "--output-len", "4", "--slo-factor", "1.5", "--json"});
  for (const char *phase : {"prefill", "decode"}) {
    const double slo = j["rows"][0][phase]["slo_ms"];
    // The factor is of what the plan says of its bucket; what runs of it, here contexts that grow up to it, takes less.
    EXPECT_NEAR(slo, 1.5 * j["rows"][0][phase]["resident_ms"].get<double>(), 1e-6);
    EXPECT_LE(j["rows"][0][phase]["over_slo"].get<double>(), 1 / 1.5);
    EXPECT_GT(j["rows"][0][phase]["over_slo"].get<double>(), 0.99 / 1.5);
    for (const nlohmann::json &row : j["rows"])
      EXPECT_EQ(row[phase]["slo_ms"].get<double>(), slo) << row["policy"];
    for (const size_t chooses : {3, 4}) {
      EXPECT_LE(j["rows"][chooses][phase]["over_slo"].get<double>(), 1.0);
      EXPECT_EQ(j["rows"][chooses][phase]["attainment"], 1.0);
      EXPECT_GT(j["rows"][chooses][phase]["freed_bytes"].get<int64_t>(), 0);
    }
    EXPECT_GE(j["rows"][4][phase]["freed_bytes"].get<int64_t>(), j["rows"][3][phase]["freed_bytes"].get<int64_t>());
    EXPECT_EQ(j["rows"][1][phase]["attainment"], 0.0) << "deepspeed";
  }
}

TEST_F(BenchCommand, AFactorIsOfTheModelOnADeviceLargeEnough) {
  // 26 GB of weights on 24 GB: with nothing offloaded it does not fit, and what it would take is still what counts.
  const nlohmann::json j =
      json({"bench", "opt-13b", "--hardware", "a10", "--device", "sim", "--policies", "none,select-n", "--batches", "8",
            "--input-len", "64", "--output-len", "4", "--slo-factor", "3", "--phase", "decode", "--json"});
  EXPECT_THAT(j["rows"][0]["decode"]["refused"].get<std::string>(), HasSubstr("minimum"));
  EXPECT_TRUE(j["rows"][0]["prefill"].is_null());
  const nlohmann::json large = json({"bench",       "opt-13b", "--hardware",   "a10",  "--memory",     "48GB",
                                     "--device",    "sim",     "--policies",   "none", "--batches",    "8",
                                     "--input-len", "64",      "--output-len", "4",    "--slo-factor", "3",
                                     "--phase",     "decode",  "--json"})["rows"][0]["decode"];
  EXPECT_EQ(j["rows"][1]["decode"]["slo_ms"], large["slo_ms"]);
  EXPECT_NEAR(large["slo_ms"].get<double>(), 3 * large["resident_ms"].get<double>(), 1e-5);
  EXPECT_NEAR(large["p50_ms"].get<double>(), large["resident_ms"].get<double>(),
              0.05); // of contexts below the bucket's
}

TEST_F(BenchCommand, TogetherOneInstanceDoesBoth) {
  const nlohmann::json j =
      json({"bench",       "opt-6.7b",  "--hardware", "a10",         "--device", "sim",          "--policies",
            "interval=8",  "--batches", "4",          "--input-len", "64",       "--output-len", "4",
            "--instances", "together",  "--ttft",     "1s",          "--tpot",   "100ms",        "--json"});
  const nlohmann::json &row = j["rows"][0];
  EXPECT_EQ(row["prefill"]["device_bytes"], row["decode"]["device_bytes"]);
  EXPECT_EQ(row["decode"]["samples"], 9); // 3 gaps, three rounds
  EXPECT_EQ(row["decode"]["offloaded_layers"], 4);
  EXPECT_EQ(row["prefill"]["slo_ms"], 1000);
  EXPECT_EQ(row["decode"]["slo_ms"], 100);
}

TEST_F(BenchCommand, AFactorOfSeveralIterationsIsOfEach) {
  // 128 x 64 tokens on an instance that also decodes: four iterations of 2,048.
  const nlohmann::json j =
      json({"bench", "opt-6.7b", "--hardware", "a10", "--device", "sim", "--policies", "none", "--batches", "128",
            "--input-len", "64", "--output-len", "3", "--instances", "together", "--slo-factor", "1.5", "--json"});
  const nlohmann::json &prefill = j["rows"][0]["prefill"];
  EXPECT_NEAR(prefill["slo_ms"].get<double>(), 4 * 1.5 * prefill["resident_ms"].get<double>(), 1e-3);
  // The last prompts wait for all four, each as long as without offloading, but for contexts that are shorter.
  EXPECT_LT(prefill["p99_ms"].get<double>(), 4 * prefill["resident_ms"].get<double>());
  EXPECT_NEAR(prefill["p99_ms"].get<double>(), prefill["predicted_ms"].get<double>(), 1e-5);
}

// 4 prompts of 64 tokens in iterations of 100 rows: three; of 1 row asked for: of 8, 32 of them. A factor is of so many
// iterations, a time is the time.
TEST_F(BenchCommand, PrefillIsCutToTheTokensOfAnIteration) {
  const auto prefill = [&](const char *tokens, const char *objective, const char *value) {
    return json({"bench",
                 "opt-6.7b",
                 "--hardware",
                 "a10",
                 "--device",
                 "sim",
                 "--policies",
                 "none",
                 "--batches",
                 "4",
                 "--input-len",
                 "64",
                 "--output-len",
                 "3",
                 "--phase",
                 "prefill",
                 objective,
                 value,
                 "--max-num-batched-tokens",
                 tokens,
                 "--json"})["rows"][0]["prefill"];
  };
  for (const auto &[tokens, iterations] : {std::pair("100", 3), {"1", 32}, {"256", 1}}) {
    const nlohmann::json factor = prefill(tokens, "--slo-factor", "2");
    EXPECT_NEAR(factor["slo_ms"].get<double>(), 2 * iterations * factor["resident_ms"].get<double>(), 1e-3);
    EXPECT_EQ(prefill(tokens, "--ttft", "1s")["slo_ms"], 1000);
  }
}

// A profile of a machine that is slower than any that runs this: what it says of the host's own run is off, and said
// to be.
TEST_F(BenchCommand, OnTheHostAProfileThatIsNotThisMachinesIsTheReason) {
  const auto words = [&](std::vector<std::string> more) {
    std::vector<std::string> all = {"bench",        golden("opt-7-tied-f32"),
                                    "--hardware",   "host",
                                    "--policies",   "none,interval=2",
                                    "--batches",    "1",
                                    "--input-len",  "8",
                                    "--output-len", "4",
                                    "--rounds",     "1",
                                    "--flops-f32",  "100MFLOP/s"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const Outcome table = headrace(words({}));
  ASSERT_EQ(table.status, 0) << table.err;
  EXPECT_THAT(table.out,
              testing::ContainsRegex("\nwhy +(none|interval=2), batch 1: prefill took [0-9.]+ x the predicted "
                                     "time, as compute did"));
  EXPECT_THAT(table.out, HasSubstr("the profile \"host\" is not of this machine"));
  EXPECT_THAT(table.out, testing::ContainsRegex("\nso also +(none|interval=2), batch 1 [0-9.]+ x\n"));
  const nlohmann::json row = json(words({"--json"}))["rows"][0];
  for (const char *phase : {"prefill", "decode"}) {
    EXPECT_THAT(row[phase]["why"].get<std::string>(), HasSubstr("is not of this machine")) << phase;
    EXPECT_LT(1.3 * row[phase]["p50_ms"].get<double>(), row[phase]["predicted_ms"].get<double>()) << phase;
  }
  // In virtual time what runs takes what is predicted of it.
  const nlohmann::json sim = json(words({"--json", "--device", "sim"}))["rows"][0];
  for (const char *phase : {"prefill", "decode"}) {
    EXPECT_TRUE(sim[phase]["why"].is_null()) << phase;
    EXPECT_NEAR(sim[phase]["predicted_ms"].get<double>(), sim[phase]["p50_ms"].get<double>(),
                0.01 * sim[phase]["p50_ms"].get<double>())
        << phase;
  }
}

TEST_F(BenchCommand, TogetherEveryGapIsHeldTheFirstBehindThePromptsToo) {
  // Prefill hides more copies than decode does, but a way from one placement to another would be a gap of its own.
  const nlohmann::json j =
      json({"bench", "opt-6.7b", "--hardware", "a10", "--device", "sim", "--policies", "select-n", "--batches", "16",
            "--input-len", "64", "--output-len", "5", "--instances", "together", "--slo-factor", "1.5", "--json"});
  const nlohmann::json &row = j["rows"][0];
  EXPECT_EQ(row["prefill"]["offloaded_layers"], row["decode"]["offloaded_layers"]);
  EXPECT_GT(row["decode"]["offloaded_layers"], 0);
  EXPECT_LE(row["decode"]["over_slo"].get<double>(), 1.0);
  EXPECT_LE(row["decode"]["p99_ms"].get<double>(), row["decode"]["slo_ms"].get<double>());
  EXPECT_EQ(row["decode"]["attainment"], 1.0);
}

TEST_F(BenchCommand, FillsTheMemoryWithinTheObjective) {
  const nlohmann::json j =
      json({"bench", "opt-6.7b", "--hardware", "a10", "--device", "sim", "--policies", "none,deepspeed,select-n",
            "--fill", "--phase", "decode", "--input-len", "64", "--output-len", "16", "--tpot", "100ms", "--json"});
  const nlohmann::json none = j["rows"][0]["decode"], selectN = j["rows"][2]["decode"];
  EXPECT_GT(none["batch"], 1);
  EXPECT_GT(selectN["batch"], none["batch"]);
  EXPECT_LE(selectN["over_slo"].get<double>(), 1.0);
  EXPECT_GT(selectN["tokens_per_second"], none["tokens_per_second"]);
  EXPECT_LE(selectN["device_bytes"].get<uint64_t>(), 24'000'000'000U);
  EXPECT_THAT(j["rows"][1]["decode"]["refused"].get<std::string>(), HasSubstr("at batch 1"));
}

TEST_F(BenchCommand, RunsRealDataOnTheHost) {
  const Outcome o = headrace({"bench", golden("opt-7-tied-f32"), "--hardware", "host", "--policies", "none,interval",
                              "--batches", "2", "--input-len", "8", "--output-len", "4", "--rounds", "1"});
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("device host"));
  EXPECT_THAT(o.out, HasSubstr("\ninterval "));
}

TEST_F(BenchCommand, APolicyThatCannotRunIsARowThatSaysWhy) {
  const nlohmann::json j = json({"bench", "opt-30b", "--hardware", "a10", "--device", "sim", "--policies",
                                 "none,interval", "--batches", "1", "--output-len", "4", "--json"});
  EXPECT_THAT(j["rows"][0]["decode"]["refused"].get<std::string>(), HasSubstr("minimum"));
  EXPECT_TRUE(j["rows"][1]["decode"]["refused"].is_null());
}

TEST_F(BenchCommand, ALatencyPolicyWithoutItsObjectiveSaysWhichIsMissing) {
  const nlohmann::json j = json({"bench", "opt-6.7b", "--hardware", "a10", "--device", "sim", "--policies", "select-n",
                                 "--batches", "4", "--tpot", "100ms", "--output-len", "4", "--json"});
  EXPECT_THAT(j["rows"][0]["prefill"]["refused"].get<std::string>(), HasSubstr("--ttft"));
  EXPECT_TRUE(j["rows"][0]["decode"]["refused"].is_null());
}

TEST_F(BenchCommand, RefusesBadFlags) {
  refused({"bench", "opt-6.7b", "--hardware", "a10", "--policies", "fastest"}, 2, "\"fastest\"");
  refused({"bench", "opt-6.7b", "--hardware", "a10", "--policies", ""}, 2, "--policies");
  refused({"bench", "opt-6.7b", "--hardware", "a10", "--batches", "0"}, 2, "--batches = \"0\"");
  refused({"bench", "opt-6.7b", "--hardware", "a10", "--batches", "4,x"}, 2, "--batches = \"4,x\"");
  refused({"bench", "opt-6.7b", "--hardware", "a10", "--output-len", "1"}, 2,
          "--output-len = \"1\": expected an integer from 2");
  refused({"bench", "opt-6.7b", "--hardware", "a10", "--output-len", "2"}, 2, "--output-len = 2: expected 3 or more");
  refused({"bench", "opt-6.7b", "--hardware", "a10", "--input-len", "1"}, 2, "--input-len = \"1\"");
  refused({"bench", "opt-6.7b", "--hardware", "a10", "--rounds", "0"}, 2, "--rounds = \"0\"");
  refused({"bench", "opt-6.7b", "--hardware", "a10", "--instances", "many"}, 2, "--instances = \"many\"");
  refused({"bench", "opt-6.7b", "--hardware", "a10", "--phase", "warm"}, 2, "--phase = \"warm\"");
  refused({"bench", "opt-6.7b", "--hardware", "a10", "--phase", "decode", "--instances", "together"}, 2, "--phase");
  refused({"bench", "opt-6.7b", "--hardware", "a10", "--fill", "--batches", "8"}, 2, "--fill");
  refused({"bench", "opt-6.7b", "--hardware", "a10", "--policies", "interval=0"}, 2, "interval=0");
  refused({"bench", "opt-6.7b", "--hardware", "a10", "--policies", "none=3"}, 2, "none=3");
  refused({"bench", "opt-6.7b", "--hardware", "a10", "--policies", "interval=99"}, 2, "interval");
  refused({"bench", "opt-6.7b", "--hardware", "a10", "--context", "64"}, 2, "--context = 64");
  refused({"bench", "opt-6.7b", "--hardware", "a10", "--policies", "none", "--tpot", "0ms"}, 2, "tpot");
  refused({"bench", "opt-6.7b", "--hardware", "a10", "-o", path("no/such/folder.json")}, 2, "folder.json");
  refused({"bench", "opt-6.7b", "--hardware", "a10", "--device", "tpu"}, 2, "--device = \"tpu\"");
  refused({"bench", "opt-6.7b", "--hardware", "a10", "--svg", path("no/such/folder.svg")}, 2, "folder.svg");
}

TEST_F(BenchCommand, ThatNothingRanIsAFailure) {
  const Outcome o = headrace({"bench", "opt-6.7b", "--hardware", "a10", "--device", "sim", "--policies", "select-n"});
  EXPECT_EQ(o.status, 1);
  EXPECT_THAT(o.out, HasSubstr("device sim"));
  EXPECT_THAT(o.out, HasSubstr("no objective for decode"));
  EXPECT_THAT(o.err, HasSubstr("nothing ran"));
}

} // namespace
} // namespace headrace::tools
