// SPDX-License-Identifier: Apache-2.0
//
// What a run says was predicted, against the device of virtual time.
#include <gmock/gmock.h>

#include "tests/support/Process.h"

namespace headrace::tools {
namespace {

constexpr const char *kPredictedModel = "llama-7-gqa-llama3-f32";

class RunPredictions : public CommandLine {};

// However little of its bucket an iteration runs, and on whichever device: virtual time is that of what runs, too.
TEST_F(RunPredictions, AreOfWhatRan) {
  ASSERT_EQ(headrace({"compile", golden(kPredictedModel), "--hardware", "host", "--batch", "8", "--context", "64",
                      "--interval", "2", "-o", path("wide.plan")})
                .status,
            0);
  const nlohmann::json all =
      json({"simulate", path("wide.plan"), "--random-input-len", "56", "--num-prompts", "8", "--max-new-tokens", "8"});
  const nlohmann::json few = json({"simulate", path("wide.plan"), "--prompt-ids", "1,2,3;4,5;6", "--max-new-tokens",
                                   "8", "--timeline", path("few.json")});
  for (const char *phase : {"prefill", "changes", "decode"})
    for (const nlohmann::json *run : {&all, &few})
      EXPECT_NEAR((*run)[phase]["ratio"].get<double>(), 1, 1e-6) << phase << " " << (*run)[phase];
  EXPECT_LT(few["prefill"]["predicted_ms"].get<double>(), all["prefill"]["predicted_ms"].get<double>());
  EXPECT_LT(few["decode"]["predicted_ms"].get<double>(), all["decode"]["predicted_ms"].get<double>());
  // So are the planned lanes of a timeline.
  const Outcome drawn = headrace({"timeline", path("wide.plan"), "--measured", path("few.json")});
  EXPECT_THAT(drawn.out, testing::ContainsRegex("; of these 3 tokens ran, of caches of [0-9]+ in sum"));
  EXPECT_THAT(drawn.out, testing::ContainsRegex("iteration +[0-9.]+ .s +[0-9.]+ .s +0 ns"));
}

// With every mechanism, changes and transitions included: the report's prediction and the device of virtual time reckon
// apart from each other.
TEST_F(RunPredictions, AreOfWhatRanWhateverMoves) {
  for (const std::vector<std::string> &flags : std::vector<std::vector<std::string>>{
           {"--interval", "2"},
           {"--device-memory", "1MB"},
           {"--kv-device-memory", "309KiB", "--h2d-bandwidth", "100MB/s"},
           {"--kv-device-memory", "309KiB", "--h2d-bandwidth", "100MB/s", "--kv-write-back", "all"},
           {"--kv-device-memory", "309KiB", "--h2d-bandwidth", "100MB/s", "--kv-write-back", "dirty"},
           {"--kv-device-memory", "309KiB", "--kv-places", "3"},
           {"--policy", "pie", "--kv-device-memory", "600KB"},
           {"--mini-batches", "2", "--interval", "1", "--kv-device-memory", "0B"},
           {"--mini-batches", "2", "--interval", "1", "--residuals", "host"},
           {"--act-ratio", "1/2", "--act-home", "host"}}) {
    SCOPED_TRACE(testing::PrintToString(flags));
    std::vector<std::string> words = {
        "compile", golden(kPredictedModel), "--hardware", "host", "--batch", "8", "--context", "64"};
    words.insert(words.end(), flags.begin(), flags.end());
    words.insert(words.end(), {"-o", path("moves.plan"), "--overwrite"});
    const Outcome made = headrace(words);
    ASSERT_EQ(made.status, 0) << made.err;
    const nlohmann::json run = json(
        {"simulate", path("moves.plan"), "--random-input-len", "20", "--num-prompts", "7", "--max-new-tokens", "12"});
    int iterations = 0;
    for (const char *phase : {"prefill", "changes", "decode"})
      if (!run[phase].is_null()) {
        EXPECT_NEAR(run[phase]["ratio"].get<double>(), 1, 1e-6) << phase << " " << run[phase];
        iterations += run[phase]["iterations"].get<int>();
      }
    EXPECT_EQ(iterations, run["iterations"]);
  }
}

} // namespace
} // namespace headrace::tools
