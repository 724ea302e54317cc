// SPDX-License-Identifier: Apache-2.0
//
// A model over several devices (compile --stages, run of what it writes), as a user of the command line has it.
#include <gmock/gmock.h>

#include "tests/support/Process.h"

namespace headrace::tools {
namespace {

using testing::HasSubstr;

constexpr const char *kModel = "llama-7-gqa-llama3-f32"; // of seven layers

class StagesCommand : public CommandLine {
protected:
  static std::vector<std::string> with(std::vector<std::string> words, const std::vector<std::string> &more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  std::vector<std::string> compile(const std::string &stages, const std::vector<std::string> &more = {}) const {
    return with(
        {"compile", golden(kModel), "--hardware", "host", "--batch", "4", "--context", "64", "--stages", stages}, more);
  }
  const std::string file = path("model.stages");
  const std::vector<std::string> prompts = {"--prompt-ids", "1,2,3;4,5,6,7,8;6;7,8,9,10", "--max-new-tokens", "12",
                                            "--json"};
};

TEST_F(StagesCommand, TokensAreThoseOfOneDevice) {
  const nlohmann::json one = json(with({"run", golden(kModel), "--hardware", "host"}, prompts));
  for (const std::vector<std::string> &more : {std::vector<std::string>{},
                                               {"--interval", "1"},
                                               {"--kv-device-memory", "0B", "--attention", "cpu"},
                                               {"--mini-batches", "2", "--residuals", "host"}}) {
    ASSERT_EQ(headrace(compile("3", with({"-o", file}, more))).status, 0);
    const nlohmann::json three = json(with({"run", file}, prompts));
    EXPECT_EQ(three["tokens"], one["tokens"]);
    EXPECT_EQ(three["stages"].size(), 3u);
    EXPECT_GT(three["h2d_bytes"], 0);
  }
  // In virtual time as well, where tokens are made up.
  EXPECT_EQ(json(with({"run", file, "--device", "sim"}, prompts))["stages"].size(), 3u);
}

TEST_F(StagesCommand, LogitsAreThoseOfOneDevice) {
  const auto logits = [&](const std::string &source, const std::string &to) {
    EXPECT_EQ(headrace(with({"run", source, "--logits", to}, prompts)).status, 0);
    return readFile(to);
  };
  ASSERT_EQ(headrace(compile("2", {"-o", file, "--interval", "2"})).status, 0);
  ASSERT_EQ(headrace({"compile", golden(kModel), "--hardware", "host", "--batch", "4", "--context", "64", "-o",
                      path("one.plan")})
                .status,
            0);
  EXPECT_EQ(logits(file, path("stages.safetensors")), logits(path("one.plan"), path("one.safetensors")));
}

TEST_F(StagesCommand, PenaltiesAreThoseOfOneDevice) {
  ASSERT_EQ(headrace(compile("3", {"-o", file})).status, 0);
  const std::vector<std::string> one = {"run", golden(kModel), "--hardware", "host"};
  const auto plain = json(with(one, prompts))["tokens"];
  for (const std::vector<std::string> &penalty : {std::vector<std::string>{"--repetition-penalty", "1.5"},
                                                  {"--presence-penalty", "2"},
                                                  {"--frequency-penalty", "2"}}) {
    const auto wanted = json(with(with(one, prompts), penalty))["tokens"];
    EXPECT_EQ(json(with(with({"run", file}, prompts), penalty))["tokens"], wanted) << penalty[0];
    EXPECT_NE(wanted, plain) << penalty[0];
  }
}

// Requests that come at their times, with few KV blocks: all are served, on the host and in virtual time.
TEST_F(StagesCommand, ServesTraffic) {
  ASSERT_EQ(headrace(compile("3", {"-o", file, "--kv-tokens", "96"})).status, 0);
  for (const char *device : {"host", "sim"}) {
    const nlohmann::json served =
        json({"bench", "serve", file, "--device", device, "--num-prompts", "12", "--random-input-len", "20",
              "--random-output-len", "30", "--request-rate", "1000", "--json"});
    EXPECT_EQ(served["results"][0]["completed"], 12) << device;
    EXPECT_GT(served["results"][0]["preemptions"], 0);
    EXPECT_EQ(served["micro_batches"], 3);
    EXPECT_EQ(served["kv_blocks"], 6); // of 16 tokens
  }
}

// Chunks of prompts are as large as the plan's iterations with prompts; without any, prompts come a row at a time.
TEST_F(StagesCommand, PromptsComeInChunksThatPlansHave) {
  const nlohmann::json one = json(with({"run", golden(kModel), "--hardware", "host"}, prompts));
  for (const char *newTokens : {"1", "1,3", "1,2,3", "16"}) {
    ASSERT_EQ(headrace(compile("3", {"-o", file, "--new-tokens", newTokens})).status, 0);
    EXPECT_EQ(json(with({"run", file}, prompts))["tokens"], one["tokens"]) << newTokens;
    EXPECT_EQ(json(with({"run", file, "--max-num-seqs", "1"}, prompts))["micro_batches"], 1);
  }
}

// In every format, and the same each time.
TEST_F(StagesCommand, TimelinesHaveATrackAStage) {
  ASSERT_EQ(headrace(compile("3", {"-o", file, "--interval", "1"})).status, 0);
  const Outcome text = headrace({"timeline", file, "--width", "100"});
  ASSERT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr(", 3 stages\npredicted: 3 micro-batches that take turns; 2 new tokens, 2 sequences"));
  EXPECT_THAT(text.out, HasSubstr("\nstage 2, layers "));
  EXPECT_THAT(text.out, HasSubstr("[1==] a launch of micro-batch 1, "));
  const auto predicted = [&] { return nlohmann::json::parse(headrace({"timeline", file, "--format", "json"}).out); };
  const nlohmann::json drawn = predicted();
  EXPECT_EQ(drawn["otherData"]["stages"], 3);
  std::map<std::string, std::vector<double>> ends; // of rows, by the phase of their flow
  std::map<int, int> launches;                     // by process
  for (const nlohmann::json &event : drawn["traceEvents"]) {
    if (event.value("cat", "") == "rows")
      ends[event["ph"]].push_back(event["ts"]);
    launches[event["pid"]] += event.value("cat", "") == "launch";
  }
  for (const auto &[process, count] : launches)
    EXPECT_GE(count, 3) << process; // one of each micro-batch at least
  ASSERT_GE(ends["s"].size(), 6u);  // two borders
  ASSERT_EQ(ends["s"].size(), ends["f"].size());
  for (size_t i = 0; i < ends["s"].size(); ++i)
    EXPECT_LE(ends["s"][i], ends["f"][i]);
  ASSERT_EQ(headrace({"timeline", file, "-o", path("predicted.svg")}).status, 0);
  EXPECT_THAT(readFile(path("predicted.svg")), HasSubstr("data-headrace=\"timeline\""));
  EXPECT_THAT(readFile(path("predicted.svg")), HasSubstr("<title>rows of micro-batch 2: "));
  EXPECT_EQ(predicted(), drawn);
  // What ran, in virtual time and for real; a file that is there is replaced.
  for (const char *device : {"sim", "host"}) {
    const std::vector<std::string> run = with(with({"run", file, "--device", device}, prompts),
                                              {"--timeline", path("run.svg"), "--trace", path("run.json")});
    json(run);
    const nlohmann::json ran = nlohmann::json::parse(readFile(path("run.json")));
    EXPECT_EQ(ran["otherData"]["stages"], 3);
    EXPECT_EQ(ran["otherData"]["device"], device);
    EXPECT_THAT(readFile(path("run.svg")), HasSubstr("<title>iteration "));
    json(run);
  }
  refused({"timeline", path("model.1.plan"), "--measured", path("run.json")}, 2,
          "a timeline of stages: expected one plan's");
  refused({"timeline", file, "--measured", path("run.json")}, 2, "--measured beside stages");
  refused({"timeline", file, "--phase", "1"}, 2, "--phase beside stages");
  refused({"timeline", file, "--variant", "99"}, 2, "--variant = 99: expected one of the ");
  refused({"run", file, "--prompt-ids", "1,2", "--timeline", path("model.1.plan")}, 2, "--timeline");
  refused({"run", file, "--prompt-ids", "1,2", "--trace", path("run.svg")}, 2, "what is written is JSON");
}

TEST_F(StagesCommand, InspectShowsEachStagesPlan) {
  ASSERT_EQ(headrace(compile("2", {"-o", file, "--tpot", "40ms"})).status, 0);
  const nlohmann::json whole = json({"inspect", file});
  EXPECT_EQ(whole["objective"]["tpot_ms"], 40);
  for (size_t i = 0; i < 2; ++i)
    EXPECT_EQ(whole["stages"][i]["inspect"], json({"inspect", path("model." + std::to_string(i) + ".plan")}));
  const Outcome text = headrace({"inspect", file});
  EXPECT_THAT(text.out, HasSubstr("\nobjective      TPOT 40ms; each stage has 1/2\n"));
  EXPECT_THAT(text.out, HasSubstr("\n1      4 to 6 "));
  EXPECT_THAT(headrace({"inspect", file, "--all"}).out,
              HasSubstr("\nstage 1\n\n" + headrace({"inspect", path("model.1.plan"), "--all"}).out));
  refused({"inspect", file, "--mapping"}, 2, "--mapping of stages");
}

// Fewer stages than before: the plans that are left over go, where the file before had named them.
TEST_F(StagesCommand, PlansOfAFormerCutAreRemoved) {
  ASSERT_EQ(headrace(compile("4", {"-o", file})).status, 0);
  writeText(path("model.4.plan"), readFile(path("model.3.plan"))); // no stage of it
  const Outcome o = headrace(compile("2", {"-o", file}));
  ASSERT_EQ(o.status, 0);
  EXPECT_THAT(o.err, HasSubstr("removed " + path("model.3.plan") + ", of the stages that were in " + file));
  EXPECT_EQ(files(),
            (std::vector<std::string>{path("model.0.plan"), path("model.1.plan"), path("model.4.plan"), file}));
}

TEST_F(StagesCommand, MissedObjectivesAreSaid) {
  const Outcome refusal = headrace(compile("auto", {"--dry-run", "--tpot", "1us"}));
  EXPECT_EQ(refusal.status, 1);
  EXPECT_THAT(refusal.err, HasSubstr("stage 0 of 1"));
  EXPECT_THAT(refusal.err, HasSubstr(" of 7, "));
  EXPECT_THAT(refusal.err, HasSubstr("which has 1/7 of each objective"));
  EXPECT_THAT(refusal.err, HasSubstr("no number of stages up to 7 would do"));
  for (const char *stages : {"auto", "2"}) {
    const Outcome missed =
        headrace(compile(stages, {"--dry-run", "--tpot", "1us", "--interval", "none", "--allow-missed"}));
    EXPECT_EQ(missed.status, 0);
    EXPECT_THAT(missed.err, HasSubstr("warning: stage 0: "));
    EXPECT_THAT(missed.out, HasSubstr("\nobjective      TPOT 0.001ms"));
  }
}

TEST_F(StagesCommand, OneStageIsOnePlan) {
  ASSERT_EQ(headrace(compile("auto", {"-o", file})).status, 0);
  EXPECT_EQ(json(with({"run", file}, prompts))["tokens"], json(with({"run", path("model.0.plan")}, prompts))["tokens"]);
}

TEST_F(StagesCommand, OneFileNamesAPlanForEach) {
  const Outcome o = headrace(compile("2", {"-o", file}));
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("\nwhy            Cut by predicted time into "));
  EXPECT_THAT(o.out, HasSubstr("\n0      0 to 3 "));
  EXPECT_EQ(files(), (std::vector<std::string>{path("model.0.plan"), path("model.1.plan"), file}));
  EXPECT_THAT(readFile(file), HasSubstr("[[stage]]\nplan = \"model.1.plan\"\nlayers = \"4 to 6\"\n"));
  // Each is a plan as any other.
  EXPECT_EQ(headrace({"inspect", path("model.1.plan")}).status, 0);
  const std::map<std::string, std::string> before = contents();
  EXPECT_EQ(headrace(compile("2", {"-o", file})).status, 0); // the same, byte for byte
  EXPECT_EQ(contents(), before);
  EXPECT_EQ(json(compile("auto", {"--dry-run", "--json"}))["stages"].size(), 1u);
}

// 1,000 rows of 2,048 in F32 are 8,192,000 bytes: 1 ms at 8.192 GB/s, and 100 us at ten times that.
TEST_F(StagesCommand, APeerCopyIsPricedAndRefused) {
  const std::vector<std::string> words = {"compile",
                                          "tinyllama-1.1b",
                                          "--hardware",
                                          "a10",
                                          "--h2d-bandwidth",
                                          "8.192GB/s",
                                          "--stages",
                                          "2",
                                          "--d2h-bandwidth",
                                          "8.192GB/s",
                                          "--copy-latency",
                                          "0s",
                                          "--batch",
                                          "2",
                                          "--context",
                                          "1024",
                                          "--new-tokens",
                                          "1,1000",
                                          "--sequences",
                                          "2",
                                          "--policy",
                                          "none",
                                          "--peer-copies",
                                          "-o",
                                          file};
  refused(words, 2,
          "--peer-copies: a hop of the largest launch's 1000 rows is 7.81 MiB: by the host it takes 2.00 ms (d2h 1.00 "
          "ms + h2d 1.00 ms); what it would take from device to device nobody has said (a10 has no peer_bandwidth), "
          "and no GPU has shown a peer copy yet: expected no --peer-copies");
  refused(with(words, {"--peer-bandwidth", "81.92GB/s"}), 2,
          "--peer-copies: a hop of the largest launch's 1000 rows is 7.81 MiB: from device to device it would take 100 "
          "us (81.92GB/s), by the host it takes 2.00 ms (d2h 1.00 ms + h2d 1.00 ms); no GPU has shown a peer copy yet: "
          "expected no --peer-copies");
  EXPECT_EQ(files(), std::vector<std::string>{});
}

// Of opt-6.7b's 2 x 32 x 4,096 x 2 bytes a token the CPU reads 64 x 512 at 44 x 4.1 GB/s: 95.2 ms, however many devices
// there are. Each of as many micro-batches posts 32 x 2 x 2 steps, 30 us each: 3.84 ms.
TEST_F(StagesCommand, SayThatTheCpuThatTheyShareLimits) {
  for (const auto &[stages, microBatches] : {std::pair("2", 2), {"4", 4}}) {
    const std::vector<std::string> words = {"compile",      "opt-6.7b", "--hardware",         "v100-16-power9",
                                            "--batch",      "64",       "--mini-batches",     "2",
                                            "--context",    "512",      "--policy",           "flexgen-throughput",
                                            "--attention",  "cpu",      "--kv-device-memory", "0B",
                                            "--stages",     stages,     "--input-len",        "256",
                                            "--output-len", "64",       "--dry-run"};
    const Outcome o = headrace(words);
    ASSERT_EQ(o.status, 0) << o.err;
    EXPECT_THAT(o.out, HasSubstr(" micro-batches, each with its part of the batch, as long as all of them take of the "
                                 "CPU that stages share\n"));
    const nlohmann::json made = json(with(words, {"--json"}));
    EXPECT_EQ(made["limited_by"], "cpu");
    const double wanted = 64 / (95.2e-3 + microBatches * 3.84e-3);
    EXPECT_NEAR(made["tokens_per_second"], wanted, 0.01 * wanted);
  }
}

TEST_F(StagesCommand, RefusesWhatIsNone) {
  refused(compile("0", {"-o", file}), 2, "--stages = \"0\": expected a number of devices from 1 to 16, or auto");
  refused(compile("", {"-o", file}), 2, "--stages");
  refused(compile("two", {"-o", file}), 2, "--stages");
  refused(compile("8", {"-o", file}), 2, "stages: 8: expected 1 to 7, the layers of ");
  refused(compile("2", {"-o", file, "--dump-ir", folder}), 2, "--dump-ir beside --stages");
  refused(compile("2", {"--dry-run", "--explain"}), 2, "--explain beside --stages");
  refused({"compile", golden(kModel), "--hardware", "host", "--peer-copies", "--dry-run"}, 2,
          "--peer-copies: is of rows between stages: expected --stages beside it");
  ASSERT_EQ(headrace(compile("2", {"-o", file})).status, 0);
  const auto run = [&](const std::vector<std::string> &more = {}) {
    return with({"run", file, "--prompt-ids", "1,2"}, more);
  };
  refused(run({"--scheduler", "static"}), 2, "--scheduler static beside stages");
  refused(run({"--swap-space", "1GiB"}), 2, "--swap-space beside stages");
  refused(run({"--device", "sim", "--logits", path("l.safetensors")}), 1, "--logits: the sim device holds no data");
  refused({"bench", "serve", file, "--placement", "3"}, 2, "--placement = 3: expected one of the plan's 1, from 0");
  refused(run({"--placement", "3"}), 2, "--placement = 3: expected one of the plan's 1, from 0");
  refused({"bench", "serve", file, "--tpot", "5"}, 2, "--tpot beside the plan ");
  refused({"chat", file, "--placement", "3"}, 2, "--placement = 3: expected one of the plan's 1, from 0");
  refused(run({"--max-num-seqs", "9"}), 2, "--max-num-seqs = 9: expected 1 to 4, the plan's batch");
  refused(run({"--batch", "2"}), 2, "--batch beside the plan ");
  refused({"run", file, "--prompt-ids", "100000"}, 2, "100000");
  // A stage by itself, and stages where there is none yet.
  refused({"run", path("model.1.plan"), "--prompt-ids", "1,2"}, 2,
          "model.1.plan: a stage, layers 4 to 6 of 7: expected a plan of a whole model, or the file of stages");
  refused({"bench", "serve", path("model.1.plan")}, 2, "model.1.plan: a stage, layers 4 to 6 of 7: expected a plan");
  // A plan that is missing, and another model's in its place.
  const std::string second = readFile(path("model.1.plan"));
  writeText(file, "format = \"headrace stages\"\nversion = 1\n[[stage]]\nplan = \"model.0.plan\"\n");
  refused(run(), 2, "stage 1 is missing: layers 4 to 6 of ");
  writeText(file, "format = \"headrace stages\"\nversion = 1\n[[stage]]\nplan = \"model.0.plan\"\n[[stage]]\n");
  refused(run(), 2, "stage.plan is missing: expected a plan's file");
  writeText(file, "format = \"headrace stages\"\nversion = 2\n");
  refused(run(), 2, ":2: version = 2: expected ");
  ASSERT_EQ(headrace({"compile", golden(kModel), "--hardware", "host", "--batch", "4", "--context", "64", "--stages",
                      "2", "--kv-dtype", "f16", "-o", path("other.stages")})
                .status,
            0);
  writeText(file, "format = \"headrace stages\"\nversion = 1\n[[stage]]\nplan = \"model.0.plan\"\n[[stage]]\n"
                  "plan = \"other.1.plan\"\n");
  refused(run(), 2, "stage 1 has caches in f16, expected f32 as the first");
}

// Each names the file, the stage and what was expected.
TEST_F(StagesCommand, RefusesPlansThatAreNoStagesOfOneModel) {
  const auto other = [&](const std::vector<std::string> &words, const char *batch = "4", const char *context = "64") {
    const Outcome o =
        headrace(with(words, {"--batch", batch, "--context", context, "--stages", "2", "-o", path("other.stages")}));
    ASSERT_EQ(o.status, 0) << o.err;
  };
  const std::vector<std::string> same = {"compile", golden(kModel), "--hardware", "host"};
  ASSERT_EQ(headrace(compile("2", {"-o", file})).status, 0);
  const std::string named = readFile(file);
  const auto refusedWith = [&](const std::string &from, const std::string &to, const std::string &message) {
    std::string text = named;
    text.replace(text.find(from), from.size(), to);
    writeText(file, text);
    for (const char *command : {"run", "inspect", "timeline"})
      refused(command == std::string("run") ? std::vector<std::string>{command, file, "--prompt-ids", "1,2"}
                                            : std::vector<std::string>{command, file},
              2, message);
  };
  const auto refusedBeside = [&](const std::string &message) {
    refusedWith("model.1.plan", "other.1.plan", file + ": stage 1 has " + message);
  };
  other({"compile", golden("opt-7-tied-f32"), "--hardware", "host"});
  refusedBeside("the model opt-7-tied-f32, expected llama-7-gqa-llama3-f32 as the first");
  other(same, "8");
  refusedBeside("sequences at most 8, expected 4 as the first");
  other(same, "4", "32");
  refusedBeside("a context of 32, expected 64 as the first");
  other({"compile", golden(kModel), "--hardware", "rtx4090"});
  refusedBeside("a device of kind cuda, expected host as the first");
  other(with(same, {"--h2d-bandwidth", "7GB/s"}));
  refusedBeside("a device of h2d_bandwidth = \"7GB/s\", expected ");
  refusedWith("model.1.plan", "none.plan", file + ": stage 1: ");
  refusedWith("model.1.plan", "model.0.plan", file + ": stage 1 has layers 0 to 3, expected from 4 on");
  refusedWith("\"4 to 6\"", "\"4 to 5\"", "stage 1: layers = \"4 to 5\": ");
  refusedWith(kModel, "another", "model = \"another\": the plans are of ");
}

// Of a device, of a fleet, of instances.
TEST_F(StagesCommand, RefusesWhatHoldsNoStage) {
  const Outcome o = headrace(compile("2", {"--dry-run", "--device-memory", "40KB"}));
  EXPECT_EQ(o.status, 1);
  EXPECT_THAT(o.err, HasSubstr("stage 0 of 2, layers 0 to 3: "));
  EXPECT_THAT(o.err, HasSubstr(" bytes"));
  EXPECT_THAT(o.err, HasSubstr("nor would more of them do, up to 7"));
  refused(compile("2", {"--dry-run", "--instances", "apart"}), 2, "stages beside --instances = \"apart\"");
  ASSERT_EQ(headrace(compile("2", {"-o", file})).status, 0);
  refused({"fleet", file}, 2, file + ": a file of stages: expected a fleet's file");
  writeText(path("fleet.toml"), "[bus]\nbandwidth = \"2GB/s\"\n[[device]]\nname = \"a\"\nplan = \"model.1.plan\"\n"
                                "[[requests]]\nmodel = \"llama-7-gqa-llama3-f32\"\ncount = 1\nevery = \"1ms\"\n"
                                "batch = [1, 2]\ninput_len = 8\noutput_len = 6\nttft = \"30s\"\ntpot = \"1s\"\n");
  refused({"fleet", path("fleet.toml"), "--device", "sim"}, 2, "model.1.plan: a stage, layers 4 to 6 of 7: expected ");
}

} // namespace
} // namespace headrace::tools
