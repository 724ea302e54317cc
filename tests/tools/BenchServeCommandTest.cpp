// SPDX-License-Identifier: Apache-2.0
//
// headrace bench serve: requests that come and go.
#include <algorithm>
#include <filesystem>

#include <gmock/gmock.h>

#include "tests/support/Process.h"

namespace headrace::tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// Four layers of 20 MiB, read at 2 MiB a ms: 40 ms an iteration, whatever its few rows
// (examples/jobs/four-layers.toml).
constexpr const char *kFourLayers = R"([model]
name = "four"
family = "llama"
layers = 4
hidden = 1024
heads = 8
intermediate = 2048
vocab = 64
max_positions = 64
dtype = "bf16"
tied_embeddings = true

[hardware]
name = "round"
kind = "cuda"
memory = "1GiB"
host_memory = "1GiB"
flops_f32 = "1000TFLOP/s"
flops_f16 = "1000TFLOP/s"
memory_bandwidth = "2000MiB/s"
h2d_bandwidth = "1000MiB/s"
d2h_bandwidth = "1000MiB/s"
duplex_bandwidth = "2000MiB/s"
copy_latency = "0s"
launch_overhead = "0s"
flops_efficiency = 1
memory_efficiency = 1

[goal]
batch = 1
context = 16
)";

// The most of a list of over_time.
int64_t mostOf(const nlohmann::json &result, const char *list) {
  const auto values = result["over_time"][list].get<std::vector<int64_t>>();
  return *std::max_element(values.begin(), values.end());
}

class BenchServe : public CommandLine {
protected:
  BenchServe() { writeText(path("four.toml"), kFourLayers); }
  std::vector<std::string> four(const std::vector<std::string> &more) const {
    std::vector<std::string> words = {"bench", "serve", path("four.toml"), "--device", "sim"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  // A trace with these lines.
  std::vector<std::string> traced(const std::string &lines) const {
    writeText(path("t.jsonl"), lines);
    return four({"--dataset-name", "trace", "--dataset-path", path("t.jsonl")});
  }
  static std::vector<std::string> opt(const std::vector<std::string> &more) {
    std::vector<std::string> words = {"bench", "serve", "opt-13b", "--hardware", "h100", "--device", "sim"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
};

constexpr const char *kThree = "{\"arrival_s\": 0, \"prompt_tokens\": 8, \"output_tokens\": 4}\n"
                               "{\"arrival_s\": 0.05, \"prompt_tokens\": 8, \"output_tokens\": 4}\n"
                               "{\"arrival_s\": 0.1, \"prompt_tokens\": 15, \"output_tokens\": 2}\n";

TEST_F(BenchServe, TheReportIsWhatHappened) {
  // One seat: 42.080 ms with the prompt, then three times 40.33: the first ends at 163.068. The second came at 50 and
  // waits 113.068, so it has its first token after 155.149, and both have theirs 276.137 after. The third, of 17 tokens
  // in all, never fits.
  const Outcome o = headrace(traced(kThree));
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_EQ(o.out,
            "model            four on round\n"
            "device           sim\n"
            "offloaded        nothing\n"
            "engine           vllm, at most 1 sequence and 16 tokens an iteration, chunked prefill; context 16, 1 "
            "KV block of 16 tokens\n"
            "traffic          3 requests, lengths of " +
                path("t.jsonl") +
                ", at its times (arrival_s in seconds), seed 0\n"
                "requests         2 successful, 1 refused\n"
                "refused          1: the prompt: 15 tokens and 2 new ones are more than the plan's context of 16\n"
                "duration         0.326 s\n"
                "tokens           16 in, 8 out\n"
                "throughput       6.13 requests/s, 24.5 output tokens/s, 73.6 tokens/s in all\n"
                "concurrency      at most 2 requests at a time\n"
                "KV cache         at most 1 of 1 blocks in use (100%)\n"
                "preemptions      none\n"
                "iterations       8, 2 of them with prompts; 0 rows thrown away\n"
                "moved            0 B to the device, 0 B back\n"
                "\n"
                "ms           mean   median      p99\n"
                "TTFT       98.615   98.615  154.018\n"
                "TPOT       40.329   40.329   40.329\n"
                "ITL        40.329   40.329   40.337\n"
                "E2EL      219.603  219.603  275.006\n"
                "queueing   56.534   56.534  111.938\n");
}

TEST_F(BenchServe, JsonHasEachRequestAndThePictureARow) {
  std::vector<std::string> words = traced(kThree);
  words.insert(words.end(),
               {"--save-detailed", "--goodput", "ttft:100 e2el:1000", "--svg", path("p.svg"), "-o", path("r.json")});
  const nlohmann::json j = json(words);
  EXPECT_FALSE(j.contains("error"));
  EXPECT_EQ(j["max_num_seqs"], 1);
  EXPECT_EQ(j["goodput"]["ttft_ms"], 100);
  EXPECT_TRUE(j["goodput"]["tpot_ms"].is_null());
  const nlohmann::json &r = j["results"][0];
  EXPECT_TRUE(r["request_rate_per_second"].is_null());
  EXPECT_EQ(r["completed"], 2);
  EXPECT_EQ(r["refusals"][0]["count"], 1);
  EXPECT_NEAR(r["goodput_requests_per_second"].get<double>() * r["duration_s"].get<double>(), 1, 1e-9);
  EXPECT_EQ(r["itl_ms"]["count"], 6);
  EXPECT_EQ(r["peak_kv_blocks"], 1);
  ASSERT_EQ(r["each"].size(), 3U);
  EXPECT_EQ(r["each"][0]["queueing_ms"], 0);
  const double first = r["each"][0]["e2el_ms"];
  EXPECT_NEAR(r["each"][1]["queueing_ms"].get<double>(), first - 50, 1e-6);
  EXPECT_NEAR(r["each"][1]["e2el_ms"].get<double>(), 2 * first - 50, 1e-6);
  EXPECT_NEAR(r["each"][0]["ttft_ms"].get<double>() + 3 * r["each"][0]["tpot_ms"].get<double>(), first, 1e-6);
  EXPECT_TRUE(r["each"][2]["ttft_ms"].is_null());
  EXPECT_THAT(r["each"][2]["error"].get<std::string>(), HasSubstr("context of 16"));
  EXPECT_EQ(r["over_time"]["running"].size(), r["over_time"]["seconds"].size());
  EXPECT_EQ(nlohmann::json::parse(readFile(path("r.json"))), j);
  EXPECT_THAT(readFile(path("p.svg")), HasSubstr("request 2: 8 tokens in, 4 out; arrived at 50.0 ms\nqueueing 113 ms"));
  // Both may be replaced: they are known again.
  EXPECT_EQ(headrace(words).status, 0);
}

std::vector<std::string> keysOf(const nlohmann::json &object) { // in alphabetical order
  std::vector<std::string> keys;
  for (const auto &[key, value] : object.items())
    keys.push_back(key);
  return keys;
}

TEST_F(BenchServe, TheKeysOfItsJson) {
  const nlohmann::json j = json(four({"--random-input-len", "8", "--random-output-len", "4", "--num-prompts", "3"}));
  EXPECT_THAT(keysOf(j), ElementsAre("block_tokens", "burstiness", "command", "compiled", "context", "dataset",
                                     "device", "draws_left_out", "format", "goodput", "hardware", "kv_blocks",
                                     "kv_requests", "lengths", "max_concurrency", "max_num_batched_tokens",
                                     "max_num_seqs", "micro_batches", "model", "num_prompts", "offloaded", "placement",
                                     "plan", "plan_hash", "prefill", "results", "scheduler", "seed", "swap_space_bytes",
                                     "trace_begin_s", "trace_clock", "trace_rows_dropped"));
  const nlohmann::json &r = j["results"][0];
  EXPECT_THAT(keysOf(r),
              ElementsAre("blocks_offered", "compacted_blocks", "compaction_bytes", "completed", "d2h_bytes",
                          "duration_s", "e2el_ms", "expansions_grown", "expansions_shrunk", "failed",
                          "goodput_requests_per_second", "h2d_bytes", "input_tokens", "iterations", "itl_ms",
                          "kv_blocks", "least_brought_bytes", "output_tokens", "output_tokens_per_second", "over_time",
                          "overloaded", "padded_rows", "peak_concurrency", "peak_kv_blocks", "preempted_requests",
                          "preemptions", "prefill_iterations", "queueing_ms", "refusals", "refused",
                          "request_rate_per_second", "requests", "requests_per_second", "stall_ms", "swap_fallbacks",
                          "swap_in_bytes", "swap_out_bytes", "swaps_in", "swaps_out", "thrown_away_rows",
                          "total_tokens_per_second", "tpot_ms", "ttft_held", "ttft_ms", "waiting_at_last_arrival"));
  EXPECT_THAT(keysOf(r["ttft_ms"]), ElementsAre("count", "max", "mean", "median", "p50", "p99", "std"));
  // Three of four tokens in a row, 163.068 ms each.
  EXPECT_NEAR(r["duration_s"].get<double>(), 3 * 0.163068, 1e-5);
  EXPECT_NEAR(r["output_tokens_per_second"].get<double>(), 4 / 0.163068, 1e-2);
  EXPECT_NEAR(r["queueing_ms"]["max"].get<double>(), 2 * 163.068, 1e-2);
}

TEST_F(BenchServe, TheExpansionIsFoundWhileItRuns) {
  const std::vector<std::string> words =
      opt({"--kv-device-memory", "3GB", "--expansion", "auto", "--dataset-name", "sharegpt", "--num-prompts", "100"});
  const nlohmann::json run = json(words), &r = run["results"][0];
  EXPECT_GT(r["blocks_offered"].get<int64_t>(), 100);
  EXPECT_LE(r["peak_kv_blocks"].get<int64_t>(), r["kv_blocks"].get<int64_t>());
  EXPECT_GT(r["expansions_grown"].get<int64_t>(), 0);
  EXPECT_GT(r["least_brought_bytes"].get<int64_t>(), 0);
  EXPECT_GE(r["h2d_bytes"].get<int64_t>(), r["least_brought_bytes"].get<int64_t>());
  EXPECT_THAT(headrace(words).out, HasSubstr("\nexpansion        found while it ran: "));
  // The same memory, all of the KV cache on the device.
  const nlohmann::json one = json(
      opt({"--kv-device-memory", "3GB", "--expansion", "1", "--dataset-name", "sharegpt", "--num-prompts", "100"}));
  EXPECT_EQ(one["results"][0]["blocks_offered"], 0);
  EXPECT_LT(one["results"][0]["output_tokens_per_second"].get<double>(), r["output_tokens_per_second"].get<double>());
}

// Of whole layers: from one placement of the plan to another.
TEST_F(BenchServe, TheExpansionOfWholeLayersIsFoundToo) {
  const std::vector<std::string> words = opt({"--policy", "pie", "--kv-device-memory", "3GB", "--expansion", "auto",
                                              "--dataset-name", "sharegpt", "--num-prompts", "100"});
  const nlohmann::json run = json(words), &r = run["results"][0];
  EXPECT_GT(r["expansions_grown"].get<int64_t>(), 0);
  EXPECT_GT(r["blocks_offered"].get<int64_t>(), 100);
  EXPECT_LE(r["peak_kv_blocks"].get<int64_t>(), r["kv_blocks"].get<int64_t>());
  EXPECT_EQ(r["least_brought_bytes"], 0); // it swaps whenever the link is free
}

// Iterations of no more rows than the cache has tokens, where memory and expansion say how many that are.
TEST_F(BenchServe, AnExpandedCacheBoundsTheRowsOfAnIteration) {
  std::vector<std::string> words = {"bench",
                                    "serve",
                                    golden("llama-7-gqa-llama3-f32"),
                                    "--device",
                                    "sim",
                                    "--num-prompts",
                                    "8",
                                    "--random-input-len",
                                    "40",
                                    "--random-output-len",
                                    "8",
                                    "--kv-device-memory",
                                    "150KiB",
                                    "--expansion",
                                    "1.5"};
  const Outcome o = headrace(words);
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("at most 8 sequences and 144 tokens an iteration")); // nine blocks of 16
  words.insert(words.end(), {"--max-num-batched-tokens", "145"});
  refused(words, 2,
          "--max-num-batched-tokens = 145: expected at most 144, the tokens of --kv-device-memory with "
          "--expansion");
}

TEST_F(BenchServe, RatesAreARowEachAndAPictureAgainstThem) {
  const std::vector<std::string> words = opt({"--dataset-name", "sharegpt", "--num-prompts", "200", "--request-rate",
                                              "16,2,inf", "--max-num-seqs", "16", "--svg", path("rates.svg")});
  const nlohmann::json j = json(words);
  ASSERT_EQ(j["results"].size(), 3U);
  EXPECT_EQ(j["results"][0]["request_rate_per_second"], 2); // ascending
  EXPECT_EQ(j["results"][2]["request_rate_per_second"], "inf");
  // Each rate has the same requests; the faster they come, the longer they wait, and the busier it is.
  for (const char *key : {"input_tokens", "output_tokens", "completed"})
    EXPECT_EQ(j["results"][0][key], j["results"][2][key]) << key;
  for (const size_t i : {0, 1}) {
    EXPECT_LT(j["results"][i]["queueing_ms"]["mean"].get<double>(),
              j["results"][i + 1]["queueing_ms"]["mean"].get<double>());
    EXPECT_LT(j["results"][i]["requests_per_second"].get<double>(),
              j["results"][i + 1]["requests_per_second"].get<double>());
  }
  EXPECT_EQ(mostOf(j["results"][2], "running"), 16);
  EXPECT_THAT(readFile(path("rates.svg")), HasSubstr(">requests/s asked for (log)<"));
  const Outcome text = headrace(words);
  EXPECT_THAT(text.out, HasSubstr("\nrequests/s  successful  refused"));
  EXPECT_THAT(text.out, HasSubstr("\ninf "));
}

// Seats change hands a launch before the device is there, and iterations here are shorter than a bin.
TEST_F(BenchServe, NoMoreRunThanThereAreSeatsAndBinsReachThePeak) {
  const nlohmann::json r = json({"bench",
                                 "serve",
                                 golden("llama-7-gqa-llama3-f32"),
                                 "--device",
                                 "sim",
                                 "--num-prompts",
                                 "30",
                                 "--random-input-len",
                                 "40",
                                 "--random-output-len",
                                 "12",
                                 "--request-rate",
                                 "3000",
                                 "--burstiness",
                                 "3",
                                 "--seed",
                                 "89",
                                 "--max-num-seqs",
                                 "4",
                                 "--max-num-batched-tokens",
                                 "4",
                                 "--json"})["results"][0];
  EXPECT_EQ(r["completed"], 30);
  EXPECT_EQ(mostOf(r, "running"), 4);
  EXPECT_EQ(mostOf(r, "kv_blocks"), r["peak_kv_blocks"]);
}

TEST_F(BenchServe, TheSameSeedIsTheSameTraffic) {
  const auto at = [](const char *seed) {
    return json(opt({"--dataset-name", "alpaca", "--num-prompts", "50", "--request-rate", "4", "--seed", seed}));
  };
  EXPECT_EQ(at("1"), at("1"));
  EXPECT_NE(at("1")["results"][0]["output_tokens"], at("2")["results"][0]["output_tokens"]);
}

TEST_F(BenchServe, TheKvCacheTakesWhatMemoryTheWeightsLeave) {
  const nlohmann::json all = json(opt({"--dataset-name", "sharegpt", "--num-prompts", "300"}));
  EXPECT_EQ(all["offloaded"], "nothing");
  EXPECT_EQ(all["max_num_seqs"], 256);
  // 25.7 GB of weights, and blocks of 16 tokens, 2 x 40 layers x 5120 x 2 bytes each, 13.1 MB: of the other 14.3 GB
  // 1090 at most; with 80 GB 3051 more.
  const nlohmann::json half =
      json(opt({"--dataset-name", "sharegpt", "--num-prompts", "300", "--device-memory", "40GB"}));
  EXPECT_EQ(half["offloaded"], "nothing");
  EXPECT_LE(half["kv_blocks"], 1090);
  EXPECT_GE(half["kv_blocks"], 1060); // activations take some
  EXPECT_NEAR(all["kv_blocks"].get<double>() - half["kv_blocks"].get<double>(), 40e9 / (16 * 2 * 40 * 5120 * 2), 8);
  EXPECT_GT(half["results"][0]["preemptions"], 0);
  // What is stated stays.
  EXPECT_EQ(json(opt({"--num-prompts", "4", "--kv-tokens", "4096"}))["kv_blocks"], 256);
}

TEST_F(BenchServe, ASmallKvCacheBesideOffloadedWeightsSaysWhy) {
  // 60 GB of weights on 24 GB, and 40 GB of the host: not eight requests of 640 tokens, 40 blocks, fit beside them. On
  // a larger host they do, and each iteration brings the weights for eight.
  const auto with = [](const std::vector<std::string> &more) {
    std::vector<std::string> words = {"bench", "serve", "opt-30b", "--hardware", "a10", "--device", "sim"};
    words.insert(words.end(), {"--num-prompts", "8", "--random-input-len", "600", "--random-output-len", "40"});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const Outcome o = headrace(with({"--host-memory", "40GB"}));
  EXPECT_THAT(o.out, HasSubstr("\nwhy              the KV cache holds "));
  EXPECT_THAT(o.out, HasSubstr(" requests of 640 tokens, what memory holds, or as many as are worth it, beside "));
  const nlohmann::json j = json(with({"--host-memory", "40GB"}));
  EXPECT_LT(j["kv_requests"], 8);
  EXPECT_NEAR(j["kv_requests"].get<double>(), j["kv_blocks"].get<double>() / 40, 1e-9);
  const Outcome all = headrace(with({}));
  EXPECT_THAT(all.out, HasSubstr("320 KV blocks")); // 8 x 640
  EXPECT_THAT(all.out, Not(HasSubstr("\nwhy ")));
}

TEST_F(BenchServe, APlanIsRunAsItIs) {
  ASSERT_EQ(headrace({"compile", path("four.toml"), "--batch", "4", "--kv-tokens", "128", "-o", path("x.plan")}).status,
            0);
  const std::vector<std::string> words = {"bench",
                                          "serve",
                                          path("x.plan"),
                                          "--device",
                                          "sim",
                                          "--random-input-len",
                                          "8",
                                          "--random-output-len",
                                          "4",
                                          "--num-prompts",
                                          "12",
                                          "--max-num-seqs",
                                          "3"};
  const nlohmann::json j = json(words);
  EXPECT_EQ(j["plan"], path("x.plan"));
  EXPECT_EQ(j["max_num_seqs"], 3);
  EXPECT_EQ(j["kv_blocks"], 8);
  EXPECT_EQ(j["results"][0]["completed"], 12);
  // Three at a time, four iterations each; the next three join as they leave, as there are blocks for six.
  EXPECT_EQ(j["results"][0]["iterations"], 16);
  refused({"bench", "serve", path("x.plan"), "--batch", "2"}, 2, "--batch beside the plan");
  refused({"bench", "serve", path("x.plan"), "--device", "sim"}, 2, "context of 16");
  refused({"bench", "serve", path("x.plan"), "--device", "sim", "--random-input-len", "8", "--random-output-len", "4",
           "--max-num-seqs", "5"},
          2, "--max-num-seqs = 5: expected 1 to 4");
  refused({"bench", "serve", path("x.plan"), "--device", "sim", "--random-input-len", "8", "--random-output-len", "4",
           "--max-num-batched-tokens", "1000"},
          2, "--max-num-batched-tokens = 1000: expected at most 64");
}

TEST_F(BenchServe, TheEnginesFlagsAreItsOwn) {
  const auto run = [](const std::vector<std::string> &more) {
    std::vector<std::string> words = {"--dataset-name", "sharegpt", "--num-prompts", "100", "--max-num-seqs", "16"};
    words.insert(words.end(), more.begin(), more.end());
    return json(opt(words));
  };
  const nlohmann::json vllm = run({}), fixed = run({"--scheduler", "static"}), whole = run({"--no-chunked-prefill"});
  EXPECT_EQ(vllm["scheduler"], "vllm");
  EXPECT_EQ(fixed["scheduler"], "static");
  EXPECT_EQ(whole["prefill"], "prompts whole");
  // Seats that wait for the longest of their batch compute nothing of use.
  EXPECT_GT(vllm["results"][0]["output_tokens_per_second"].get<double>(),
            1.2 * fixed["results"][0]["output_tokens_per_second"].get<double>());
  EXPECT_GT(fixed["results"][0]["thrown_away_rows"], 0);
  const Outcome text = headrace(
      opt({"--num-prompts", "4", "--random-range-ratio", "0.5", "--max-num-seqs", "2", "--scheduler", "static"}));
  EXPECT_THAT(text.out, HasSubstr("tokens an iteration, prompts padded to the longest; context"));
  EXPECT_THAT(text.out, HasSubstr(" rows thrown away (of requests that had ended), "));
  EXPECT_THAT(text.out, HasSubstr(" of padding (for shorter prompts)\n"));
  const nlohmann::json small = run({"--max-num-batched-tokens", "32"});
  EXPECT_EQ(small["max_num_batched_tokens"], 32);
  EXPECT_GT(small["results"][0]["prefill_iterations"], vllm["results"][0]["prefill_iterations"]);
  // Few KV blocks: who is preempted is swapped.
  const nlohmann::json swapped = run({"--kv-tokens", "4096", "--swap-space", "8", "--preemption-mode", "swap"});
  EXPECT_EQ(swapped["swap_space_bytes"], uint64_t{8} << 30);
  EXPECT_GT(swapped["results"][0]["preemptions"], 0);
  EXPECT_EQ(swapped["results"][0]["swaps_out"], swapped["results"][0]["preemptions"]);
  EXPECT_EQ(swapped["results"][0]["swap_out_bytes"], swapped["results"][0]["d2h_bytes"]);
  // As many at a time as are let in.
  const nlohmann::json one = run({"--max-concurrency", "1"});
  EXPECT_EQ(one["results"][0]["peak_concurrency"], 1);
  EXPECT_EQ(one["results"][0]["queueing_ms"]["max"], 0);
}

TEST_F(BenchServe, ServesRealDataOnTheHost) {
  const nlohmann::json j = json({"bench", "serve", golden("opt-7-tied-f32"), "--hardware", "host", "--random-input-len",
                                 "8", "--random-output-len", "4", "--num-prompts", "6", "--max-num-seqs", "2",
                                 "--request-rate", "1000", "--save-detailed"});
  EXPECT_EQ(j["device"], "host");
  const nlohmann::json &r = j["results"][0];
  EXPECT_EQ(r["completed"], 6);
  EXPECT_EQ(r["output_tokens"], 24);
  for (const nlohmann::json &one : r["each"])
    EXPECT_LE(one["queueing_ms"].get<double>(), one["ttft_ms"].get<double>());
}

TEST_F(BenchServe, AStopIdEndsARequest) {
  // Every token of a vocabulary of 64: whatever comes first ends it.
  std::string ids = "0";
  for (int id = 1; id < 64; ++id)
    ids += "," + std::to_string(id);
  const std::vector<std::string> lengths = {"--random-input-len", "8", "--random-output-len", "4",
                                            "--num-prompts",      "5"};
  std::vector<std::string> stopped = four(lengths), all = four(lengths);
  stopped.insert(stopped.end(), {"--stop-ids", ids});
  all.emplace_back("--ignore-eos");
  EXPECT_EQ(json(stopped)["results"][0]["output_tokens"], 5);
  EXPECT_EQ(json(all)["results"][0]["output_tokens"], 20);
}

TEST_F(BenchServe, ATraceKeepsItsTimesUnlessARateReplacesThem) {
  std::vector<std::string> words = traced(kThree);
  words.insert(words.end(), {"--num-prompts", "2", "--save-detailed"});
  EXPECT_EQ(json(words)["results"][0]["each"][1]["arrival_s"], 0.05);
  EXPECT_EQ(json(words)["results"][0]["each"].size(), 2U);
  words.insert(words.end(), {"--request-rate", "inf"});
  EXPECT_EQ(json(words)["results"][0]["each"][1]["arrival_s"], 0);
  std::vector<std::string> more = traced(kThree);
  more.insert(more.end(), {"--num-prompts", "5"});
  EXPECT_THAT(headrace(more).err, HasSubstr("t.jsonl: 3 requests, --num-prompts asks for 5: all of them are run"));
}

TEST_F(BenchServe, LengthsThatTheContextLeavesOutAreSaid) {
  const std::vector<std::string> flags = {"--dataset-name", "sharegpt", "--num-prompts", "100", "--context", "128"};
  const nlohmann::json j = json(opt(flags));
  const int64_t left = j["draws_left_out"];
  EXPECT_GT(left, 100);
  EXPECT_THAT(headrace(opt(flags)).out,
              HasSubstr("sharegpt lengths within 128 tokens (100 of " + std::to_string(100 + left) + " draws)"));
}

// Each time is 3600 s later than in kThree, and nothing waits for them.
TEST_F(BenchServe, ATraceBeginsAtItsFirstArrival) {
  std::vector<std::string> words = traced("{\"timestamp\": 3600000, \"input_length\": 8, \"output_length\": 4}\n"
                                          "{\"timestamp\": 3600050, \"input_length\": 8, \"output_length\": 4}\n");
  const Outcome o = headrace(words);
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr(", at its times (timestamp in milliseconds), begins 3600 s into the trace, seed 0\n"));
  EXPECT_THAT(o.out, HasSubstr("\nduration         0.326 s\n"));
  words.emplace_back("--save-detailed");
  const nlohmann::json j = json(words);
  EXPECT_EQ(j["trace_begin_s"], 3600);
  EXPECT_EQ(j["results"][0]["each"][0]["arrival_s"], 0);
  EXPECT_EQ(j["results"][0]["each"][1]["arrival_s"], 0.05);
}

// Qwen-Bailian's keys are Mooncake's and more, its times are seconds: 50 ms, and a request that got nothing.
TEST_F(BenchServe, TheUnitsOfATracesClockAndWhatItDropsAreSaid) {
  std::vector<std::string> words =
      traced("{\"chat_id\": 1, \"timestamp\": 0.0, \"input_length\": 8, \"output_length\": 4, \"turn\": 1}\n"
             "{\"chat_id\": 2, \"timestamp\": 0.02, \"input_length\": 8, \"output_length\": 0, \"turn\": 1}\n"
             "{\"chat_id\": 3, \"timestamp\": 0.05, \"input_length\": 8, \"output_length\": 4, \"turn\": 1}\n");
  const Outcome o = headrace(words);
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("traffic          2 requests, lengths of " + path("t.jsonl") +
                               ", 1 row of zero tokens dropped, at its times (timestamp in seconds), seed 0\n"));
  EXPECT_THAT(o.out, HasSubstr("\nduration         0.326 s\n"));
  EXPECT_THAT(o.err, HasSubstr("t.jsonl: 1 row of zero tokens, the first on line 2: dropped"));
  const nlohmann::json j = json(words);
  EXPECT_EQ(j["trace_clock"], "timestamp in seconds");
  EXPECT_EQ(j["trace_rows_dropped"], 1);
}

TEST_F(BenchServe, ThatNothingWasServedIsAFailure) {
  const Outcome o = headrace(traced("{\"arrival_s\": 0, \"prompt_tokens\": 15, \"output_tokens\": 2}\n"));
  EXPECT_EQ(o.status, 1);
  EXPECT_THAT(o.out, HasSubstr("0 successful, 1 refused"));
  EXPECT_THAT(o.err, HasSubstr("no request was served: 1 refused, the first: the prompt: 15 tokens and 2 new ones"));
  std::vector<std::string> words = traced("{\"arrival_s\": 0, \"prompt_tokens\": 15, \"output_tokens\": 2}\n");
  words.emplace_back("--json");
  const nlohmann::json j = nlohmann::json::parse(headrace(words).out);
  EXPECT_EQ(j["error"]["exit_status"], 1);
  EXPECT_THAT(j["error"]["message"].get<std::string>(), HasSubstr("more than the plan's context of 16"));
  EXPECT_EQ(j["results"][0]["refused"], 1);
}

TEST_F(BenchServe, TracesAreRefusedByFileAndLine) {
  const auto bad = [&](const std::string &lines, const std::string &message) {
    refused(traced(lines), 2, path("t.jsonl") + ": " + message);
  };
  bad("", "");
  bad("{\"arrival_s\": 0, \"prompt_tokens\": 8, \"output_tokens\": 4}\n{\"arrival_s\": 0.1, \"prompt", "line 2");
  bad("{\"arrival_s\": -1, \"prompt_tokens\": 8, \"output_tokens\": 4}\n", "line 1");
  bad("{\"arrival_s\": 0, \"prompt_tokens\": 0, \"output_tokens\": 4}\n", "line 1");
  bad("{\"arrival_s\": 0, \"prompt_tokens\": 8}\n", "line 1");
  bad("{\"arrival_s\": 1, \"prompt_tokens\": 8, \"output_tokens\": 4}\n"
      "{\"arrival_s\": 0, \"prompt_ids\": [63, 64], \"output_tokens\": 4}\n",
      "line 2: prompt_ids: 64: expected token ids from 0 to 63");
  bad(std::string("\x00\xff\x7f{\"", 5), "line 1");
  refused(four({"--dataset-name", "trace", "--dataset-path", folder}), 2, folder + ": a folder");
  refused(four({"--dataset-name", "trace", "--dataset-path", path("none.jsonl")}), 2, "none.jsonl");
  // Larger than any memory: it is read as far as the line that is wrong.
  writeText(path("large.jsonl"), "");
  std::filesystem::resize_file(path("large.jsonl"), uintmax_t{1} << 36);
  const Outcome large = headrace(four({"--dataset-name", "trace", "--dataset-path", path("large.jsonl")}));
  EXPECT_EQ(large.status, 2);
  EXPECT_THAT(large.err, HasSubstr("large.jsonl: line 1"));
  std::filesystem::remove(path("large.jsonl"));
  // Times that are not in order are sorted, and said.
  const Outcome o = headrace(traced("{\"arrival_s\": 1, \"prompt_tokens\": 8, \"output_tokens\": 4}\n"
                                    "{\"arrival_s\": 0, \"prompt_tokens\": 8, \"output_tokens\": 4}\n"));
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr("headrace: warning: " + path("t.jsonl")));
}

TEST_F(BenchServe, RefusesBadFlags) {
  const auto bad = [&](const std::vector<std::string> &flags, const std::string &message) {
    refused(opt(flags), 2, message);
  };
  for (const char *rate : {"0", "-1", "nan", "fast", "1,,2", "1,1", ""})
    bad({"--request-rate", rate}, "--request-rate = \"" + std::string(rate) + "\": expected requests/s above 0");
  bad({"--request-rate", "1e-300"}, "--request-rate");
  bad({"--request-rate", "1e400"}, "--request-rate = \"1e400\": expected requests/s above 0");
  bad({"--num-prompts", "0"}, "--num-prompts = \"0\"");
  bad({"--num-prompts", "10000000"}, "--num-prompts = 10000000: expected fewer");
  bad({"--burstiness", "0"}, "--burstiness = \"0\"");
  bad({"--burstiness", "2"}, "--burstiness = 2: expected --request-rate beside it: all requests come at once");
  bad({"--burstiness", "nan"}, "--burstiness = \"nan\"");
  bad({"--random-input-len", "0"}, "--random-input-len = \"0\"");
  bad({"--random-output-len", "0"}, "--random-output-len = \"0\"");
  bad({"--random-range-ratio", "1"}, "--random-range-ratio = \"1\"");
  bad({"--random-input-len", "2048"}, "more than the context of 2048");
  bad({"--context", "64"}, "more than the context of 64");
  bad({"--dataset-name", "sharegpt", "--random-input-len", "8"}, "--dataset-name random");
  bad({"--dataset-name", "sharegpt", "--dataset-path", "x.json"}, "--dataset-path = \"x.json\"");
  bad({"--dataset-name", "trace"}, "no --dataset-path");
  bad({"--dataset-name", "news"}, "--dataset-name = \"news\"");
  bad({"--dataset-path", "x.json"}, "--dataset-path = \"x.json\"");
  bad({"--goodput", "ttft"}, "--goodput");
  bad({"--goodput", "ttft:-1"}, "--goodput");
  bad({"--goodput", "itl:5"}, "--goodput");
  bad({"--goodput", " "}, "--goodput = \" \": expected ttft:MS");
  bad({"--goodput", "ttft:5 ttft:6"}, "--goodput");
  bad({"--goodput", "ttft:5m"}, "expected milliseconds above zero, or such a time with its unit");
  bad({"--tpot", "50"}, "--tpot = \"50\": expected a time with its unit");
  bad({"--metric-percentiles", "101"}, "--metric-percentiles");
  bad({"--percentile-metrics", "ttft,speed"}, "--percentile-metrics = \"ttft,speed\"");
  bad({"--max-num-seqs", "0"}, "--max-num-seqs = \"0\"");
  bad({"--max-num-seqs", "8", "--batch", "4"}, "--max-num-seqs = 8: expected 1 to 4");
  bad({"--max-num-seqs", "8", "--max-num-batched-tokens", "4"}, "--max-num-batched-tokens = 4: expected at least 8");
  bad({"--preemption-mode", "later"}, "--preemption-mode = \"later\"");
  bad({"--preemption-mode", "swap"}, "no memory to swap to: expected --swap-space beside it");
  bad({"--preemption-mode", "swap", "--swap-space", "0"}, "no memory to swap to");
  bad({"--swap-space", "4", "--preemption-mode", "recompute"}, "expected --preemption-mode auto or swap beside it");
  bad({"--swap-space", "4GiB", "--scheduler", "static"}, "expected --scheduler vllm beside it");
  bad({"--swap-space", "1KiB"}, "--swap-space = \"1KiB\": expected at least");
  bad({"--swap-space", "100000GiB"}, "--swap-space = \"100000GiB\": expected at most ");
  for (const char *space : {"lots", "-1", "1e30"})
    bad({"--swap-space", space}, "--swap-space = \"" + std::string(space) + "\": expected GiB such as 4");
  // Four seats of 16 tokens are a KV cache of 64, and no iteration has more rows.
  refused(
      four({"--batch", "4", "--random-input-len", "8", "--random-output-len", "8", "--max-num-batched-tokens", "800"}),
      2, "--max-num-batched-tokens = 800: expected at most 64, the tokens of batch 4 x context 16");
  refused(four({"--new-tokens", "1", "--random-input-len", "8", "--random-output-len", "8", "--max-num-batched-tokens",
                "8"}),
          2, "--max-num-batched-tokens = 8: expected no such flag: the plan has no bucket of more");
  bad({"--max-concurrency", "0"}, "--max-concurrency = \"0\"");
  bad({"--scheduler", "sjf"}, "--scheduler = \"sjf\"");
  bad({"--stop-ids", "2", "--ignore-eos"}, "--stop-ids = \"2\"");
  bad({"--stop-ids", "99999999"}, "--stop-ids = 99999999");
  bad({"--top-p", "0.5"}, "--top-p = 0.5");
  bad({"--placement", "3"}, "--placement = 3");
  bad({"--svg", path("no/such/folder.svg")}, "folder.svg");
  bad({"--svg", path("x.png")}, "x.png\": what is drawn is SVG: expected a name such as picture.svg");
  bad({"-o", path("no/such/folder.json")}, "folder.json");
  bad({"-o", path("four.toml")}, "four.toml");
  refused({"bench", "serve"}, 2, "no model");
  refused({"bench", "serve", "opt-13b", "--device", "tpu"}, 2, "--device = \"tpu\"");
  refused({"bench", "--seed", "1", "serve", "opt-13b"}, 2, "--seed before serve");
  refused({"bench", "serve", "opt-13b", "--rounds", "3"}, 2, "headrace bench serve --help");
}

} // namespace
} // namespace headrace::tools
