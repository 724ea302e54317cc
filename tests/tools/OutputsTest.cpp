// SPDX-License-Identifier: Apache-2.0
//
// What the commands write: nothing of the user's is destroyed, nothing half-written stays.
#include <filesystem>

#include <sys/stat.h>

#include <gmock/gmock.h>

#include "tests/support/Process.h"
#include "tests/support/SourceDir.h"

namespace headrace::tools {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr const char *kModel = "llama-7-gqa-llama3-f32";

class OutputFiles : public CommandLine {
protected:
  std::vector<std::string> compile(const std::string &model, const std::string &output,
                                   std::vector<std::string> more = {}) const {
    std::vector<std::string> words = {"compile", model,       "--hardware", "host", "--batch",
                                      "2",       "--context", "64",         "-o",   output};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  void succeeds(const std::vector<std::string> &words) const {
    const Outcome o = headrace(words);
    EXPECT_EQ(o.status, 0) << o.err;
  }
  // Refused as it stands and with --overwrite.
  void neverWritten(std::vector<std::string> words, const std::string &message) const {
    refused(words, 2, message);
    words.emplace_back("--overwrite");
    refused(words, 2, message);
  }
};

TEST_F(OutputFiles, AModelsFilesAreNeverReplaced) {
  const std::string model = copyModel(kModel);
  writeText(model + "/tokenizer.json", "{}");
  fs::create_symlink(model + "/model.safetensors", path("link.plan"));
  fs::create_hard_link(model + "/model.safetensors", path("hard.plan"));
  fs::create_symlink(model, path("other"));
  for (const std::string &output :
       {model + "/model.safetensors", model + "/../model/model.safetensors", path("other/model.safetensors"),
        path("link.plan"), path("hard.plan"), model + "/config.json", model + "/tokenizer.json"})
    neverWritten(compile(model, output), "--output = \"" + output + "\": it is " + model + "/");
  neverWritten(compile(path("other"), model + "/config.json"), "a file of the model's folder: expected another name");
  succeeds(compile(model, path("ok.plan")));
  for (const char *flag : {"--logits", "--trace"})
    neverWritten({"run", path("ok.plan"), "--prompt-ids", "1", flag, path("hard.plan")},
                 "a file of the model's folder");
  neverWritten({"run", path("ok.plan"), "--prompt-ids", "1", "--trace", path("ok.plan")}, "which this command reads");
  neverWritten({"run", model, "--hardware", "host", "--prompt-ids", "1", "--logits", model + "/model.safetensors"},
               "of the model's folder");
  neverWritten({"bench", model, "--hardware", "host", "--policies", "none", "-o", model + "/config.json"},
               "of the model's folder");
  neverWritten({"profile", model, "--hardware", "host", "-o", model + "/config.json"}, "of the model's folder");
  // What Headrace wrote into the folder is not the model's.
  succeeds(compile(model, model + "/out.plan"));
  succeeds(compile(model, model + "/out.plan"));
}

TEST_F(OutputFiles, InputsAreNeverReplaced) {
  fs::copy_file(sourceDir() + "/examples/hardware/host.toml", path("hw.toml"));
  writeText(path("job.toml"), "[model]\npath = \"" + golden(kModel) + "\"\n[hardware]\nfile = \"hw.toml\"\n");
  const std::vector<std::string> sizes = {"--batch", "2", "--context", "64"};
  neverWritten({"compile", path("job.toml"), "--batch", "2", "--context", "64", "-o", path("job.toml")},
               "which this command reads");
  neverWritten({"compile", path("job.toml"), "--batch", "2", "--context", "64", "-o", path("hw.toml")},
               "which this command reads");
  neverWritten({"compile", golden(kModel), "--hardware", path("hw.toml"), "-o", path("hw.toml")},
               "which this command reads");
  // A record and a plan would be replaced by ones of their own kind, were they not read.
  succeeds({"profile", "opt-6.7b", "--hardware", "a10", "--device", "sim", "--batches", "1,2", "--sequences", "64,128",
            "-o", path("r.toml")});
  neverWritten({"compile", "opt-6.7b", "--hardware", "a10", "--batch", "2", "--context", "64", "--record",
                path("r.toml"), "-o", path("r.toml")},
               "which this command reads");
  succeeds(compile(golden(kModel), path("a.plan")));
  neverWritten({"timeline", path("a.plan"), "-o", path("a.plan")}, "which this command reads");
  writeText(path("prompts"), "1,2,3\n");
  neverWritten({"run", path("a.plan"), "--prompt-ids-file", path("prompts"), "--trace", path("prompts")},
               "which this command reads");
  neverWritten({"run", path("a.plan"), "--prompt-ids", path("prompts"), "--trace", path("prompts")},
               "which this command reads");
  succeeds({"run", path("a.plan"), "--prompt-ids", "1", "--trace", path("t.json")});
  neverWritten({"timeline", path("a.plan"), "--measured", path("t.json"), "--format", "json", "-o", path("t.json")},
               "which this command reads");
}

TEST_F(OutputFiles, WhatHeadraceDidNotWriteTakesOverwrite) {
  const std::string plan = path("a.plan");
  succeeds(compile(golden(kModel), plan));
  const std::string mine = path("mine.toml");
  const auto foreign = [&](std::vector<std::string> words, const std::string &kind) {
    writeText(mine, "something that somebody needs\n");
    words.push_back(mine);
    refused(words, 2, "a file is there, and it is no " + kind + " of headrace: expected another name, or --overwrite");
    words.emplace_back("--overwrite");
    succeeds(words);
    EXPECT_NE(readFile(mine), "something that somebody needs\n");
    succeeds(words); // its own kind now
    words.pop_back();
    if (words.front() != "profile") // a whole record is not measured twice
      succeeds(words);
  };
  foreign({"compile", golden(kModel), "--hardware", "host", "--batch", "2", "--context", "64", "-o"}, "plan");
  foreign({"timeline", plan, "-o"}, "timeline");
  foreign({"timeline", plan, "--format", "svg", "-o"}, "timeline");
  foreign({"timeline", plan, "--format", "json", "-o"}, "timeline");
  foreign({"run", plan, "--prompt-ids", "1", "--trace"}, "timeline");
  foreign({"run", plan, "--prompt-ids", "1", "--logits"}, "file of logits");
  foreign({"simulate", plan, "--prompt-ids", "1", "--trace"}, "timeline");
  const std::vector<std::string> bench = {"bench",       "opt-6.7b", "--hardware",   "a10", "--device", "sim",
                                          "--policies",  "none",     "--batches",    "1",   "--rounds", "1",
                                          "--input-len", "8",        "--output-len", "3"};
  for (const char *flag : {"-o", "--svg"}) {
    auto words = bench;
    words.emplace_back(flag);
    foreign(words, "bench");
  }
  // A file of another of Headrace's kinds is not replaced either; an empty one is.
  refused({"run", plan, "--prompt-ids", "1", "--trace", mine}, 2, "it is no timeline of headrace");
  writeText(path("empty"), "");
  succeeds({"run", plan, "--prompt-ids", "1", "--trace", path("empty")});
}

TEST_F(OutputFiles, ARecordIsReplacedByOverwriteOrForceByWhatItIs) {
  const std::string record = path("r.toml");
  std::vector<std::string> words = {"profile",   "opt-6.7b", "--hardware",  "a10",    "--device", "sim",
                                    "--batches", "1,2",      "--sequences", "64,128", "-o",       record};
  writeText(record, "something that somebody needs\n");
  refused(words, 2, "no record of headrace: expected another name, or --overwrite");
  words.emplace_back("--force"); // of a record only
  refused(words, 2, "no record of headrace: expected another name, or --overwrite");
  words.back() = "--overwrite";
  succeeds(words);
  refused(words, 2, "is a complete record of this already; --force measures anew");
}

TEST_F(OutputFiles, TwoOutputsAreTwoFiles) {
  succeeds(compile(golden(kModel), path("a.plan")));
  fs::create_symlink(path("t.txt"), path("same.txt"));
  const auto run = [&](const std::string &logits, const std::string &timeline) {
    return std::vector<std::string>{"run",      path("a.plan"), "--prompt-ids", "1",
                                    "--logits", logits,         "--timeline",   timeline};
  };
  neverWritten(run(path("t.txt"), path("t.txt")), "the same file as --logits: expected another name");
  neverWritten(run(path("./t.txt"), path("t.txt")), "the same file as --logits: expected another name");
  writeText(path("t.txt"), "");
  neverWritten(run(path("same.txt"), path("t.txt")), "the same file as --logits: expected another name");
  neverWritten({"bench", golden(kModel), "--hardware", "host", "--svg", path("b"), "-o", path("b")},
               "the same file as --svg");
  fs::create_directory(path("ir"));
  neverWritten(compile(golden(kModel), path("ir/decode.1-model.mlir"), {"--dump-ir", path("ir")}), "--dump-ir");
}

TEST_F(OutputFiles, DumpedIrReplacesIrOnly) {
  const std::vector<std::string> words = compile(golden(kModel), path("a.plan"), {"--dump-ir", path("ir")});
  succeeds(words);
  succeeds(words);
  writeText(path("ir/mine.mlir"), "module {}\n");
  refused(words, 2, "a file is there, and it is no IR of headrace");
  fs::remove_all(path("ir"));
  const std::string model = copyModel(kModel);
  refused(compile(model, path("b.plan"), {"--dump-ir", model}), 2, "it is the model's folder: expected another one");
  writeText(path("ir"), "a file");
  neverWritten(words, "--dump-ir = \"" + path("ir") + "\": a file: expected a folder");
}

TEST_F(OutputFiles, StandardOutputAndDevices) {
  succeeds(compile(golden(kModel), path("a.plan")));
  neverWritten(compile(golden(kModel), "-"),
               "--output = \"-\": standard output is for the report: expected a file's name");
  for (const char *flag : {"--logits", "--trace"})
    neverWritten({"run", path("a.plan"), "--prompt-ids", "1", flag, "-"}, "standard output is for the report");
  neverWritten({"timeline", path("a.plan"), "-o", path("t.pdf")}, "what is drawn is SVG: expected a name such as");
  neverWritten(compile(golden(kModel), path("p.png")), "what is written is a plan: expected another name");
  neverWritten({"run", path("a.plan"), "--prompt-ids", "1", "--trace", path("t.svg")},
               "what is written is JSON: expected a name such as trace.json, or --timeline");
  neverWritten({"run", path("a.plan"), "--prompt-ids", "1", "--trace", path("t.pdf")},
               "what is written is JSON: expected a name such as trace.json, or --timeline");
  neverWritten({"profile", "opt-6.7b", "--hardware", "a10", "--device", "sim", "-o", path("r.svg")},
               "what is written is a record: expected another name");
  neverWritten({"bench", golden(kModel), "--hardware", "host", "-o", path("b.svg")},
               "what is written is JSON: expected another name");
  neverWritten({"timeline", path("a.plan"), "-o", path("a.plan") + "/x"},
               "a.plan is a file: expected a file in a folder");
  const Outcome drawn = headrace({"timeline", path("a.plan"), "--width", "80"});
  EXPECT_EQ(headrace({"timeline", path("a.plan"), "--width", "80", "-o", "-"}).out, drawn.out);
  neverWritten(compile(golden(kModel), "/dev/null"), "a device: expected a file's name");
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  neverWritten(compile(golden(kModel), path("fifo")), "a FIFO: expected a file's name");
  neverWritten(compile(golden(kModel), "/dev/stdout"), "it is where standard output goes"); // a file, in these tests
  const Outcome piped = shell("$HEADRACE timeline " + path("a.plan") + " -o /dev/stdout | cat");
  EXPECT_THAT(piped.err, HasSubstr("a FIFO: expected a file's name"));
}

TEST_F(OutputFiles, AnInterruptedCommandLeavesNoPartBehind) {
  writeText(path("model.toml"), "family = \"llama\"\nlayers = 4\nhidden = 256\nheads = 4\nintermediate = 512\n"
                                "vocab = 2000\nmax_positions = 256\ndtype = \"f32\"\n");
  const auto partThere = [&] {
    for (const std::string &file : files())
      if (file.find(".part-") != std::string::npos)
        return true;
    return false;
  };
  for (const int signal : {SIGINT, SIGTERM}) {
    bool struck = false; // a part is there for some 10 ms: a busy machine may not see one before the command has ended
    const auto strikes = [&] { return struck = partThere(); };
    Outcome o;
    for (int tries = 0; tries < 20 && !struck; ++tries)
      o = headraceKilled({"profile", path("model.toml"), "--hardware", "host", "--seconds-per-pair", "0.05", "--force",
                          "--threads", "3", "-o", path("r.toml")},
                         strikes, signal);
    EXPECT_TRUE(struck);
    EXPECT_EQ(o.status, 128 + signal) << o.err;
    EXPECT_FALSE(partThere());
  }
}

TEST_F(OutputFiles, AFileThatMayNotGrowIsAFailedWrite) {
  // 8 blocks of 512 bytes; the plan takes more.
  const Outcome o = shell("ulimit -f 8; $HEADRACE compile " + golden(kModel) +
                          " --hardware host --batch 2 --context 64 -o " + path("a.plan") + " 2>&1");
  EXPECT_EQ(o.status, 1);
  EXPECT_THAT(o.out, HasSubstr(path("a.plan") + ": cannot write: File too large"));
  EXPECT_TRUE(files().empty());
}

// Where who looks for the model finds it, too.
TEST_F(OutputFiles, APlanMayStandInItsModelsFolder) {
  const std::string copy = copyModel(kModel);
  for (int times = 0; times < 2; ++times) // the second replaces it
    succeeds(compile(copy, copy + "/m.plan"));
  succeeds({"run", copy + "/m.plan", "--prompt-ids", "1", "--max-new-tokens", "1"});
  refused(compile(copy, copy + "/config.json"), 2, "a file of the model's folder: expected another name");
}

TEST_F(OutputFiles, LogitsAmongTheWeightsWouldBeWeights) {
  const std::string copy = copyModel(kModel);
  neverWritten({"run", copy, "--hardware", "host", "--prompt-ids", "1", "--max-new-tokens", "1", "--logits",
                copy + "/out.safetensors"},
               "in the model's folder it would be weights: expected a file in another folder");
  succeeds(compile(copy, path("p.plan")));
  neverWritten({"run", path("p.plan"), "--prompt-ids", "1", "--logits", copy + "/out.safetensors"},
               "in the model's folder it would be weights");
}

TEST_F(OutputFiles, AFullStandardOutputIsAFailure) {
  succeeds(compile(golden(kModel), path("p.plan")));
  for (const char *command : {"inspect p.plan", "inspect p.plan --json", "timeline p.plan --format json",
                              "compile opt-6.7b --hardware a10 --dry-run --json",
                              "run p.plan --device sim --prompt-ids 1 --json", "--help", "compile --help", "--version"})
    EXPECT_EQ(shell("cd " + folder + " && $HEADRACE " + command + " > /dev/full").status, 1) << command;
}

} // namespace
} // namespace headrace::tools
