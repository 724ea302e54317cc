// SPDX-License-Identifier: Apache-2.0
//
// --threads: what computes, what plans are priced for, and what records were measured with.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "tests/support/Process.h"

namespace headrace::tools {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char *kModel = "llama-7-gqa-llama3-f32";

class Threads : public CommandLine {
protected:
  static std::vector<std::string> with(std::vector<std::string> words, const std::vector<std::string> &more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  const std::vector<std::string> run = {"run",          golden(kModel),  "--hardware",       "host",
                                        "--prompt-ids", "1,2,3;4,5,6,7", "--max-new-tokens", "8"};
  const std::vector<std::string> compile = {"compile", golden(kModel), "--hardware", "host", "--batch",
                                            "2",       "--context",    "32"};
};

TEST_F(Threads, TokensAreTheSameWithAnyNumber) {
  const nlohmann::json one = json(with(run, {"--threads", "1"}));
  EXPECT_EQ(one["threads"], 1);
  for (const char *threads : {"2", "3"}) {
    const nlohmann::json more = json(with(run, {"--threads", threads}));
    EXPECT_EQ(more["threads"], std::stoi(threads));
    EXPECT_EQ(more["tokens"], one["tokens"]) << threads;
  }
}

TEST_F(Threads, MoreThanCoresRunAndAreWarnedOf) {
  const Outcome o = headrace(with(run, {"--threads", "300"}));
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr("headrace: warning: --threads 300: this process may use "));
  EXPECT_THAT(o.out, HasSubstr("host, 300 threads"));
}

TEST_F(Threads, ByDefaultAreTheCoresOfTheAffinity) {
  std::string words;
  for (const std::string &word : with(run, {"--json"}))
    words += " '" + word + "'";
  const Outcome o = shell("first=$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//'); env -u HEADRACE_THREADS "
                          "taskset -c $first $HEADRACE" +
                          words);
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_EQ(nlohmann::json::parse(o.out)["threads"], 1);
}

TEST_F(Threads, WhatIsNoNumberOfThreadsIsRefused) {
  for (const char *threads : {"0", "-1", "10000", "two", "1.5", ""}) {
    SCOPED_TRACE(threads);
    refused(with(run, {"--threads", threads}), 2, "--threads = ");
    refused(with(compile, {"--threads", threads, "--dry-run"}), 2, "--threads = ");
  }
  ASSERT_EQ(headrace(with(compile, {"-o", path("m.plan")})).status, 0);
  refused({"run", path("m.plan"), "--prompt-ids", "1,2", "--threads", "0"}, 2,
          "--threads = \"0\": expected an integer from 1 to 1024");
  const Outcome o = shell("HEADRACE_THREADS=none $HEADRACE run " + path("m.plan") + " --prompt-ids 1,2");
  EXPECT_EQ(o.status, 2);
  EXPECT_THAT(o.err, HasSubstr("environment: HEADRACE_THREADS = \"none\": expected an integer from 1 to 1024"));
  EXPECT_EQ(shell("HEADRACE_THREADS='2 ' $HEADRACE run " + path("m.plan") + " --prompt-ids 1,2").status, 2);
  const Outcome many = shell("HEADRACE_THREADS=1000 $HEADRACE run " + path("m.plan") + " --prompt-ids 1,2");
  EXPECT_EQ(many.status, 0) << many.err;
  EXPECT_THAT(many.err, HasSubstr("HEADRACE_THREADS=1000: this process may use "));
}

TEST_F(Threads, OfTheEnvironmentArePlannedByNobody) {
  const auto said = [&](const std::string &threads, const std::string &flags) {
    const Outcome o = shell("HEADRACE_THREADS=" + threads + " $HEADRACE compile " + golden(kModel) +
                            " --hardware host --batch 2 --context 32 --dry-run" + flags);
    EXPECT_EQ(o.status, 0) << o.err;
    return o.err;
  };
  EXPECT_THAT(said("3", ""), HasSubstr("HEADRACE_THREADS=3 is for what runs: this plan is priced for 1 thread; "
                                       "--threads 3 prices it for 3\n"));
  for (const auto &[threads, flags] : {std::pair("1", ""), {"3", " --threads 2"}})
    EXPECT_THAT(said(threads, flags), Not(HasSubstr("HEADRACE_THREADS")));
}

// The core of the last is that of the others for which there is none.
TEST_F(Threads, ThatHaveNoCoreOfTheirOwnArePinnedInWords) {
  std::string words;
  for (const std::string &word : with(run, {"--pin", "--threads", "2"}))
    words += " '" + word + "'";
  const Outcome o = shell("first=$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//'); taskset -c $first $HEADRACE" + words);
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr("warning: --pin: this process may use 1 core: 3 of 3 threads (2 of compute, 1 of "
                               "copies) share core "));
  const Outcome simulated = headrace(with(run, {"--pin", "--device", "sim"}));
  EXPECT_EQ(simulated.status, 0) << simulated.err;
  EXPECT_THAT(simulated.err, HasSubstr("warning: --pin: is for devices that have threads; this is sim"));
}

TEST_F(Threads, AreTheHostDevicesAlone) {
  refused(
      {"compile", "opt-6.7b", "--hardware", "a10", "--batch", "1", "--context", "64", "--threads", "2", "--dry-run"}, 2,
      "--threads = 2: expected 1");
  ASSERT_EQ(headrace(with(compile, {"-o", path("m.plan")})).status, 0);
  refused({"simulate", path("m.plan"), "--prompt-ids", "1,2", "--threads", "2"}, 2, "--threads beside the plan");
  refused({"run", path("m.plan"), "--device", "sim", "--prompt-ids", "1,2", "--threads", "2"}, 2,
          "--threads on the sim device");
}

// A plan is priced for one thread unless it is said, wherever it is made.
TEST_F(Threads, AreWhatAPlanIsPricedFor) {
  const auto decodeMs = [&](const std::vector<std::string> &more) {
    return json(with({"simulate", "tinyllama-1.1b", "--hardware", "host", "--random-input-len", "4", "--max-new-tokens",
                      "4", "--json"},
                     more))["decode"]["predicted_ms"]
        .get<double>();
  };
  const double one = decodeMs({}), two = decodeMs({"--threads", "2"}), four = decodeMs({"--threads", "4"});
  EXPECT_NEAR(one / two, 2, 0.05);  // 20 GB/s each
  EXPECT_NEAR(two / four, 1, 0.01); // of 40 in all
  EXPECT_EQ(decodeMs({"--threads", "1"}), one);
  EXPECT_NEAR(decodeMs({"--threads", "4", "--memory-bandwidth-limit", "80GB/s"}), two / 2, two * 0.05);
  ASSERT_EQ(headrace(with(compile, {"-o", path("one.plan")})).status, 0);
  ASSERT_EQ(headrace(with(compile, {"--threads", "1", "-o", path("said.plan")})).status, 0);
  EXPECT_EQ(readFile(path("one.plan")), readFile(path("said.plan")));
  ASSERT_EQ(headrace(with(compile, {"--threads", "3", "-o", path("three.plan")})).status, 0);
  const Outcome o = headrace({"run", path("three.plan"), "--prompt-ids", "1,2", "--threads", "2"});
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("host, 2 threads; the plan is priced for 3 threads"));
}

TEST_F(Threads, ARecordOfAnotherNumberIsRefused) {
  const std::vector<std::string> profile = {"profile", "tinyllama-1.1b", "--device", "sim", "--batches",
                                            "1,2",     "--sequences",    "64,128",   "-o",  path("r.toml")};
  ASSERT_EQ(headrace(with(profile, {"--threads", "2"})).status, 0);
  EXPECT_THAT(readFile(path("r.toml")), HasSubstr("\nthreads = 2\n"));
  refused(with(profile, {"--threads", "3"}), 2, "hardware.threads = 2: this record was measured with so many threads");
  const std::vector<std::string> priced = {"compile", "tinyllama-1.1b", "--record", path("r.toml"), "--batch",
                                           "1",       "--context",      "128",      "--dry-run"};
  refused(priced, 2, "hardware.threads = 2: this record was measured with so many threads, expected 1 (--threads)");
  EXPECT_EQ(headrace(with(priced, {"--threads", "2"})).status, 0);
}

TEST_F(Threads, AProfileOfTheProcessorHasARowANumber) {
  const nlohmann::json figures = json({"profile", "--cpu", "--threads", "3", "--seconds-per-pair", "0.1"})["figures"];
  ASSERT_EQ(figures.size(), 3u);
  for (const int i : {0, 1, 2}) {
    EXPECT_EQ(figures[i]["threads"], i + 1);
    for (const char *rate :
         {"read_bytes_per_second", "linear_one_row_bytes_per_second", "linear_192_rows_flops_per_second",
          "linear_one_row_q4_weights_per_second", "attention_bytes_per_second"})
      EXPECT_GT(figures[i][rate], 1e6) << rate;
    for (const char *part : {"linear_one_row_bytes_per_second", "attention_bytes_per_second"})
      EXPECT_LE(figures[i][part], figures[i]["read_bytes_per_second"]) << part;
  }
  refused({"profile", "tinyllama-1.1b", "--cpu"}, 2, "--cpu: expected no model");
  refused({"profile", "--cpu", "--device", "sim"}, 2, "--cpu beside --device: expected it alone");
  refused({"profile", "--cpu", "--batches", "1"}, 2, "--cpu beside --batches: expected it alone");
  refused({"profile", "--cpu", "--force"}, 2, "--cpu beside --force: expected it alone");
}

} // namespace
} // namespace headrace::tools
