// SPDX-License-Identifier: Apache-2.0
//
// Errors about what was given have one form: the flag, or the file and its key; what was found; what was expected.
#include <filesystem>

#include <sys/stat.h>

#include <gmock/gmock.h>

#include "tests/support/Process.h"
#include "tests/support/SourceDir.h"

namespace headrace::tools {
namespace {

namespace fs = std::filesystem;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::StartsWith;

constexpr const char *kModel = "llama-7-gqa-llama3-f32";

class InputErrors : public CommandLine {
protected:
  // What stands behind "headrace: error: ", whole.
  std::string error(const std::vector<std::string> &words) const {
    const Outcome o = headrace(words);
    EXPECT_EQ(o.status, 2) << o.err;
    EXPECT_EQ(o.out, "");
    EXPECT_THAT(o.err, StartsWith("headrace: error: "));
    EXPECT_TRUE(files() == before) << "left files behind";
    return o.err.substr(17, o.err.size() - 18);
  }
  std::string job(const std::string &text) {
    writeText(path("job.toml"), text);
    before = files();
    return path("job.toml");
  }
  std::vector<std::string> run(std::vector<std::string> more) const {
    std::vector<std::string> words = {"run", golden(kModel), "--hardware", "host", "--prompt-ids", "1"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  std::vector<std::string> before;
};

TEST_F(InputErrors, NumbersOfFlagsAreReadWhole) {
  for (const char *seed : {"-1", "18446744073709551616", "1.5", "1e30", "x", ""})
    EXPECT_EQ(error(run({"--seed", seed})), std::string("command line: --seed = \"") + seed +
                                                "\": expected an integer from 0 to 18446744073709551615");
  EXPECT_EQ(headrace(run({"--seed", "18446744073709551615", "--temperature", "1"})).status, 0);
  EXPECT_EQ(headrace(run({"--seed", "1e3", "--max-new-tokens", "2.0"})).status, 0);
  EXPECT_EQ(error({"run", "opt-6.7b", "--hardware", "host", "--prompt-ids", "1", "--synthetic-weights", "-1"}),
            "command line: --synthetic-weights = \"-1\": expected an integer from 0 to 18446744073709551615");
  EXPECT_EQ(error(run({"--max-new-tokens", "9999999999999999999"})),
            "command line: --max-new-tokens = \"9999999999999999999\": expected an integer from 1 to 2147483648");
  EXPECT_EQ(error(run({"--placement", "-1"})),
            "command line: --placement = \"-1\": expected an integer from 0 to 4294967295");
  EXPECT_EQ(error(run({"--temperature", "hot"})), "command line: --temperature = \"hot\": expected 0 or more");
  EXPECT_EQ(error(run({"--top-p", "nan"})), "command line: --top-p = \"nan\": expected more than 0 and at most 1");
  EXPECT_EQ(error({"timeline", "a.plan", "--format", "png"}),
            "command line: --format = \"png\": expected text, json or svg");
  EXPECT_EQ(error({"timeline", "a.plan", "--width", "wide"}),
            "command line: --width = \"wide\": expected an integer from 40 to 2000");
}

TEST_F(InputErrors, AMessageIsOneLineWhateverNamesItHolds) {
  EXPECT_EQ(error({"inspect", "a\nb\x1b[2J.plan"}), "a\\nb\\033[2J.plan: cannot read: No such file or directory");
}

// What the system does not grant is named.
TEST_F(InputErrors, LimitsOfTheSystemAreNamed) {
  const std::string model = golden("text-models/qwen3-chat");
  const Outcome stack = shell("ulimit -s 64; $HEADRACE tokenize " + model + " hello");
  EXPECT_EQ(stack.status, 1);
  EXPECT_EQ(stack.err, "headrace: error: a stack of 65536 bytes: expected at least 1048576 (ulimit -s 1024)\n");
  const std::string run = "$HEADRACE run " + model + " --hardware host --prompt-ids 1 --max-new-tokens 2";
  int ran = 0, refused = 0;
  for (int megabytes = 20; megabytes <= 60; megabytes += 4) { // from where it begins to start to where it runs
    const Outcome memory = shell("ulimit -v " + std::to_string(megabytes * 1000) + "; " + run);
    ran += memory.status == 0;
    if (memory.status == 0 || memory.status == 127) // 127: its libraries have no room
      continue;
    ++refused;
    EXPECT_EQ(memory.status, 1) << megabytes << " MB: " << memory.err;
    EXPECT_THAT(memory.err, ContainsRegex("headrace: error: .*(memory|ulimit)")) << megabytes << " MB";
  }
  EXPECT_GT(refused, 0) << ran << " ran";
}

TEST_F(InputErrors, UsageIsSaidInTheSameWords) {
  EXPECT_EQ(error({"compute"}),
            "command line: command = \"compute\": expected bench, chat, compile, detokenize, drift, fleet, help, "
            "inspect, profile, record, run, simulate, timeline, tokenize or version; did you mean compile?");
  EXPECT_EQ(error({"inspect"}), "command line: no plan: expected one (headrace inspect --help)");
  EXPECT_EQ(error({}), "command line: no subcommand: expected one (headrace --help)");
  EXPECT_EQ(error(run({"--no-such-flag"})),
            "command line: --no-such-flag: expected a flag or an argument of headrace run (headrace run --help)");
  EXPECT_EQ(error(run({"--seed"})), "command line: --seed: no value: expected one behind it (headrace run --help)");
  EXPECT_EQ(error(run({"--seed", "1", "--seed", "2"})), "command line: --seed: given more than once: expected it once");
}

TEST_F(InputErrors, AFlagHasNoValue) {
  for (const auto &[word, said] : {std::pair("--pin=3", "--pin = \"3\""),
                                   {"--pin=yes", "--pin = \"yes\""},
                                   {"--json=foo", "--json = \"foo\""},
                                   {"--json=", "--json = \"\""}})
    EXPECT_EQ(error(run({word})),
              std::string("command line: ") + said + ": expected no value: this flag is there, or is not");
}

// A file's; what a flag says is meant.
TEST_F(InputErrors, ALinkThatIsSlowerThanAnyIsSaid) {
  std::string text = readFile(sourceDir() + "/examples/hardware/a10.toml");
  for (const char *key : {"h2d_bandwidth", "d2h_bandwidth", "duplex_bandwidth"}) {
    const size_t at = text.find(key);
    ASSERT_NE(at, std::string::npos);
    text.replace(at, text.find('\n', at) - at, std::string(key) + " = \"24MB/s\"");
  }
  writeText(path("slow.toml"), text);
  const std::vector<std::string> words = {"compile", "opt-6.7b", "--hardware", path("slow.toml"), "--dry-run"};
  const std::string said = "h2d_bandwidth = 24MB/s: slower than one lane of PCIe 1.0, 250 MB/s";
  EXPECT_THAT(headrace(words).err, HasSubstr(said));
  std::vector<std::string> meant = words;
  meant.insert(meant.end(), {"--h2d-bandwidth", "24MB/s"});
  EXPECT_THAT(headrace(meant).err, testing::Not(HasSubstr("slower than")));
}

TEST_F(InputErrors, TheFlagThatWasTypedIsNamed) {
  const auto compile = [&](const std::vector<std::string> &flags) {
    std::vector<std::string> words = {"compile", "opt-6.7b", "--hardware", "a10", "--dry-run"};
    words.insert(words.end(), flags.begin(), flags.end());
    return error(words);
  };
  EXPECT_EQ(compile({"--max-model-len", "8k"}),
            "command line: --max-model-len = 8000: expected at most the 2048 positions of opt-6.7b");
  EXPECT_EQ(compile({"--ctx-size=0"}), "command line: --ctx-size = 0: expected an integer from 1 to 2147483647");
  EXPECT_EQ(compile({"-c", "0"}), "command line: -c = 0: expected an integer from 1 to 2147483647");
  EXPECT_THAT(compile({"--kv-cache-dtype", "fp8"}), StartsWith("command line: --kv-cache-dtype = \"fp8\": expected"));
  EXPECT_THAT(compile({"--gpu-memory-utilization", "0.5", "--kv-device-memory", "20GB"}),
              StartsWith("command line: --kv-device-memory = 20000000000: expected at most"));
  EXPECT_THAT(compile({"-ngl", "30", "--interval", "2"}), StartsWith("command line: -ngl = "));
  EXPECT_THAT(error(run({"--n-predict", "0"})), StartsWith("command line: --n-predict = \"0\": expected"));
  EXPECT_THAT(error(run({"--n-predict", "2", "--max-new-tokens", "0"})), StartsWith("command line: "));
}

TEST_F(InputErrors, ANameThatIsLikeAnotherIsNamed) {
  EXPECT_THAT(error({"compile", "llama3-8b", "--dry-run"}), HasSubstr("; did you mean llama-3.1-8b"));
  EXPECT_THAT(error({"compile", "opt-6.7b", "--hardware", "rtx-4090", "--dry-run"}),
              HasSubstr("; did you mean rtx4090?"));
  EXPECT_THAT(error({"compile", "opt-6.7b", "--polcy", "none"}), HasSubstr("; did you mean --policy?"));
  EXPECT_THAT(error({"compile", "opt-6.7b", "--policy", "selectn", "--dry-run"}),
              HasSubstr("; did you mean select-n?"));
  EXPECT_THAT(error({"compile", job("[model]\nshape = \"opt-6.7b\"\n[goal]\ncontxt = 8\n"), "--dry-run"}),
              HasSubstr("; did you mean context?"));
}

TEST_F(InputErrors, HelpAndVersionAreCommandsToo) {
  EXPECT_EQ(headrace({"help"}).out, headrace({"--help"}).out);
  EXPECT_EQ(headrace({"help", "run"}).out, headrace({"run", "--help"}).out);
  EXPECT_EQ(headrace({"help", "bench", "serve"}).out, headrace({"bench", "serve", "--help"}).out);
  EXPECT_EQ(headrace({"version"}).out, headrace({"--version"}).out);
  EXPECT_THAT(headrace({"version"}).out, StartsWith("headrace "));
  EXPECT_THAT(error({"help", "rum"}), HasSubstr("; did you mean run?"));
  EXPECT_THAT(error({"bench", "sreve", "opt-6.7b"}), HasSubstr("opt-6.7b: expected a flag or an argument of headrace "
                                                               "bench (headrace bench --help); did you mean serve?"));
  EXPECT_THAT(error({"compile", "opt-6.7b", "--", "--batch"}), testing::EndsWith("; behind -- no flag is one"));
  EXPECT_EQ(error({"help", "run", "fast"}), "command line: help run fast: expected a command, such as help run");
}

TEST_F(InputErrors, TokenIdsAreOfTheVocabulary) {
  const auto vocab = nlohmann::json::parse(readFile(golden(kModel) + "/config.json"))["vocab_size"].get<int>();
  const std::string last = std::to_string(vocab - 1);
  EXPECT_EQ(error(run({"--stop-ids", "3,999999"})),
            "command line: --stop-ids = 999999: expected token ids from 0 to " + last + ", the model's vocabulary");
  EXPECT_EQ(headrace(run({"--stop-ids", last})).status, 0);
  EXPECT_EQ(headrace(run({"--stop-ids", std::to_string(vocab)})).status, 2);
  EXPECT_EQ(error({"run", golden(kModel), "--hardware", "host", "--prompt-ids", ""}),
            "command line: --prompt-ids: prompt 0 = \"\": expected at least one token id");
}

TEST_F(InputErrors, AmountsHaveAUnit) {
  const auto compile = [&](const std::string &flag, const std::string &value) {
    return std::vector<std::string>{"compile", "opt-6.7b", "--hardware", "a10", flag, value, "--dry-run"};
  };
  EXPECT_THAT(error(compile("--device-memory", "9223372036854775808")),
              StartsWith("command line: --device-memory = \"9223372036854775808\": expected bytes with their unit"));
  EXPECT_THAT(error(compile("--h2d-bandwidth", "24")),
              StartsWith("command line: --h2d-bandwidth = \"24\": expected a positive bandwidth with its unit"));
  EXPECT_THAT(error(compile("--tpot", "50")),
              StartsWith("command line: --tpot = \"50\": expected a time with its unit (ns, us, ms or s)"));
  EXPECT_THAT(headrace(compile("--device-memory", "8G")).err, HasSubstr("--device-memory 8G means 8GiB\n"));
  EXPECT_THAT(headrace(compile("--context", "0.5k")).err, HasSubstr("--context 0.5k means 500\n"));
  EXPECT_THAT(headrace(run({"--max-new-tokens", "0.002k"})).err, HasSubstr("--max-new-tokens 0.002k means 2\n"));
  EXPECT_THAT(
      error({"compile", job("[model]\nshape = \"opt-6.7b\"\n[hardware]\nfile = \"a10\"\nh2d_bandwidth = 24\n"),
             "--dry-run"}),
      StartsWith(path("job.toml") + ":5: hardware.h2d_bandwidth = 24: expected a positive bandwidth with its unit"));
  EXPECT_THAT(
      error({"compile", job("[model]\nshape = \"opt-6.7b\"\n[goal]\ndevice_memory = 8000000000\n"), "--dry-run"}),
      StartsWith(path("job.toml") + ":4: goal.device_memory = 8000000000: expected bytes with their unit"));
  EXPECT_THAT(error(run({"--link-bandwidth", "12"})), StartsWith("command line: --link-bandwidth = \"12\": expected"));
  EXPECT_THAT(error(run({"--graph-memory", "12"})),
              StartsWith("command line: --graph-memory = \"12\": expected bytes"));
}

TEST_F(InputErrors, ALinkIsAskedForByOneFlag) {
  const auto plan = json({"compile", "opt-6.7b", "--hardware", "a10", "--device-memory", "10GiB", "--batch", "2",
                          "--context", "64", "--h2d-bandwidth", "48GB/s", "--dry-run"});
  // What is printed says the flag, and neither of those that follow from it.
  const auto command = plan["command"].get<std::string>();
  EXPECT_THAT(command, HasSubstr(" --hardware a10 --h2d-bandwidth 48GB/s --device-memory 10GiB "));
  EXPECT_THAT(command, testing::Not(HasSubstr("duplex")));
  const auto apart = json({"compile", "opt-6.7b", "--hardware", "a10", "--device-memory", "10GiB", "--batch", "2",
                           "--context", "64", "--d2h-bandwidth", "12GB/s", "--dry-run"});
  EXPECT_THAT(apart["command"].get<std::string>(),
              HasSubstr(" --hardware a10 --d2h-bandwidth 12GB/s --duplex-bandwidth 27GB/s --device-memory"));
}

TEST_F(InputErrors, FiguresThatNobodyMeantAreNotTheCompilersFault) {
  EXPECT_EQ(error({"compile", "opt-6.7b", "--hardware", "a10", "--device-memory", "10GiB", "--h2d-bandwidth", "1B/s",
                   "--dry-run"}),
            "command line: --h2d-bandwidth = 1B/s: expected one by which every step takes less than 8796.09 s");
  EXPECT_EQ(error({"compile", "opt-6.7b", "--hardware", "a10", "--flops-f16", "1FLOP/s", "--dry-run"}),
            "command line: --flops-f16 = 1FLOP/s: expected one by which every step takes less than 8796.09 s");
  // Prices may be longer than what a plan's steps may take. 10,000 s are more, and so are 400 MB at 1 KB/s.
  for (const auto &[flag, value] : {std::pair("--h2d-bandwidth", "1KB/s"),
                                    {"--copy-latency", "10000s"},
                                    {"--launch-overhead", "10000s"},
                                    {"--flops-f16", "100FLOP/s"},
                                    {"--flops-efficiency", "1e-12"},
                                    {"--link-efficiency", "1e-09"}})
    EXPECT_EQ(error({"compile", "opt-6.7b", "--hardware", "a10", "--device-memory", "10GiB", flag, value, "--dry-run"}),
              "command line: " + std::string(flag) + " = " + value +
                  ": expected one by which every step takes less than 8796.09 s");
}

TEST_F(InputErrors, KeysOfAJobAreNamedWithItsFile) {
  const std::string model = "[model]\npath = \"" + golden(kModel) + "\"\n";
  EXPECT_THAT(error({"compile", job("[model]\nfile = \"m\"\n"), "--dry-run"}),
              StartsWith(path("job.toml") + ":2: model.file: unknown key: expected one of path, shape, "));
  EXPECT_EQ(error({"compile", job(model + "[goal]\nbatch = 2\n[buckets]\nsequences = [1, 4]\n"), "--hardware", "host",
                   "--dry-run"}),
            path("job.toml") + ": buckets.sequences = 4: expected a last size of 2, which is goal.batch");
  EXPECT_EQ(error({"compile", job(model + "[buckets]\nsequences = [1, 4]\n"), "--hardware", "host", "--batch", "2",
                   "--dry-run"}),
            path("job.toml") + ": buckets.sequences = 4: expected a last size of 2, which is --batch");
  EXPECT_EQ(
      error({"compile", job(model + "[goal]\nbatch = 2\n"), "--hardware", "host", "--sequences", "1,4", "--dry-run"}),
      "command line: --sequences = 4: expected a last size of 2, which is goal.batch");
  EXPECT_EQ(error({"compile", job("[buckets]\ncontexts = [4096]\n"), "--hardware", "host", "--model", "opt-6.7b",
                   "--dry-run"}),
            path("job.toml") + ": buckets.contexts = 4096: expected at most the 2048 positions of opt-6.7b");
  EXPECT_EQ(headrace({"compile", job(model + "[goal]\nbatch = 2.0\n"), "--hardware", "host", "--dry-run"}).status, 0);
  EXPECT_THAT(error({"compile", job(model + "[goal]\nbatch = 2.5\n"), "--dry-run"}),
              StartsWith(path("job.toml") + ":4: goal.batch = 2.5: expected an integer from 1"));
}

TEST_F(InputErrors, WhatIsNoFileIsSaidToBeWhatItIs) {
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  before = files();
  for (const auto &[name, type] :
       {std::pair<std::string, std::string>{path("fifo"), "a FIFO"}, {"/dev/zero", "a device"}}) {
    EXPECT_EQ(error({"compile", name, "--dry-run"}),
              "\"" + name + "\": " + type + ": expected a regular file or a folder");
    EXPECT_EQ(error({"compile", "opt-6.7b", "--hardware", name, "--dry-run"}),
              "command line: --hardware: \"" + name + "\": " + type + ": expected a regular file or a folder");
    EXPECT_EQ(error({"inspect", name}), name + ": " + type + ": expected a regular file");
    EXPECT_EQ(error({"record", "show", name}), name + ": " + type + ": expected a regular file");
    EXPECT_EQ(error({"fleet", name}), name + ": " + type + ": expected a regular file");
  }
  // Prompts are read from pipes; what has no end is not.
  EXPECT_EQ(error({"run", golden(kModel), "--hardware", "host", "--prompt-ids-file", "/dev/zero"}),
            "/dev/zero: expected at most 67108864 bytes");
}

TEST_F(InputErrors, WithJsonAnErrorIsAnObject) {
  const auto object = [&](std::vector<std::string> words) {
    words.emplace_back("--json");
    const Outcome o = headrace(words);
    const auto parsed = nlohmann::json::parse(o.out, nullptr, false);
    EXPECT_FALSE(parsed.is_discarded()) << o.out;
    EXPECT_EQ(parsed["error"]["exit_status"], o.status);
    EXPECT_EQ("headrace: error: " + parsed["error"]["message"].get<std::string>() + "\n", o.err);
    return parsed["error"];
  };
  EXPECT_EQ(object({"compile", golden(kModel), "--hardware", "host", "--batch", "0", "--dry-run"})["exit_status"], 2);
  EXPECT_EQ(
      object({"compile", golden(kModel), "--hardware", "host", "--device-memory", "64KiB", "--dry-run"})["exit_status"],
      1);
  EXPECT_EQ(object(run({"--seed", "-1"}))["exit_status"], 2);
  EXPECT_EQ(object({"inspect"})["exit_status"], 2);
  EXPECT_EQ(object({"inspect", path("missing.plan")})["exit_status"], 2);
  EXPECT_EQ(object({"record", "show", path("missing.toml")})["exit_status"], 2);
  EXPECT_EQ(object({"fleet", path("missing.toml")})["exit_status"], 2);
  EXPECT_EQ(object({"compute"})["exit_status"], 2);
  // A comparison in which nothing ran has its own object, with the reasons.
  const Outcome nothing =
      headrace({"bench", "opt-6.7b", "--hardware", "a10", "--device", "sim", "--policies", "none", "--batches", "1",
                "--input-len", "8", "--output-len", "3", "--device-memory", "1GiB", "--json"});
  EXPECT_EQ(nothing.status, 1);
  EXPECT_EQ(nlohmann::json::parse(nothing.out, nullptr, false)["format"], "headrace-bench");
}

TEST_F(InputErrors, APlanFindsItsModelFromAnyFolder) {
  fs::create_directories(path("models"));
  fs::rename(copyModel(kModel), path("models/m"));
  fs::create_directories(path("plans"));
  ASSERT_EQ(
      shell("cd " + folder + " && $HEADRACE compile models/m --hardware host --batch 2 --context 64 -o plans/m.plan")
          .status,
      0);
  EXPECT_EQ(json({"inspect", path("plans/m.plan")})["model"]["path"], "../models/m");
  const std::string run = "$HEADRACE run --prompt-ids 1,2 --max-new-tokens 2 ";
  for (const std::string &from : {folder, path("plans"), std::string("/")})
    EXPECT_EQ(shell("cd " + from + " && " + run + path("plans/m.plan")).status, 0) << from;
  EXPECT_EQ(shell("cd " + path("plans") + " && " + run + "m.plan").status, 0);
  // Moved together they find each other; the plan alone does not.
  fs::create_directories(path("elsewhere"));
  fs::rename(path("models"), path("elsewhere/models"));
  fs::rename(path("plans"), path("elsewhere/plans"));
  EXPECT_EQ(shell(run + path("elsewhere/plans/m.plan")).status, 0);
  fs::rename(path("elsewhere/plans/m.plan"), path("m.plan"));
  const Outcome alone = shell(run + path("m.plan"));
  EXPECT_EQ(alone.status, 2);
  EXPECT_THAT(alone.err, HasSubstr("expected --weights FOLDER"));
}

TEST_F(InputErrors, APlansBytesDoNotDependOnWhereTheFolderIs) {
  for (const char *place : {"here", "there"}) {
    fs::create_directories(path(place));
    fs::rename(copyModel(kModel), path(place) + "/m");
    ASSERT_EQ(
        shell("cd " + path(place) + " && $HEADRACE compile m --hardware host --batch 2 --context 64 -o m.plan").status,
        0);
  }
  EXPECT_EQ(readFile(path("here/m.plan")), readFile(path("there/m.plan")));
}

TEST_F(InputErrors, NamesArePrintable) {
  constexpr const char *kExpected = ": expected 1 to 256 bytes without control characters";
  EXPECT_EQ(error({"compile", "tinyllama-1.1b", "--hardware", "host", "--model-name", "a\tb", "--dry-run"}),
            std::string("command line: --model-name = \"a\\tb\"") + kExpected);
  EXPECT_EQ(error({"compile", "tinyllama-1.1b", "--hardware", "host", "--hardware-name", "a\nb", "--dry-run"}),
            std::string("command line: --hardware-name = \"a\\nb\"") + kExpected);
  const std::string folder = path("new\nline");
  fs::copy(golden(kModel), folder);
  before = files();
  EXPECT_THAT(error({"compile", folder, "--hardware", "host", "--dry-run"}),
              testing::EndsWith(std::string("new\\nline\": the name of a folder is its model's") + kExpected));
}

TEST_F(InputErrors, ABudgetIsNotAboveTheMemoryThatThereIs) {
  EXPECT_EQ(error({"compile", "opt-30b", "--hardware", "a10", "--device-memory", "200GiB", "--dry-run"}),
            "command line: --device-memory = 214748364800: expected at most the 24000000000 bytes that a10 has");
}

TEST_F(InputErrors, WhatWouldBeIgnoredIsRefused) {
  EXPECT_EQ(error(run({"--num-prompts", "4"})),
            "command line: --num-prompts = 4: expected --random-input-len beside it: other prompts are as many as are "
            "given");
  EXPECT_EQ(
      error(
          {"bench", golden(kModel), "--hardware", "host", "--device", "sim", "--batches", "8", "--max-num-seqs", "4"}),
      "command line: --max-num-seqs = \"4\": it means --batch, and --batches is given, too: expected one of them");
  EXPECT_EQ(error({"bench", golden(kModel), "--hardware", "host", "--device", "sim", "--slo-factor", "2", "--batch",
                   "4", "--batches", "1"}),
            "command line: --batch = \"4\": --batches is given, too: expected one of them");
  EXPECT_THAT(error({"bench", golden(kModel), "--hardware", "host", "--device", "sim", "--slo-factor", "2", "--policy",
                     "select-n"}),
              StartsWith("command line: --policy select-n: expected a flag or an argument of headrace bench"));
  EXPECT_THAT(error({"bench", golden(kModel), "--hardware", "host", "--device", "sim", "--slo-factor", "2",
                     "--input-len", "2000"}),
              StartsWith("command line: --input-len = 2000: expected with --output-len 32 at most the "));
}

TEST_F(InputErrors, APromptThatNamesNoFile) {
  EXPECT_EQ(error({"run", golden(kModel), "--hardware", "host", "--prompt-ids", "prompts.txt"}),
            "command line: --prompt-ids = \"prompts.txt\": expected token ids such as \"1,2,3;4,5\", or a file of them "
            "that is there");
}

} // namespace
} // namespace headrace::tools
