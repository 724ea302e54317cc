// SPDX-License-Identifier: Apache-2.0
//
// A TTFT is the time to a request's first token, which ends its whole prompt. The four layers take 43 ms an iteration
// of 16 rows with nothing offloaded (40 read weights), so a prompt of 48 tokens takes 129 ms.
#include <gmock/gmock.h>

#include <cmath>

#include "tests/support/Process.h"
#include "tests/support/SourceDir.h"

namespace headrace::tools {
namespace {

using testing::HasSubstr;
using testing::Not;

class Ttft : public CommandLine {
protected:
  using Words = std::vector<std::string>;

  static Words four(Words command, const Words &more) {
    const Words sizes = {sourceDir() + "/examples/jobs/four-layers.toml", "--context", "64", "--contexts", "64"};
    command.insert(command.end(), sizes.begin(), sizes.end());
    command.insert(command.end(), more.begin(), more.end());
    return command;
  }
  static Outcome compile(const std::string &policy, const std::string &ttft, const Words &more = {}) {
    Words words = four({"compile"}, {"--dry-run", "--new-tokens", "16", "--policy", policy, "--ttft", ttft});
    words.insert(words.end(), more.begin(), more.end());
    return headrace(words);
  }
  // The last of "the minimum TTFT is 160.5ms", in ns; 0: none.
  static int64_t minimumOf(const std::string &message) {
    const std::string before = "minimum TTFT is ";
    const size_t at = message.rfind(before);
    return at == std::string::npos ? 0 : std::llround(std::stod(message.substr(at + before.size())) * 1e6);
  }
};

TEST_F(Ttft, CompileRefusesWhatThePromptMissesWithTheLeastThatDoes) {
  for (const char *policy : {"select-n", "headrace", "vllm-prefetch"})
    for (const char *ttft : {"1ms", "100ms", "130ms"}) { // less than an iteration; two of them; three
      const Outcome refused = compile(policy, ttft);
      SCOPED_TRACE(testing::Message() << policy << " " << ttft << ": " << refused.err);
      ASSERT_EQ(refused.status, 1);
      EXPECT_THAT(refused.err, HasSubstr("a prompt of 63 tokens takes 4 iterations"));
      const int64_t least = minimumOf(refused.err);
      ASSERT_GE(least, 160'000'000); // four iterations with nothing offloaded
      EXPECT_EQ(compile(policy, std::to_string(least) + "ns").status, 0);
      const Outcome below = compile(policy, std::to_string(least - 1) + "ns");
      EXPECT_EQ(below.status, 1);
      EXPECT_EQ(minimumOf(below.err), least);
    }
}

TEST_F(Ttft, TheLengthIsTheGoalsOrTheLongestThatContextAndOutputLeave) {
  EXPECT_EQ(compile("select-n", "70ms", {"--input-len", "16"}).status, 0); // one iteration
  EXPECT_THAT(compile("select-n", "70ms", {"--input-len", "17"}).err, HasSubstr("a prompt of 17 tokens takes 2 iter"));
  EXPECT_EQ(compile("select-n", "70ms", {"--output-len", "48"}).status, 0); // leaves 16
  EXPECT_THAT(compile("select-n", "70ms", {"--output-len", "47"}).err, HasSubstr("a prompt of 17 tokens takes 2 iter"));
  refused(four({"compile"}, {"--dry-run", "--input-len", "60", "--output-len", "5"}), 2,
          "--input-len = 60: expected with 5 of output at most --context = 64");
  refused(four({"compile"}, {"--dry-run", "--output-len", "64"}), 2, "--output-len = 64: expected less than");
  // What was asked for stands in the plan, and leads to it again.
  const nlohmann::json plan = json(four({"compile"}, {"--dry-run", "--json", "--ttft", "1s", "--input-len", "20",
                                                      "--output-len", "30", "--new-tokens", "16"}));
  EXPECT_THAT(plan.dump(), HasSubstr("--input-len 20 --output-len 30"));
}

// Of a policy that does not choose by it, too, unless that is allowed.
TEST_F(Ttft, APolicyThatDoesNotChooseByItMayMissIt) {
  const Words prompt = {"--input-len", "48"};
  const Outcome missed = compile("none", "100ms", prompt);
  EXPECT_EQ(missed.status, 1);
  EXPECT_THAT(missed.err, HasSubstr("TTFT of 100ms is missed by policy none, which does not choose by it"));
  EXPECT_THAT(missed.err, HasSubstr("a prompt of 48 tokens takes 3 iterations"));
  const std::string least = "so the minimum TTFT is ";
  ASSERT_THAT(missed.err, HasSubstr(least));
  const std::string time = missed.err.substr(missed.err.find(least) + least.size());
  EXPECT_EQ(compile("none", time.substr(0, time.find("ms") + 2), prompt).status, 0);
  EXPECT_EQ(compile("none", "100ms", {"--input-len", "48", "--allow-missed"}).status, 0);
}

// Where policies are compared nothing is refused.
TEST_F(Ttft, BenchHoldsItForAllChunks) {
  const nlohmann::json row =
      json(four({"bench"}, {"--device", "sim", "--policies", "none", "--batches", "1", "--input-len", "48",
                            "--output-len", "3", "--max-num-batched-tokens", "16", "--phase", "prefill", "--ttft",
                            "100ms", "--json"}))["rows"][0]["prefill"];
  EXPECT_EQ(row["slo_ms"], 100);
  EXPECT_NEAR(row["p50_ms"].get<double>(), 3 * 43, 0.5);
  EXPECT_NEAR(row["over_slo"].get<double>(), 1.29, 0.005);
  EXPECT_EQ(row["attainment"], 0);
}

// Of a batch at once the second prompt is read behind the first: 6 iterations from its arrival.
TEST_F(Ttft, SimulateAndBenchServeHoldItFromArrival) {
  ASSERT_EQ(headrace(four({"compile"}, {"--batch", "2", "--sequences", "2", "--new-tokens", "16", "--policy", "none",
                                        "--ttft", "200ms", "--input-len", "48", "-o", path("four.plan")}))
                .status,
            0);
  const Words load = {"--random-input-len", "48", "--num-prompts", "2"};
  const auto heldBy = [&](Words words, const Words &more) {
    words.push_back(path("four.plan"));
    words.insert(words.end(), load.begin(), load.end());
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const nlohmann::json run = json(heldBy({"simulate"}, {"--max-new-tokens", "1", "--json"}));
  EXPECT_EQ(run["ttft_held"]["objective_ms"], 200);
  EXPECT_EQ(run["ttft_held"]["requests"], 2);
  EXPECT_EQ(run["ttft_held"]["late"], 1);
  EXPECT_NEAR(run["ttft_held"]["longest_ms"].get<double>(), 6 * 43, 1);
  EXPECT_THAT(headrace(heldBy({"simulate"}, {"--max-new-tokens", "1"})).out, HasSubstr("1 of 2 were longer"));
  const Words served = {"--device", "sim", "--random-output-len", "1"};
  EXPECT_EQ(json(heldBy({"bench", "serve"},
                        {"--device", "sim", "--random-output-len", "1", "--json"}))["results"][0]["ttft_held"],
            run["ttft_held"]);
  EXPECT_THAT(headrace(heldBy({"bench", "serve"}, served)).out, HasSubstr("1 of 2 were longer"));
  // One after the other each has the engine to itself.
  const nlohmann::json alone = json(
      heldBy({"bench", "serve"}, {"--device", "sim", "--random-output-len", "1", "--max-concurrency", "1", "--json"}));
  EXPECT_EQ(alone["results"][0]["ttft_held"]["late"], 0);
}

// Without an objective nothing is said of one.
TEST_F(Ttft, WithoutAnObjectiveNothingIsHeld) {
  const nlohmann::json run = json(four({"simulate"}, {"--policy", "none", "--slo-factor", "2", "--new-tokens", "16",
                                                      "--random-input-len", "48", "--max-new-tokens", "1", "--json"}));
  EXPECT_TRUE(run["ttft_held"].is_null());
}

// A device of a fleet whose job has a TTFT: of the longest prompt of the file's requests.
TEST_F(Ttft, AFleetIsRefusedTooOnceItsPlansAreMade) {
  const auto fleet = [&](const std::string &prompts, const std::string &ttft) {
    std::string job = readFile(sourceDir() + "/examples/jobs/four-layers.toml");
    for (const auto &[what, by] : {std::pair<std::string, std::string>{"\ncontext = 16\n", "\ncontext = 64\n"},
                                   {"\nslo_factor = 1.5 ", "\nttft = \"" + ttft + "\" "},
                                   {"\nnew_tokens = [1]\n", "\nnew_tokens = [16]\n"},
                                   {"\ncontexts = [16]", "\ncontexts = [64]"}})
      job.replace(job.find(what), what.size(), by);
    writeText(path("job.toml"), job);
    writeText(path("fleet.toml"), "[bus]\nbandwidth = \"1GB/s\"\n[[device]]\nname = \"d\"\njob = \"job.toml\"\n"
                                  "[[requests]]\nmodel = \"four\"\ncount = 2\nevery = \"1s\"\nbatch = 1\ninput_len = " +
                                      prompts + "\noutput_len = 3\nttft = \"9s\"\ntpot = \"1s\"\n");
    return headrace({"fleet", path("fleet.toml")});
  };
  EXPECT_EQ(fleet("16", "70ms").status, 0);
  const Outcome refused = fleet("[16, 48]", "70ms");
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.err, HasSubstr("a prompt of 48 tokens takes 3 iterations"));
}

} // namespace
} // namespace headrace::tools
