// SPDX-License-Identifier: Apache-2.0
//
// What is read and written around a run: prompts, logits, output files, hashes; and amounts as text.
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/Kernels.h"
#include "runtime/base/ReplaceFile.h"
#include "runtime/base/Text.h"
#include "runtime/model/CheckpointFiles.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/Safetensors.h"
#include "tests/unit/tools/TestPlan.h"
#include "tools/commands/ExitCode.h"
#include "tools/commands/LogitsFile.h"
#include "tools/commands/ModelHash.h"
#include "tools/commands/ModelPath.h"
#include "tools/commands/Outputs.h"
#include "tools/commands/Progress.h"
#include "tools/commands/PromptIds.h"
#include "tools/report/BenchReport.h"
#include "tools/report/Format.h"
#include "tools/timeline/BarChart.h"
#include "tools/timeline/Timeline.h"
#include "tools/timeline/Trace.h"

namespace headrace::tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Files : public testing::Test {
protected:
  Files() {
    char name[] = "/tmp/headrace-tools-XXXXXX";
    folder = ::mkdtemp(name);
  }
  ~Files() override { std::filesystem::remove_all(folder); }
  std::string path(const std::string &name) const { return folder + "/" + name; }
  static std::string content(const std::string &path) {
    std::ostringstream out;
    out << std::ifstream(path, std::ios::binary).rdbuf();
    return out.str();
  }
  size_t fileCount() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
  }
  std::string folder;
};

TEST(Format, BytesHaveThreeDigits) {
  EXPECT_EQ(formatBytes(0), "0 B");
  EXPECT_EQ(formatBytes(1023), "1023 B");
  EXPECT_EQ(formatBytes(1024), "1.00 KiB");
  EXPECT_EQ(formatBytes(1536 * 1024), "1.50 MiB");
  EXPECT_EQ(formatBytes(uint64_t{24} << 30), "24.0 GiB");
  EXPECT_EQ(formatBytes(~uint64_t{0}), "16.0 EiB");
}

TEST(Format, TimesHaveThreeDigits) {
  EXPECT_EQ(formatNs(0), "0 ns");
  EXPECT_EQ(formatNs(850), "850 ns");
  EXPECT_EQ(formatNs(12'340), "12.3 us");
  EXPECT_EQ(formatNs(1'500'000), "1.50 ms");
  EXPECT_EQ(formatNs(123'456'789'000), "123 s");
}

TEST(Format, TablesAlignTheirColumns) {
  EXPECT_EQ(formatTable({{"a", "bytes"}, {"long", "1"}}), "a     bytes\nlong      1\n");
}

TEST(ExitCode, BadInputIsTwoAndFailureIsOne) {
  EXPECT_EQ(exitCodeOf(absl::OkStatus()), 0);
  EXPECT_EQ(exitCodeOf(absl::InvalidArgumentError("")), 2);
  EXPECT_EQ(exitCodeOf(absl::NotFoundError("")), 2);
  EXPECT_EQ(exitCodeOf(absl::OutOfRangeError("")), 2);
  EXPECT_EQ(exitCodeOf(absl::DataLossError("")), 2);
  EXPECT_EQ(exitCodeOf(absl::ResourceExhaustedError("")), 1);
  EXPECT_EQ(exitCodeOf(absl::FailedPreconditionError("")), 1);
  EXPECT_EQ(exitCodeOf(absl::InternalError("")), 1);
  EXPECT_EQ(exitCodeOf(absl::UnavailableError("")), 1);
}

TEST(PromptIds, SemicolonsPartPrompts) {
  EXPECT_THAT(*parsePromptIds("1,2,3;4, 5", "--prompt-ids"), ElementsAre(ElementsAre(1, 2, 3), ElementsAre(4, 5)));
  EXPECT_THAT(*parsePromptIds("7", "--prompt-ids"), ElementsAre(ElementsAre(7)));
}

TEST(PromptIds, LinesPartPromptsInAFile) {
  EXPECT_THAT(*parsePromptIds("1,2\n\n3;4\r\n", "f"), ElementsAre(ElementsAre(1, 2), ElementsAre(3), ElementsAre(4)));
}

TEST(PromptIds, RefusesByName) {
  const auto message = [](const char *text) {
    const absl::Status status = parsePromptIds(text, "--prompt-ids").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    return std::string(status.message());
  };
  EXPECT_EQ(message(""), "--prompt-ids: prompt 0 = \"\": expected at least one token id");
  EXPECT_EQ(message("1;;2"), "--prompt-ids: prompt 1 = \"\": expected at least one token id");
  EXPECT_EQ(message("1;2;"), "--prompt-ids: prompt 2 = \"\": expected at least one token id");
  EXPECT_EQ(message("1,x"), "--prompt-ids: prompt 0 = \"x\": expected a token id, a number from 0 to 2147483647");
  EXPECT_THAT(message("1,,2"), HasSubstr("prompt 0 = \"\""));
  EXPECT_THAT(message("1;-2"), HasSubstr("prompt 1 = \"-2\""));
  EXPECT_THAT(message("2147483648"), HasSubstr("\"2147483648\""));
  EXPECT_THAT(message("1.5"), HasSubstr("\"1.5\""));
  EXPECT_EQ(parsePromptIds("\n\n", "f").status().message(), "f: no prompts: expected token ids such as \"1,2,3;4,5\"");
}

TEST(PromptIds, StopIdsMayBeNone) {
  EXPECT_TRUE(parseIds("", "--stop-ids")->empty());
  EXPECT_THAT(*parseIds("2, 7", "--stop-ids"), ElementsAre(2, 7));
  EXPECT_EQ(parseIds("2;7", "--stop-ids").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(PromptIds, RandomPromptsAreTheSameForASeed) {
  const Prompts a = randomPrompts(3, 5, 50, 1);
  ASSERT_EQ(a.size(), 3u);
  for (const auto &prompt : a) {
    EXPECT_EQ(prompt.size(), 5u);
    for (const int32_t id : prompt)
      EXPECT_TRUE(id >= 0 && id < 50);
  }
  EXPECT_EQ(a, randomPrompts(3, 5, 50, 1));
  EXPECT_NE(a, randomPrompts(3, 5, 50, 2));
  EXPECT_NE(a[0], a[1]);
}

TEST_F(Files, LogitsAreSafetensorsThatOurReaderTakes) {
  const std::vector<std::vector<float>> logits = {{1, 2, 3, 4, 5, 6}, {7, 8, 9}};
  ASSERT_TRUE(model::replaceFile(path("l.safetensors"), logitsFile(logits, 3)).ok());
  const auto file = model::SafetensorsFile::open(path("l.safetensors"));
  ASSERT_TRUE(file.ok()) << file.status();
  const model::StoredTensor *first = (*file)->header().find("logits.0");
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->dtype, "F32");
  EXPECT_THAT(first->shape, ElementsAre(2, 3));
  float value = 0;
  const absl::Span<std::byte> bytes(reinterpret_cast<std::byte *>(&value), sizeof(value));
  EXPECT_TRUE((*file)->read(*(*file)->header().find("logits.1"), 8, bytes).ok());
  EXPECT_EQ(value, 9.0f);
}

TEST_F(Files, AFileShowsWhoseKindItIs) {
  EXPECT_EQ(kindOf(std::string("\x10\0\0\0HRPL", 8)), OutputKind::Plan);
  EXPECT_EQ(kindOf("# A comment\nformat = \"headrace performance record\"\nversion = 1\n"), OutputKind::Record);
  EXPECT_EQ(kindOf(logitsFile({{1, 2}}, 2)), OutputKind::Logits);
  const plan::Plan plan = testPlan();
  const Chart chart = makeChart(plan, 0, nullptr);
  EXPECT_EQ(kindOf(timelineSvg(chart)), OutputKind::Timeline);
  EXPECT_EQ(kindOf(timelineJson(chart)), OutputKind::Timeline);
  EXPECT_EQ(kindOf(model::cat(kTimelineTextMark, timelineText(chart, 80))), OutputKind::Timeline);
  EXPECT_EQ(kindOf(BenchReport{}.json()), OutputKind::Bench);
  EXPECT_EQ(kindOf(barChartSvg({})), OutputKind::Bench);
  EXPECT_EQ(kindOf(model::cat(kIrMark, "module {}")), OutputKind::Ir);
  for (const char *other : {"", "HRPL", "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"9\">", "{\"format\": 1}",
                            "[model]\nshape = \"opt-6.7b\"\n", "notes about data-headrace=\"timeline\""})
    EXPECT_EQ(kindOf(other), std::nullopt) << other;
}

TEST_F(Files, WritesWholeFilesOverOldOnesAndLeavesNothingBeside) {
  ASSERT_TRUE(model::replaceFile(path("a"), "one").ok());
  ASSERT_TRUE(model::replaceFile(path("a"), "two").ok());
  EXPECT_EQ(content(path("a")), "two");
  EXPECT_EQ(fileCount(), 1u);
}

TEST_F(Files, AFileThatStandsWhereThePartWouldIsLeftAlone) {
  const std::string theirs = path(model::cat("a.part-", ::getpid()));
  std::ofstream(theirs) << "theirs";
  ASSERT_TRUE(model::replaceFile(path("a"), "ours").ok());
  EXPECT_EQ(content(theirs), "theirs");
  EXPECT_EQ(content(path("a")), "ours");
  EXPECT_EQ(fileCount(), 2u);
}

// A process that writes 4 MiB over and over, ended as soon as half a file is seen beside the target.
TEST_F(Files, ASignalLeavesTheOldFileOrTheNewOneAndNothingBeside) {
  const std::string target = path("a");
  const std::string old(4 << 20, 'o'), fresh(4 << 20, 'n');
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXCPU}) {
    ASSERT_TRUE(model::replaceFile(target, old).ok());
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      removePartFilesOnSignals();
      for (;;)
        (void)model::replaceFile(target, fresh);
    }
    const std::string part = model::cat(target, ".part-", child);
    while (::access(part.c_str(), F_OK) != 0) {
    }
    ::kill(child, signal);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal) << status;
    EXPECT_EQ(fileCount(), 1u) << signal;
    const std::string now = content(target);
    EXPECT_TRUE(now == old || now == fresh) << signal;
  }
}

TEST_F(Files, ASignalThatIsIgnoredStaysIgnored) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::signal(SIGHUP, SIG_IGN); // as under nohup
    removePartFilesOnSignals();
    ::raise(SIGHUP);
    ::_exit(7);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
}

TEST_F(Files, OutputsAreRefusedByWhatIsThere) {
  const auto message = [&](const std::string &target) {
    Outputs outputs(/*overwrite=*/true);
    outputs.add("--output", target, OutputKind::Plan);
    const absl::Status status = outputs.check();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << target;
    return std::string(status.message());
  };
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  std::filesystem::create_symlink(path("nowhere"), path("link"));
  EXPECT_EQ(message(path("missing/a")),
            model::cat("command line: --output = \"", path("missing/a"),
                       "\": cannot write: No such file or directory: expected a file in a folder that is there and can "
                       "be written to"));
  EXPECT_EQ(message(folder), model::cat("command line: --output = \"", folder, "\": a folder: expected a file's name"));
  EXPECT_THAT(message(path("fifo")), HasSubstr("a FIFO: expected a file's name"));
  EXPECT_THAT(message("/dev/null"), HasSubstr("a device: expected a file's name"));
  EXPECT_THAT(message("-"), HasSubstr("standard output is for the report: expected a file's name"));
  EXPECT_THAT(message(path("link")), HasSubstr("a link to a file that is not there"));
  EXPECT_THAT(message(path(std::string(300, 'a'))), HasSubstr("File name too long"));
  EXPECT_THAT(message(path("link") + "/a"), HasSubstr("cannot write"));
}

TEST_F(Files, AModelsPathInAPlanIsRelativeToThePlan) {
  std::filesystem::create_directories(path("models/m"));
  std::filesystem::create_directories(path("plans"));
  std::filesystem::create_symlink(path("plans"), path("other"));
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(path("models"));
  EXPECT_EQ(pathInPlan("m", "m.plan"), "m");
  EXPECT_EQ(pathInPlan("./m/", "../plans/m.plan"), "../models/m");
  EXPECT_EQ(pathInPlan("m", "../other/m.plan"), "../models/m"); // from where the plan is, whatever leads there
  EXPECT_EQ(pathInPlan("/data/m", "m.plan"), "/data/m");
  EXPECT_EQ(pathInPlan("", "m.plan"), "");
  std::filesystem::current_path(folder);
  std::ofstream(path("plans/m.plan")) << "a plan";
  std::filesystem::create_symlink(path("plans/m.plan"), path("here.plan"));
  for (const char *plan : {"plans/m.plan", "other/m.plan", "here.plan"})
    EXPECT_EQ(std::filesystem::canonical(pathFromPlan("../models/m", plan)), std::filesystem::canonical("models/m"));
  EXPECT_EQ(pathFromPlan("/data/m", "plans/m.plan"), "/data/m");
  EXPECT_EQ(pathFromPlan("", "plans/m.plan"), "");
  std::filesystem::current_path(before);
}

TEST_F(Files, ModelHashFollowsTheSpecAndTheHeadersButNotTheName) {
  model::ModelSource shape{"", testPlan().model};
  const std::string hash = modelHash(shape);
  EXPECT_EQ(hash.size(), 32u);
  shape.spec->name = "another name";
  EXPECT_EQ(modelHash(shape), hash);
  shape.spec->normEps *= 2;
  EXPECT_NE(modelHash(shape), hash);

  const auto written = [&](const std::string &content) -> absl::StatusOr<std::string> {
    EXPECT_TRUE(model::replaceFile(path("model.safetensors"), content).ok());
    const auto files = model::CheckpointFiles::open(folder);
    if (!files.ok())
      return files.status();
    return modelHash({folder, testPlan().model, *files});
  };
  const std::string withFile = *written(logitsFile({{1, 2}}, 2));
  EXPECT_NE(withFile, hash);
  EXPECT_EQ(*written(logitsFile({{3, 4}}, 2)), withFile); // other values, the same header
  EXPECT_NE(*written(logitsFile({{3, 4}}, 1)), withFile);
  // What lies beside it, and nobody names, is no part of it.
  ASSERT_TRUE(model::replaceFile(path("other.safetensors"), logitsFile({{3}}, 1)).ok());
  EXPECT_EQ(*written(logitsFile({{1, 2}}, 2)), withFile);
  EXPECT_EQ(written("junk").status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(Files, WeightsOfAnotherModelAreRefusedByTheDifference) {
  plan::Plan plan = testPlan();
  ASSERT_TRUE(model::replaceFile(path("model.safetensors"), logitsFile({{1, 2}}, 2)).ok());
  model::ModelSource source{folder, plan.model, *model::CheckpointFiles::open(folder)};
  plan.modelHash = modelHash(source);
  EXPECT_TRUE(checkWeightsMatch(plan.model, plan.modelHash, source).ok());
  plan.modelHash = modelHash({"", plan.model}); // compiled from a shape: any weights of that shape do
  EXPECT_TRUE(checkWeightsMatch(plan.model, plan.modelHash, source).ok());
  EXPECT_EQ(modelHashCovers(plan), "the shape");
  plan.modelHash = "00";
  EXPECT_EQ(modelHashCovers(plan), "the config, and the tensors' names, types, shapes and places");
  EXPECT_THAT(checkWeightsMatch(plan.model, plan.modelHash, source).message(),
              HasSubstr("expected the plan's 00 of the config, and the tensors' names, types, shapes and places"));
  // Packed, it is another model; the folder is the same.
  const std::string plainHash = modelHash(source);
  model::ModelSpec packed = plan.model;
  packed.encodings[model::UnitRole::Up] = model::Encoding::groups(4, 32);
  model::ModelSource ofPacked = source;
  ofPacked.spec = packed;
  EXPECT_NE(modelHash(ofPacked), plainHash);
  EXPECT_TRUE(checkWeightsMatch(packed, modelHash(ofPacked), source).ok());
  EXPECT_FALSE(checkWeightsMatch(packed, plainHash, source).ok());
  source.spec->hidden = 32;
  EXPECT_THAT(checkWeightsMatch(*plan.model, plan.modelHash, source).message(),
              HasSubstr("hidden = 32: expected the plan's model, whose hidden is 16"));
  source.spec = plan.model;
  source.spec->rope.enabled = true;
  EXPECT_THAT(checkWeightsMatch(*plan.model, plan.modelHash, source).message(), HasSubstr("rope_theta"));
}

} // namespace
} // namespace headrace::tools
