// SPDX-License-Identifier: Apache-2.0
#include <iterator>
#include <sstream>

#include <gmock/gmock.h>

#include "tests/support/Process.h"
#include "tests/support/SourceDir.h"

namespace headrace::tools {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char *kModel = "llama-7-gqa-llama3-f32";

class Compile : public CommandLine {
protected:
  std::vector<std::string> arguments(std::vector<std::string> more = {}) const {
    std::vector<std::string> all = {"compile", golden(kModel), "--hardware", "host", "--batch", "2", "--context", "64"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

TEST_F(Compile, WritesAPlanAndSaysWhatItChose) {
  const Outcome o = headrace(arguments({"-o", path("out.plan")}));
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_EQ(o.err, "");
  EXPECT_THAT(o.out, HasSubstr("offloaded      nothing\n"));
  EXPECT_THAT(o.out, HasSubstr("limited by     compute\n"));
  EXPECT_THAT(o.out, HasSubstr("as flags       headrace compile "));
  EXPECT_EQ(files(), std::vector{path("out.plan")});
  EXPECT_EQ(headrace({"inspect", path("out.plan")}).status, 0);
}

// One request alone, at 512 tokens and at the longest prompt that leaves room for 8 tokens: what simulate has for it.
TEST_F(Compile, SaysWhatARequestTakesAsSimulateDoes) {
  const std::vector<std::string> goal = {"llama-3.1-8b", "--hardware", "a10", "--batch", "2", "--context", "1024"};
  std::vector<std::string> asked = {"compile", "--dry-run"};
  asked.insert(asked.end(), goal.begin(), goal.end());
  const nlohmann::json requests = json(asked)["one_request"];
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[1]["prompt_tokens"], 1024 - 8);
  for (const nlohmann::json &request : requests) {
    std::vector<std::string> played = {"simulate",
                                       "--num-prompts",
                                       "1",
                                       "--max-new-tokens",
                                       "8",
                                       "--random-input-len",
                                       std::to_string(request["prompt_tokens"].get<int64_t>())};
    played.insert(played.begin() + 1, goal.begin(), goal.end());
    const nlohmann::json seen = json(played);
    EXPECT_DOUBLE_EQ(request["ttft_ms"].get<double>(), seen["ttft_ms"].get<double>());
    EXPECT_DOUBLE_EQ(request["tpot_ms"].get<double>(), seen["tpot_ms"].get<double>());
  }
  EXPECT_THAT(headrace(asked).out, HasSubstr("one request    512 tokens in: first token "));
}

TEST_F(Compile, TheSameInputGivesTheSamePlanByteForByte) {
  for (const char *name : {"a", "b"})
    ASSERT_EQ(headrace(arguments({"--interval", "2", "-o", path(name)})).status, 0);
  EXPECT_EQ(readFile(path("a")), readFile(path("b")));
}

TEST_F(Compile, ADryRunWritesNothing) {
  const Outcome o = headrace(arguments({"--dry-run", "-o", path("out.plan")}));
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("not written: dry run"));
  EXPECT_TRUE(files().empty());
}

TEST_F(Compile, TheFlagsOfATiedModelGiveThePlanAgain) {
  const nlohmann::json first = json({"compile", golden("qwen2-7-tied-f32"), "--hardware", "host", "--offload-layers",
                                     "7", "--offload-head", "on", "--dry-run"});
  std::istringstream words(first["command"].get<std::string>());
  std::vector<std::string> again{std::istream_iterator<std::string>(words), {}};
  again.erase(again.begin()); // "headrace"
  again.emplace_back("--dry-run");
  EXPECT_EQ(json(again)["placements"], first["placements"]);
}

TEST_F(Compile, TheFlagsItPrintsGiveThePlanAgain) {
  for (const std::vector<std::string> &policy : std::vector<std::vector<std::string>>{
           {},
           {"--interval", "3"},
           {"--offload-layers", "5"},
           {"--device-memory", "700KiB"},
           {"--interval", "2", "--start-rule", "paper"},
           {"--offload-layers", "7", "--offload-embedding", "on", "--offload-head", "on"}}) {
    const nlohmann::json first = json([&] {
      auto all = arguments(policy);
      all.emplace_back("--dry-run");
      return all;
    }());
    std::istringstream words(first["command"].get<std::string>());
    std::vector<std::string> again;
    for (std::string word; words >> word;)
      if (word != "headrace")
        again.push_back(word);
    again.emplace_back("--dry-run");
    const nlohmann::json second = json(again);
    for (const char *key :
         {"placements", "variants", "transitions", "arena_bytes", "host_bytes", "budget_bytes", "command"})
      EXPECT_EQ(first[key], second[key]) << first["command"];
  }
}

TEST_F(Compile, AShapeGivenByFlagsIsSpelledOut) {
  const std::vector<std::string> shape = {"compile", "--family",        "opt", "--layers",       "3",    "--hidden",
                                          "64",      "--heads",         "4",   "--intermediate", "128",  "--vocab",
                                          "100",     "--max-positions", "64",  "--hardware",     "host", "--dry-run"};
  const nlohmann::json j = json(shape);
  EXPECT_EQ(j["model"]["layers"], 3);
  EXPECT_THAT(j["command"].get<std::string>(), HasSubstr("--family opt --layers 3 --hidden 64"));
}

TEST_F(Compile, PicksTheFewestLayersThatFit) {
  const nlohmann::json all = json(arguments({"--dry-run"}));
  EXPECT_EQ(all["offloaded_layers"], 0);
  const nlohmann::json fewer = json(arguments({"--device-memory", "800KiB", "--dry-run"}));
  const int64_t layers = fewer["offloaded_layers"];
  EXPECT_GT(layers, 0);
  EXPECT_LE(fewer["arena_bytes"], 800 * 1024);
  // One layer less does not fit.
  const Outcome o =
      headrace(arguments({"--device-memory", "800KiB", "--dry-run", "--offload-layers", std::to_string(layers - 1)}));
  EXPECT_EQ(o.status, 1) << o.out;
}

TEST_F(Compile, ABudgetBelowTheMinimumIsRefusedWithTheMinimum) {
  refused(arguments({"--device-memory", "64KiB", "-o", path("out.plan")}), 1, "65536");
  const Outcome o = headrace(arguments({"--device-memory", "64KiB", "-o", path("out.plan")}));
  EXPECT_THAT(o.err, HasSubstr("minimum"));
  // The minimum that the message names is enough, and one byte less is not.
  const size_t at = o.err.find_first_of("0123456789", o.err.find("minimum"));
  ASSERT_NE(at, std::string::npos) << o.err;
  const uint64_t minimum = std::stoull(o.err.substr(at));
  EXPECT_EQ(headrace(arguments({"--device-memory", std::to_string(minimum) + "B", "--dry-run"})).status, 0) << o.err;
  EXPECT_EQ(headrace(arguments({"--device-memory", std::to_string(minimum - 1) + "B", "--dry-run"})).status, 1)
      << o.err;
}

TEST_F(Compile, SayingThePlacementOutright) {
  EXPECT_EQ(json(arguments({"--interval", "3", "--dry-run"}))["variants"][0]["interval"], 3);
  EXPECT_EQ(json(arguments({"--interval", "3", "--dry-run"}))["offloaded_layers"], 2); // 7 / 3
  EXPECT_EQ(json(arguments({"--interval", "none", "--dry-run"}))["variants"][0]["interval"], "none");
  EXPECT_EQ(json(arguments({"--offload-layers", "5", "--dry-run"}))["offloaded_layers"], 5);
  const nlohmann::json paper = json(arguments({"--interval", "2", "--start-rule", "paper", "--dry-run"}));
  EXPECT_EQ(paper["placements"][0]["start_rule"], "paper");
  EXPECT_TRUE(paper["transitions"].empty()); // no wrap-around: every iteration begins with nothing copied
}

TEST_F(Compile, WordsOfOtherEnginesAreTranslatedAloud) {
  const Outcome o = headrace(
      {"compile", golden(kModel), "--hardware", "host", "--max-num-seqs", "2", "-c", "64", "-ngl", "4", "--dry-run"});
  EXPECT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr("headrace: --max-num-seqs 2 means --batch 2\n"));
  EXPECT_THAT(o.err, HasSubstr("headrace: --ctx-size 64 means --context 64\n"));
  EXPECT_THAT(o.err, HasSubstr("headrace: --n-gpu-layers 4 (of 7) means --offload-layers 3\n"));
  EXPECT_THAT(o.out, HasSubstr("offloaded      3 layers"));
}

TEST_F(Compile, DumpsTheIrOfEachPhase) {
  const Outcome o = headrace(arguments({"--interval", "3", "-o", path("out.plan"), "--dump-ir", path("ir")}));
  EXPECT_EQ(o.status, 0) << o.err;
  size_t phases = 0;
  for (const std::string &file : files()) {
    if (!file.ends_with(".mlir"))
      continue;
    ++phases;
    EXPECT_THAT(readFile(file), HasSubstr("headrace."));
  }
  EXPECT_EQ(phases, 10u); // five phases of the decode and of the mixed schedule
  refused(arguments({"-o", path("b.plan"), "--dump-ir", path("no/such/folder")}), 2, "--dump-ir");
}

TEST_F(Compile, DumpsTheIrOfEachPass) {
  const Outcome o =
      headrace(arguments({"--interval", "none", "-o", path("out.plan"), "--dump-ir", path("ir"), "--dump-each-pass"}));
  EXPECT_EQ(o.status, 0) << o.err;
  std::vector<std::string> decode; // file, without folder and schedule, and "=" where nothing changed
  for (const std::string &file : files())
    if (const size_t at = file.find("/decode-none."); at != std::string::npos)
      decode.push_back(file.substr(at + 13) + (readFile(file) == "// headrace IR\n(unchanged)\n" ? " =" : ""));
  EXPECT_THAT(decode,
              testing::ElementsAre("01-verify-phase.mlir", "02-choose-homes.mlir",
                                   "03-price-direct.mlir =", "04-verify-phase.mlir =", "05-insert-movement.mlir",
                                   "06-verify-phase.mlir =", "07-assign-lanes.mlir", "08-insert-waits.mlir =",
                                   "09-elide-waits.mlir", "10-verify-phase.mlir =", "11-verify-cycles.mlir =",
                                   "12-place-on-host.mlir =", "13-place-buffers.mlir", "14-verify-phase.mlir ="));
  refused(arguments({"-o", path("b.plan"), "--dump-each-pass"}), 2, "--dump-each-pass: expected --dump-ir FOLDER");
}

TEST_F(Compile, AJobFileAndFlagsOverIt) {
  writeText(path("job.toml"),
            "[model]\npath = \"" + golden(kModel) + "\"\n[goal]\nbatch = 2\ncontext = 64\n[policy]\ninterval = 3\n");
  EXPECT_EQ(json({"compile", path("job.toml"), "--hardware", "host", "--dry-run"})["offloaded_layers"], 2);
  EXPECT_EQ(json({"compile", path("job.toml"), "--hardware", "host", "--offload-layers", "4",
                  "--dry-run"})["offloaded_layers"],
            4);
  writeText(path("bad.toml"), "[model]\npath = \"" + golden(kModel) + "\"\n[goal]\nbatch = 2\nbach = 3\n");
  refused({"compile", path("bad.toml"), "--dry-run"}, 2, path("bad.toml") + ":5: goal.bach: unknown key");
  writeText(path("bad.toml"), "[goal\n");
  refused({"compile", path("bad.toml"), "--dry-run"}, 2, path("bad.toml"));
}

TEST_F(Compile, ShippedShapesAndProfilesByName) {
  const nlohmann::json j =
      json({"compile", "opt-6.7b", "--hardware", "a10", "--batch", "8", "--context", "256", "--dry-run"});
  EXPECT_EQ(j["hardware"], "a10");
  EXPECT_EQ(j["model"]["layers"], 32);
  refused({"compile", "opt-6.8b", "--dry-run"}, 2, "opt-6.7b");
  refused({"compile", "opt-6.7b", "--hardware", "a11", "--dry-run"}, 2, "a10");
}

TEST_F(Compile, UnwritableOutputsAreRefusedBeforeAnythingRuns) {
  refused(arguments({"-o", path("no/such/folder/out.plan")}), 2,
          "command line: --output = \"" + path("no/such/folder/out.plan") +
              "\": cannot write: No such file or directory");
  refused(arguments({"-o", folder}), 2, "a folder: expected a file's name");
  refused(arguments(), 2, "no --output FILE");
  refused(arguments({"-o", "/proc/out.plan"}), 2, "/proc/out.plan");
}

TEST_F(Compile, UsageErrorsAreTwo) {
  refused({}, 2, "subcommand");
  refused({"compute"}, 2, "command = \"compute\": expected bench, chat, compile, detokenize, drift, fleet");
  refused(arguments({"--no-such-flag"}), 2, "--no-such-flag");
  refused(arguments({"--batch"}), 2, "--batch");
  refused(arguments({"--batch", "3"}), 2, "--batch"); // given twice
  refused({"compile", "--dry-run"}, 2, "no model");
  refused({"compile", golden(kModel), "--hardware", "host", "extra", "--dry-run"}, 2, "extra");
}

TEST_F(Compile, BadFlagsAreRefusedByName) {
  const auto bad = [&](const char *flag, const char *value, const char *message) {
    refused({"compile", golden(kModel), "--hardware", "host", flag, value, "-o", path("out.plan")}, 2, message);
  };
  bad("--batch", "0", "--batch = 0: expected an integer from 1");
  bad("--batch", "-4", "--batch = -4: expected an integer from 1");
  bad("--context", "1000000", "--context = 1000000: expected at most the");
  bad("--device-memory", "0B", "--device-memory = 0: expected a positive number of bytes");
  bad("--device-memory", "9223372036854775808",
      "--device-memory = \"9223372036854775808\": expected bytes with their unit");
  bad("--h2d-bandwidth", "24", "--h2d-bandwidth = \"24\": expected a positive bandwidth with its unit");
  bad("--device-memory", "lots", "--device-memory = \"lots\": expected bytes");
  bad("--interval", "8", "--interval = 8: expected at most the 7 layers");
  bad("--offload-layers", "8", "--offload-layers = 8: expected at most the 7 layers");
  bad("--kv-dtype", "fp8", "--kv-dtype = \"fp8\"");
  bad("--start-rule", "soon", "--start-rule = \"soon\": expected \"paper\" or \"eager\"");
  bad("--new-tokens", "8,4", "--new-tokens = 4: expected ascending");
  refused({"compile", golden(kModel), "--hardware", "host", "--tpot", "1s", "--start-rule", "paper", "-o",
           path("out.plan")},
          2, "command line: --start-rule = \"paper\": expected --policy \"interval\" beside it");
}

TEST_F(Compile, TheExamplesOfShippedThingsInTheHelpWork) {
  EXPECT_EQ(
      headrace({"compile", "opt-30b", "--hardware", "a10", "--batch", "4", "--context", "512", "--dry-run"}).status, 0);
  EXPECT_EQ(headrace({"simulate", "opt-30b", "--hardware", "a10", "--device-memory", "20GiB", "--random-input-len",
                      "512", "--num-prompts", "8", "--max-new-tokens", "64"})
                .status,
            0);
  EXPECT_EQ(headrace({"run", sourceDir() + "/examples/jobs/tiny-on-host.toml", "--synthetic-weights", "1",
                      "--random-input-len", "16", "--timeline", path("run.svg")})
                .status,
            0);
}

TEST_F(Compile, HelpHasAnExampleForEverySubcommand) {
  for (const char *command : {"compile", "inspect", "timeline", "run", "simulate"}) {
    const Outcome o = headrace({command, "--help"});
    EXPECT_EQ(o.status, 0);
    EXPECT_THAT(o.out, HasSubstr(std::string("Example:\n  headrace ") + command));
    EXPECT_EQ(o.err, "");
  }
  EXPECT_EQ(headrace({"--help"}).status, 0);
  EXPECT_THAT(headrace({"--version"}).out, HasSubstr("headrace "));
}

} // namespace
} // namespace headrace::tools
