// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>
#include <filesystem>

#include <gmock/gmock.h>

#include "tests/support/Process.h"
#include "tests/support/PseudoTerminal.h"

namespace headrace::tools {
namespace {

using testing::HasSubstr;

constexpr const char *kModel = "llama-7-gqa-llama3-f32";

std::string idsText(const nlohmann::json &prompts) {
  std::string text;
  for (const auto &prompt : prompts) {
    std::string one;
    for (const int id : prompt)
      one += (one.empty() ? "" : ",") + std::to_string(id);
    text += (text.empty() ? "" : ";") + one;
  }
  return text;
}

class Run : public CommandLine {
protected:
  static std::vector<std::string> run(const std::string &what, std::vector<std::string> more) {
    std::vector<std::string> all = {"run", what};
    if (!what.ends_with(".plan")) // which has its hardware
      all.insert(all.end(), {"--hardware", "host"});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::string plan(std::vector<std::string> more = {"--interval", "2"}) const {
    std::vector<std::string> all = {"compile", golden(kModel), "--hardware", "host", "--batch",
                                    "2",       "--context",    "32",         "-o",   path("out.plan")};
    all.insert(all.end(), more.begin(), more.end());
    EXPECT_EQ(headrace(all).status, 0);
    return path("out.plan");
  }
};

TEST_F(Run, AModelFolderGivesTheReferencesTokens) {
  const nlohmann::json expected = reference(kModel);
  const std::string newTokens = std::to_string(expected["tokens"][0].size());
  const nlohmann::json resident =
      json(run(golden(kModel), {"--prompt-ids", idsText(expected["prompts"]), "--max-new-tokens", newTokens}));
  EXPECT_EQ(resident["tokens"], expected["tokens"]);
  EXPECT_EQ(resident["offloaded_layers"], 0);
  EXPECT_EQ(resident["h2d_bytes"], 0);
  const nlohmann::json offloaded = json(run(golden(kModel), {"--prompt-ids", idsText(expected["prompts"]),
                                                             "--max-new-tokens", newTokens, "--interval", "2"}));
  EXPECT_EQ(offloaded["tokens"], expected["tokens"]);
  EXPECT_EQ(offloaded["offloaded_layers"], 3);
}

TEST_F(Run, JsonHasTheFieldsByName) {
  const nlohmann::json j =
      json(run(golden(kModel), {"--prompt-ids", "1,2,3;4,5", "--max-new-tokens", "8", "--offload-layers", "3"}));
  ASSERT_EQ(j["tokens"].size(), 2u);
  EXPECT_EQ(j["tokens"][0].size(), 8u);
  for (const char *key :
       {"ttft_ms", "tpot_ms", "peak_device_bytes", "h2d_bytes", "predicted_tpot_ms", "measured_over_predicted"})
    EXPECT_GT(j[key].get<double>(), 0) << key;
  EXPECT_GE(j["stall_ms"].get<double>(), 0);
  EXPECT_EQ(j["offloaded_layers"], 3);
  EXPECT_EQ(j["missing_variants"], 0);
  EXPECT_EQ(j["manifest"]["planned"], j["manifest"]["loaded"]);
  EXPECT_GT(j["manifest"]["loaded"]["host"].get<int64_t>(), 0);
}

TEST_F(Run, TheManifestStandsOnStandardOutputOrBesideJson) {
  const std::vector<std::string> arguments = {"--prompt-ids", "1", "--max-new-tokens", "2"};
  const Outcome text = headrace(run(golden(kModel), arguments));
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("weights by home"));
  EXPECT_THAT(text.out, HasSubstr("\nTTFT "));
  EXPECT_EQ(text.err, ""); // no progress: it is no terminal
  auto withJson = run(golden(kModel), arguments);
  withJson.emplace_back("--json");
  EXPECT_THAT(headrace(withJson).err, HasSubstr("weights by home"));
}

// Copies so slow that eight iterations take above two seconds.
TEST_F(Run, LongWorkShowsItselfOnATerminalAndNotBesideJson) {
  const std::string file = plan();
  const auto arguments = [&](const std::string &bandwidth) {
    return run(file, {"--prompt-ids", "1,2,3", "--max-new-tokens", "8", "--link-bandwidth", bandwidth});
  };
  const nlohmann::json moved = json({"simulate", file, "--prompt-ids", "1,2,3", "--max-new-tokens", "8"});
  const std::string slow = std::to_string(moved["h2d_bytes"].get<int64_t>() * 10 / 24) + "B/s"; // 2.4 s for all
  const Outcome shown = headraceOnTerminal(arguments(slow));
  ASSERT_EQ(shown.status, 0) << shown.err;
  EXPECT_THAT(shown.err, testing::ContainsRegex("\rgenerating  [1-9] s so far, iteration [1-8]"));
  EXPECT_TRUE(shown.err.ends_with("\r\x1b[K")) << shown.err; // and is taken away
  EXPECT_EQ(headrace(arguments(slow)).err, "");              // no terminal, no ten seconds
  auto withJson = arguments(slow);
  withJson.emplace_back("--json");
  EXPECT_THAT(headraceOnTerminal(withJson).err, testing::Not(HasSubstr("generating")));
  EXPECT_EQ(headraceOnTerminal(arguments("10GB/s")).err, ""); // what is over within a second leaves no trace
}

TEST_F(Run, APlanRunsWithTheWeightsItWasMadeFrom) {
  const std::string file = plan();
  const nlohmann::json j = json(run(file, {"--prompt-ids", "1,2,3;4,5", "--max-new-tokens", "6"}));
  EXPECT_EQ(j["tokens"], json(run(golden(kModel), {"--prompt-ids", "1,2,3;4,5", "--max-new-tokens", "6"}))["tokens"]);
  EXPECT_EQ(j["plan"], file);
}

TEST_F(Run, SyntheticWeightsAreTheSameForASeedAndForEveryPlacement) {
  const auto tokens = [&](const char *seed, const char *layers) {
    return json(run("opt-6.7b", {"--layers",
                                 "2",
                                 "--hidden",
                                 "64",
                                 "--heads",
                                 "4",
                                 "--head-dim",
                                 "16",
                                 "--kv-heads",
                                 "4",
                                 "--intermediate",
                                 "128",
                                 "--vocab",
                                 "200",
                                 "--dtype",
                                 "f32",
                                 "--synthetic-weights",
                                 seed,
                                 "--offload-layers",
                                 layers,
                                 "--prompt-ids",
                                 "1,2,3",
                                 "--max-new-tokens",
                                 "8"}))["tokens"];
  };
  EXPECT_EQ(tokens("1", "0"), tokens("1", "2"));
  EXPECT_NE(tokens("1", "0"), tokens("2", "0"));
}

TEST_F(Run, SampledTokensDependOnTheSeed) {
  const auto tokens = [&](const char *seed) {
    return json(run(golden(kModel), {"--prompt-ids", "1,2,3", "--max-new-tokens", "16", "--temperature", "5", "--seed",
                                     seed}))["tokens"];
  };
  EXPECT_EQ(tokens("1"), tokens("1"));
  EXPECT_NE(tokens("1"), tokens("2"));
}

TEST_F(Run, StopIdsEndASequence) {
  const auto tokens = json(run(golden(kModel), {"--prompt-ids", "1,2,3", "--max-new-tokens", "12"}))["tokens"][0];
  const int third = tokens[2];
  const auto stopped = json(run(golden(kModel), {"--prompt-ids", "1,2,3", "--max-new-tokens", "12", "--stop-ids",
                                                 std::to_string(third)}))["tokens"][0];
  EXPECT_EQ(stopped.back(), third);
  EXPECT_LE(stopped.size(), 3u);
}

TEST_F(Run, PromptsComeFromFilesToo) {
  writeText(path("ids"), "1,2,3\n4,5\n");
  const auto expected = json(run(golden(kModel), {"--prompt-ids", "1,2,3;4,5", "--max-new-tokens", "4"}))["tokens"];
  EXPECT_EQ(json(run(golden(kModel), {"--prompt-ids-file", path("ids"), "--max-new-tokens", "4"}))["tokens"], expected);
  EXPECT_EQ(json(run(golden(kModel), {"--prompt-ids", path("ids"), "--max-new-tokens", "4"}))["tokens"], expected);
}

TEST_F(Run, LogitsAreWrittenAsSafetensorsWhoseArgmaxIsTheToken) {
  const auto j = json(
      run(golden(kModel), {"--prompt-ids", "1,2,3;4,5", "--max-new-tokens", "3", "--logits", path("l.safetensors")}));
  const std::string file = readFile(path("l.safetensors"));
  uint64_t length = 0;
  ASSERT_GT(file.size(), 8u);
  std::memcpy(&length, file.data(), 8);
  const auto header = nlohmann::json::parse(file.substr(8, length));
  ASSERT_EQ(header["logits.1"]["dtype"], "F32");
  ASSERT_EQ(header["logits.1"]["shape"][0], 3);
  const size_t vocab = header["logits.1"]["shape"][1];
  const size_t offset = 8 + length + header["logits.1"]["data_offsets"][0].get<size_t>();
  for (size_t t = 0; t < 3; ++t) {
    std::vector<float> row(vocab);
    std::memcpy(row.data(), file.data() + offset + t * vocab * 4, vocab * 4);
    EXPECT_EQ(std::max_element(row.begin(), row.end()) - row.begin(), j["tokens"][1][t].get<int64_t>());
  }
}

TEST_F(Run, TraceAndTimelineStandBesideThePlan) {
  const std::string file = plan();
  const Outcome o = headrace(run(file, {"--prompt-ids", "1,2,3;4,5", "--max-new-tokens", "6", "--trace", path("t.json"),
                                        "--timeline", path("t.svg")}));
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(readFile(path("t.svg")), HasSubstr("measured (host)"));
  const auto trace = nlohmann::json::parse(readFile(path("t.json")));
  const std::string variant = std::to_string(trace["otherData"]["variant"].get<int>());
  const Outcome both =
      headrace({"timeline", file, "--variant", variant, "--measured", path("t.json"), "--format", "json"});
  ASSERT_EQ(both.status, 0) << both.err;
  std::vector<std::string> processes;
  const auto drawn = nlohmann::json::parse(both.out);
  for (const auto &event : drawn["traceEvents"])
    if (event["name"] == "process_name")
      processes.push_back(event["args"]["name"]);
  EXPECT_THAT(processes, testing::ElementsAre(
                             "planned", testing::ContainsRegex("measured .host., iteration [1-6] of 6, (the|near the) "
                                                               "median of 5 of its variant")));
  refused({"timeline", file, "--variant", variant == "0" ? "1" : "0", "--measured", path("t.json")}, 2,
          "expected --variant");
}

// One format: whatever a timeline's JSON was written by, it opens in Perfetto and stands beside the plan.
TEST_F(Run, TheTraceIsTheTimelinesJson) {
  const std::string file = plan();
  const auto prompts = {"--prompt-ids", "1,2,3;4,5", "--max-new-tokens", "6"};
  std::vector<std::string> arguments = {"simulate", file, "--trace", path("t"), "--timeline", path("t.json")};
  arguments.insert(arguments.end(), prompts.begin(), prompts.end());
  ASSERT_EQ(headrace(arguments).status, 0);
  EXPECT_EQ(readFile(path("t")), readFile(path("t.json")));
  EXPECT_TRUE(nlohmann::json::parse(readFile(path("t")))["traceEvents"].is_array());
  const Outcome again =
      headrace({"timeline", file, "--measured", path("t"), "--format", "json", "-o", path("again.json")});
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(readFile(path("again.json")), readFile(path("t")));
  EXPECT_EQ(headrace({"timeline", file, "--measured", path("again.json")}).status, 0);
}

// What a look at an iteration takes is taken off again: in virtual time to the nanosecond.
TEST_F(Run, TimesAreTheSameWhereIterationsAreLookedAt) {
  const std::string file = plan();
  std::vector<std::string> arguments = {"simulate", file, "--prompt-ids", "1,2,3;4,5", "--max-new-tokens", "12"};
  const nlohmann::json alone = json(arguments);
  arguments.insert(arguments.end(), {"--timeline", path("t.svg")});
  const nlohmann::json looked = json(arguments);
  for (const char *key : {"ttft_ms", "tpot_ms", "prefill", "decode", "stall_ms", "h2d_bytes", "tokens"})
    EXPECT_EQ(looked[key], alone[key]) << key;
}

TEST_F(Run, SaysWhatLimitsAndWhichCopiesComputeWaitedFor) {
  const std::string file = plan();
  const std::vector<std::string> arguments = {"simulate",         file, "--prompt-ids",     "1,2,3;4,5",
                                              "--max-new-tokens", "8",  "--link-bandwidth", "10MB/s"};
  const Outcome text = headrace(arguments);
  ASSERT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("\nlimited by       link h2d in decode (predicted: compute "));
  EXPECT_THAT(text.out, testing::ContainsRegex("\nwaited for       L[0-9]+ [a-z]+ "));
  const nlohmann::json j = json(arguments);
  EXPECT_EQ(j["limited_by"]["decode"]["resource"], "link h2d");
  EXPECT_EQ(j["limited_by"]["prefill"]["resource"], "link h2d");
  ASSERT_FALSE(j["waited_for"]["copies"].empty());
  double waited = 0;
  for (const auto &copy : j["waited_for"]["copies"])
    waited += copy["ms"].get<double>();
  // Those within one iteration are a share of all: 8 iterations, the first starts with what transitions brought. What
  // compute waits for from one to the next is all of what copies take that the next one needs first.
  const double stalled = j["stall_ms"].get<double>() / 8;
  EXPECT_LE(waited, 1.15 * stalled);
  EXPECT_GE(waited, 0.5 * stalled);
  // Nothing to wait for, nothing said.
  const Outcome resident =
      headrace({"simulate", golden(kModel), "--hardware", "host", "--prompt-ids", "1,2,3", "--max-new-tokens", "4"});
  EXPECT_THAT(resident.out, HasSubstr("limited by       compute in decode"));
  EXPECT_THAT(resident.out, testing::Not(HasSubstr("waited for")));
}

// A profile of a machine a thousand times slower: every step takes a fraction of what was predicted.
TEST_F(Run, AProfileOfAnotherMachineIsNamedAsTheReason) {
  const auto arguments = run(golden(kModel), {"--prompt-ids", "1,2,3", "--max-new-tokens", "6", "--flops-f32",
                                              "1MFLOP/s", "--flops-f16", "1MFLOP/s", "--memory-bandwidth", "1MB/s"});
  const Outcome text = headrace(arguments);
  ASSERT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out,
              testing::ContainsRegex("\nwhy              decode took 0\\.[0-9]+ x the predicted time, as compute did: "
                                     "compute 0\\.[0-9]+ x"));
  EXPECT_THAT(text.out, HasSubstr("headrace profile " + golden(kModel) + " -o record.toml"));
  const nlohmann::json j = json(arguments);
  EXPECT_THAT(j["why"]["decode"].get<std::string>(), HasSubstr("is not of this machine"));
  EXPECT_TRUE(
      json({"simulate", golden(kModel), "--hardware", "host", "--prompt-ids", "1,2,3", "--max-new-tokens", "6"})["why"]
          .empty());
}

TEST_F(Run, SimulateTakesTheTimeThatWasPredicted) {
  const nlohmann::json j = json({"simulate", "opt-30b", "--hardware", "a10", "--device-memory", "20GiB",
                                 "--random-input-len", "128", "--num-prompts", "4", "--max-new-tokens", "16"});
  EXPECT_EQ(j["device"], "sim");
  EXPECT_EQ(j["tokens"].size(), 4u);
  EXPECT_EQ(j["tokens_made_up"], true); // nothing was computed
  EXPECT_GT(j["offloaded_layers"], 0);
  EXPECT_NEAR(j["measured_over_predicted"].get<double>(), 1, 0.01);
  // Weights of the offloaded layers cross the link in every iteration.
  EXPECT_GT(j["h2d_bytes"].get<double>(), 10e9 * j["iterations"].get<double>());
}

TEST_F(Run, ASlowerLinkIsSlowerInSim) {
  const std::string file = plan();
  const auto tpot = [&](const char *bandwidth) {
    return json({"simulate", file, "--prompt-ids", "1,2,3;4,5", "--max-new-tokens", "8", "--link-bandwidth",
                 bandwidth})["tpot_ms"]
        .get<double>();
  };
  const double fast = tpot("1GB/s"), slow = tpot("500MB/s");
  EXPECT_GT(slow, fast);
  EXPECT_LT(slow, 2.2 * fast);
}

// The plan was made for the profile's link; what is compared with the run is what its own link gives.
TEST_F(Run, ThePredictionIsForTheLinkOfTheRun) {
  const std::string file = plan();
  for (const char *bandwidth : {"1GB/s", "10MB/s"}) {
    const nlohmann::json j =
        json({"simulate", file, "--prompt-ids", "1,2,3;4,5", "--max-new-tokens", "8", "--link-bandwidth", bandwidth});
    EXPECT_NEAR(j["measured_over_predicted"].get<double>(), 1, 0.01) << bandwidth;
  }
}

TEST_F(Run, RequestsThatCannotBeServedAreRefusedByNameBeforeAnythingRuns) {
  const std::string file = plan(); // batch 2, context 32
  refused(run(file, {"--prompt-ids", ""}), 2, "prompt 0 = \"\": expected at least one token id");
  refused(run(file, {"--prompt-ids", ";"}), 2, "prompt 0 = \"\": expected at least one token id");
  refused(run(file, {"--prompt-ids", "1;;2"}), 2,
          "command line: --prompt-ids: prompt 1 = \"\": expected at least one token id");
  refused(run(file, {"--prompt-ids", "1,a"}), 2, "command line: --prompt-ids: prompt 0 = \"a\": expected a token id");
  refused(run(file, {"--prompt-ids", "1,-2"}), 2, "\"-2\": expected a token id");
  refused(run(file, {"--prompt-ids", "1,2,3;4,9999999"}), 2,
          "prompt 1: token id 9999999 at position 1 is outside the vocabulary");
  refused(run(file, {"--prompt-ids", "1", "--max-num-seqs", "3"}), 2,
          "command line: --max-num-seqs = 3: expected 1 to 2, the plan's batch");
  refused(run(file, {"--prompt-ids", "1", "--max-num-seqs", "0"}), 2, "--max-num-seqs = \"0\": expected an integer");
  refused(run(file, {"--prompt-ids", "1", "--max-num-batched-tokens", "1"}), 2,
          "command line: --max-num-batched-tokens = 1: expected at least 2, the plan's batch");
  refused(run(file, {"--prompt-ids", "1", "--max-num-batched-tokens", "1000000"}), 2,
          "command line: --max-num-batched-tokens = 1000000: expected at most ");
  refused(run(file, {"--prompt-ids", "1", "--scheduler", "orca"}), 2,
          "--scheduler = \"orca\": expected vllm or static");
  refused(run(file, {"--prompt-ids", "1", "--separate-prefill", "--no-chunked-prefill"}), 2,
          "--separate-prefill beside --no-chunked-prefill");
  refused(run(file, {"--prompt-ids", "1,2,3", "--max-new-tokens", "30"}), 2,
          "prompt 0: 3 tokens and 30 new ones are more than the plan's context of 32");
  refused(run(file, {"--prompt-ids", "1", "--max-new-tokens", "0"}), 2,
          "--max-new-tokens = \"0\": expected an integer from 1 to 2147483648");
  refused(run(file, {"--prompt-ids", "1", "--temperature", "-1"}), 2, "--temperature = \"-1\": expected 0 or more");
  refused(run(file, {"--prompt-ids", "1", "--top-p", "0"}), 2, "--top-p = \"0\": expected more than 0 and at most 1");
  refused(run(file, {"--prompt-ids", "1", "--stop-ids", "1;2"}), 2, "--stop-ids");
  refused(run(file, {}), 2,
          "no prompts: expected one of --prompt, --prompt-file, --prompts and --messages, or --prompt-ids, "
          "--prompt-ids-file or --random-input-len");
  refused(run(file, {"--prompt-ids", "1", "--random-input-len", "3"}), 2,
          "--prompt-ids beside --random-input-len: expected one of them");
  refused(run(file, {"--prompt-ids-file", path("missing")}), 2, path("missing"));
  refused(run(golden(kModel), {"--prompt-ids", "1", "--max-new-tokens", "100000"}), 2, "positions of");
  refused(run(golden(kModel), {"--prompt-ids", "1;2;3", "--batch", "2", "--max-num-seqs", "3"}), 2,
          "--max-num-seqs = 3: expected 1 to 2, the plan's batch");
  refused(run(golden(kModel), {"--random-input-len", "1e5", "--num-prompts", "1e5"}), 2, "at most 2^31 tokens");
  // Before 8 GiB of them are drawn.
  refused(run(golden(kModel), {"--random-input-len", "2147483648"}), 2,
          "--random-input-len: prompt 0 of 2147483648 tokens with its 16 new tokens: expected at most ");
}

// Prompts that find no seat wait, whatever the scheduler; each gets the tokens that it gets alone.
// Copies so slow that an iteration takes some 80 ms. Who runs with --json, or sends the signal, gets the same; so does
// who computes with several threads, each on a core of its own.
TEST_F(Run, AnInterruptPrintsWhatThereIsByThen) {
  for (const bool threads : {false, true}) {
    std::vector<std::string> words = {"run",  golden("text-models/qwen3-chat"), "--hardware", "host", "--prompt-ids",
                                      "1,2;3"};
    for (const auto &[flag, value] : {std::pair<std::string, std::string>("--interval", "1"),
                                      {"--link-bandwidth", "2MB/s"},
                                      {"--max-new-tokens", "100"},
                                      {"--logits", path("logits")},
                                      {"--threads", threads ? "3" : "1"}})
      words.insert(words.end(), {flag, value});
    if (threads)
      words.push_back("--pin");
    PseudoTerminal terminal(words);
    terminal.waitUntil([](const std::string &shown) { return shown.find("iteration ") != std::string::npos; });
    terminal.type("\x03");
    const std::string shown =
        terminal.waitUntil([](const std::string &all) { return all.find("\nwaited for") != std::string::npos; });
    EXPECT_THAT(shown, testing::ContainsRegex("tokens 0 +[0-9]+,[0-9,]+\ntokens 1 +[0-9]+,[0-9,]+\n"));
    EXPECT_THAT(shown, HasSubstr("interrupted: ends with the iteration that runs"));
    EXPECT_THAT(shown, HasSubstr("interrupted      2 of 2 replies are what there was by then"));
    EXPECT_EQ(terminal.status(), 128 + SIGINT);
    EXPECT_EQ(files(), std::vector<std::string>{}); // of half a run no logits are written
  }
}

TEST_F(Run, MorePromptsThanSeatsWaitTheirTurn) {
  const std::string file = plan(); // batch 2
  const std::vector<std::string> five = {"--prompt-ids", "1,2,3;4,5;6;7,8,9,10;11", "--max-new-tokens", "6"};
  const nlohmann::json expected = json(run(golden(kModel), five))["tokens"]; // five at once
  ASSERT_EQ(expected.size(), 5u);
  const auto with = [&](const std::string &what, std::vector<std::string> more) {
    more.insert(more.end(), five.begin(), five.end());
    return json(run(what, more));
  };
  EXPECT_EQ(with(file, {})["tokens"], expected);
  EXPECT_EQ(with(file, {"--max-num-seqs", "1"})["tokens"], expected);
  EXPECT_EQ(with(file, {"--max-num-batched-tokens", "2"})["tokens"], expected);
  EXPECT_EQ(with(file, {"--no-chunked-prefill"})["tokens"], expected);
  EXPECT_EQ(with(golden(kModel), {"--max-num-seqs", "2"})["tokens"], expected);
  EXPECT_EQ(with(golden(kModel), {"--max-num-seqs", "2", "--batch", "4"})["tokens"], expected);
  // A job's own batch and buckets stay, and seats are fewer.
  writeText(path("job.toml"), "[model]\npath = \"" + golden(kModel) +
                                  "\"\n[goal]\nbatch = 2\ncontext = 32\n[buckets]\nsequences = [1, 2]\n");
  const nlohmann::json one = with(path("job.toml"), {"--max-num-seqs", "1"}), two = with(path("job.toml"), {});
  EXPECT_EQ(one["tokens"], expected);
  EXPECT_GT(one["iterations"], two["iterations"]);
  // Batches of 3 and 2 tokens, 1 and 4, and 1: 1 + 3 rows of padding.
  const nlohmann::json inBatches = with(file, {"--scheduler", "static"});
  EXPECT_EQ(inBatches["tokens"], expected);
  EXPECT_EQ(inBatches["padded_rows"], 4);
  EXPECT_EQ(inBatches["preemptions"], 0);
  const Outcome text = headrace(run(file, {"--prompt-ids", "1,2,3;4,5;6", "--scheduler", "static"}));
  EXPECT_THAT(text.out, HasSubstr("\nscheduler        0 preemptions, 0 rows thrown away, 1 of padding\n"));
}

// 2 seats, and KV for one sequence of 32 tokens: two of 17 rows do not fit at once, one is preempted.
TEST_F(Run, WithFewKvBlocksTheYoungestIsPreemptedAndSaysSo) {
  const std::string file = plan({"--kv-tokens", "32", "--block-tokens", "4", "--overwrite"});
  const std::vector<std::string> two = {"--prompt-ids", "1,2,3;4,5,6", "--max-new-tokens", "20"};
  const nlohmann::json j = json(run(file, two));
  EXPECT_EQ(j["tokens"], json(run(golden(kModel), two))["tokens"]);
  EXPECT_EQ(j["preemptions"], 1);
}

TEST_F(Run, DevicesThatAreNotThereAreRefused) {
  refused(run(golden(kModel), {"--prompt-ids", "1", "--device", "cuda"}), 1, "cuda device: ");
  refused(run(golden(kModel), {"--prompt-ids", "1", "--device", "cuda:x"}), 2, "--device = \"cuda:x\": expected host");
  refused(run(golden(kModel), {"--prompt-ids", "1", "--device", "host", "--graph-build", "x"}), 2,
          "--graph-build = \"x\": expected explicit or capture");
  refused(run(golden(kModel), {"--prompt-ids", "1", "--device", "host", "--trace-by", "x"}), 2,
          "--trace-by = \"x\": expected auto, cupti or stamps");
  refused(run(golden(kModel), {"--prompt-ids", "1", "--device", "tpu"}), 2,
          "--device = \"tpu\": expected host, sim or cuda");
}

TEST_F(Run, WeightsThatAreMissingOrOfAnotherModelAreRefused) {
  refused(run("opt-6.7b", {"--prompt-ids", "1", "--layers", "1"}), 2, "expected --synthetic-weights SEED");
  const std::string file = plan();
  refused(run(file, {"--prompt-ids", "1", "--weights", golden("opt-7-tied-f32")}), 2, "expected the plan's model");
  refused(run(file, {"--prompt-ids", "1", "--weights", path("missing")}), 2, path("missing"));
  refused(run(file, {"--prompt-ids", "1", "--weights", golden(kModel), "--synthetic-weights", "1"}), 2,
          "expected one of them");
  EXPECT_EQ(headrace(run(file, {"--prompt-ids", "1", "--weights", golden(kModel)})).status, 0);
}

TEST_F(Run, APlanWhoseModelHasMovedAsksForItsWeights) {
  const std::string folder = path("model");
  std::filesystem::copy(golden(kModel), folder);
  ASSERT_EQ(headrace({"compile", folder, "--hardware", "host", "--device-memory", "1MiB", "--batch", "2", "--context",
                      "32", "-o", path("moved.plan")})
                .status,
            0);
  std::filesystem::rename(folder, path("elsewhere"));
  const std::vector<std::string> prompt = {"--prompt-ids", "1,2,3", "--max-new-tokens", "4"};
  refused(run(path("moved.plan"), prompt), 2,
          folder + ": no such folder; the plan was made from it: expected --weights");
  auto told = prompt;
  told.insert(told.end(), {"--weights", path("elsewhere")});
  EXPECT_EQ(json(run(path("moved.plan"), told))["tokens"], json(run(golden(kModel), prompt))["tokens"]);
}

TEST_F(Run, VariantsThatAreLeftOutAreCountedAndReplaced) {
  std::vector<std::string> arguments = {"--prompt-ids", "1,2,3;4,5", "--max-new-tokens", "6"};
  const auto all = json(run(golden(kModel), arguments));
  EXPECT_EQ(all["left_out_variants"], 0);
  arguments.insert(arguments.end(), {"--graph-seconds", "1e-9"});
  const auto few = json(run(golden(kModel), arguments));
  EXPECT_GT(few["left_out_variants"], 0);
  EXPECT_EQ(few["missing_variants"], 0);
  EXPECT_EQ(few["tokens"], all["tokens"]);
  refused(run(golden(kModel), {"--prompt-ids", "1", "--graph-seconds", "-1"}), 2,
          "--graph-seconds = \"-1\": expected seconds");
  refused(run(golden(kModel), {"--prompt-ids", "1", "--graph-memory", "much"}), 2, "--graph-memory");
}

TEST_F(Run, PinnedLanesGiveTheSameTokens) {
  std::vector<std::string> arguments = {"--prompt-ids", "1,2,3;4,5", "--max-new-tokens", "6"};
  const auto expected = json(run(golden(kModel), arguments))["tokens"];
  arguments.emplace_back("--pin");
  EXPECT_EQ(json(run(golden(kModel), arguments))["tokens"], expected);
}

TEST_F(Run, LowLatencyGivesTheSameTokensOrIsRefusedByName) {
  std::vector<std::string> arguments = {"--prompt-ids", "1,2,3;4,5", "--max-new-tokens", "6"};
  const auto expected = json(run(golden(kModel), arguments))["tokens"];
  arguments.emplace_back("--low-latency");
  if (const Outcome outcome = headrace(run(golden(kModel), arguments)); outcome.status == 0)
    EXPECT_EQ(json(run(golden(kModel), arguments))["tokens"], expected);
  else
    EXPECT_NE(outcome.err.find("low latency: "), std::string::npos) << outcome.err;
  arguments.insert(arguments.end(), {"--device", "sim"});
  refused(run(golden(kModel), arguments), 2, "--low-latency: expected the host device");
}

TEST_F(Run, APlanTakesNoFlagsThatItHasDecided) {
  const std::string file = plan();
  refused(run(file, {"--prompt-ids", "1", "--interval", "3"}), 2, "--interval beside the plan");
  refused(run(file, {"--prompt-ids", "1", "--hardware", "a10"}), 2, "--hardware beside the plan");
  refused(run(file, {"--prompt-ids", "1", "-ngl", "3"}), 2, "beside the plan");
  refused(run(file, {"--prompt-ids", "1", "--placement", "1"}), 2, "--placement = 1: expected one of the plan's 1");
}

TEST_F(Run, OutputsThatCannotBeWrittenAreRefusedBeforeTheRun) {
  for (const char *flag : {"--logits", "--trace", "--timeline"})
    refused(run(golden(kModel), {"--prompt-ids", "1", flag, path("no/such/folder/x.json")}), 2, "cannot write");
  refused(run(golden(kModel), {"--prompt-ids", "1", "--timeline", path("t.png")}), 2,
          "expected a name that ends in .svg, .json or .txt");
}

TEST_F(Run, BandwidthsThatAreNoneAreRefused) {
  for (const char *bandwidth : {"0", "24", "-1GB/s", "fast", "1GB"})
    refused(run(golden(kModel), {"--prompt-ids", "1", "--link-bandwidth", bandwidth}), 2, "--link-bandwidth");
}

TEST_F(Run, ABudgetBelowTheMinimumIsRefusedWithTheNumber) {
  refused(run(golden(kModel), {"--prompt-ids", "1", "--device-memory", "10KiB"}), 1, "minimum");
}

TEST_F(Run, TheMinimumThatARefusalNamesWillDo) {
  const auto at = [&](const std::string &bytes) {
    return run(golden(kModel), {"--prompt-ids", "1,2,3", "--max-new-tokens", "8", "--device-memory", bytes});
  };
  const std::string message = headrace(at("10KiB")).err;
  const std::string lead = "the minimum is ";
  ASSERT_NE(message.find(lead), std::string::npos) << message;
  const uint64_t minimum = std::stoull(message.substr(message.find(lead) + lead.size()));
  refused(at(std::to_string(minimum - 1) + "B"), 1, "the minimum is " + std::to_string(minimum));
  const nlohmann::json least = json(at(std::to_string(minimum) + "B"));
  EXPECT_LE(least["peak_device_bytes"].get<uint64_t>(), minimum);
  EXPECT_EQ(least["tokens"], json(run(golden(kModel), {"--prompt-ids", "1,2,3", "--max-new-tokens", "8"}))["tokens"]);
}

} // namespace
} // namespace headrace::tools
