// SPDX-License-Identifier: Apache-2.0
//
// What is read and written around a run: prompts, logits, output files, hashes; and amounts as text.
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/model/Safetensors.h"
#include "tests/unit/tools/TestPlan.h"
#include "tools/ExitCode.h"
#include "tools/Format.h"
#include "tools/LogitsFile.h"
#include "tools/ModelHash.h"
#include "tools/Progress.h"
#include "tools/PromptIds.h"
#include "tools/WriteFile.h"

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

TEST(Progress, TellsTheShareAndTheTimeLeft) {
  // A quarter after 3 s: three quarters take 9 s.
  EXPECT_EQ(progressLine("loading", Amount::Bytes, 1 << 20, 4 << 20, 3),
            "loading  [######..................]  25%  1.00 MiB of 4.00 MiB, 9 s left");
  EXPECT_EQ(progressLine("compiling", Amount::Count, 0, 8, 3), "compiling  [........................]   0%  0 of 8");
  EXPECT_EQ(progressLine("compiling", Amount::Count, 8, 8, 3), "compiling  [########################] 100%  8 of 8");
  EXPECT_THAT(progressLine("loading", Amount::Count, 1, 101, 6), HasSubstr("10 min left"));
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
  EXPECT_EQ(message(""), "--prompt-ids: prompt 0 is empty: expected at least one token id");
  EXPECT_EQ(message("1;;2"), "--prompt-ids: prompt 1 is empty: expected at least one token id");
  EXPECT_EQ(message("1;2;"), "--prompt-ids: prompt 2 is empty: expected at least one token id");
  EXPECT_EQ(message("1,x"), "--prompt-ids: prompt 0: \"x\": expected a token id, a number from 0 to 2147483647");
  EXPECT_THAT(message("1,,2"), HasSubstr("prompt 0: \"\""));
  EXPECT_THAT(message("1;-2"), HasSubstr("prompt 1: \"-2\""));
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
  ASSERT_TRUE(writeLogits(logits, 3, path("l.safetensors")).ok());
  const auto file = model::SafetensorsFile::open(path("l.safetensors"));
  ASSERT_TRUE(file.ok()) << file.status();
  const model::StoredTensor *first = (*file)->header().find("logits.0");
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->dtype, "F32");
  EXPECT_THAT(first->shape, ElementsAre(2, 3));
  float value;
  std::memcpy(&value, (*file)->data(*(*file)->header().find("logits.1")).data() + 8, 4);
  EXPECT_EQ(value, 9.0f);
}

TEST_F(Files, WritesWholeFilesOverOldOnesAndLeavesNothingBeside) {
  ASSERT_TRUE(writeFile(path("a"), "one").ok());
  ASSERT_TRUE(writeFile(path("a"), "two").ok());
  EXPECT_EQ(content(path("a")), "two");
  EXPECT_EQ(fileCount(), 1u);
}

TEST_F(Files, RefusesWhatCannotBeWrittenBeforeAndWhileWriting) {
  for (const auto &[target, reason] : {std::pair<std::string, std::string>{path("missing/a"), "No such file"},
                                       {folder, "Is a directory"},
                                       {"", "name is empty"}}) {
    EXPECT_EQ(checkWritable(target).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(checkWritable(target).message(), HasSubstr(reason));
    EXPECT_THAT(writeFile(target, "x").message(), HasSubstr(reason));
  }
  EXPECT_EQ(fileCount(), 0u);
}

TEST_F(Files, ANameThatIsTooLongIsRefusedByTheSystemsReason) {
  EXPECT_THAT(writeFile(path(std::string(300, 'a')), "x").message(), HasSubstr("File name too long"));
}

TEST_F(Files, ModelHashFollowsTheSpecAndTheHeadersButNotTheName) {
  model::ModelSource shape{"", false, testPlan().model};
  const std::string hash = *modelHash(shape);
  EXPECT_EQ(hash.size(), 32u);
  shape.spec.name = "another name";
  EXPECT_EQ(*modelHash(shape), hash);
  shape.spec.normEps *= 2;
  EXPECT_NE(*modelHash(shape), hash);

  model::ModelSource folderSource{folder, true, testPlan().model};
  ASSERT_TRUE(writeLogits({{1, 2}}, 2, path("model.safetensors")).ok());
  const std::string withFile = *modelHash(folderSource);
  EXPECT_NE(withFile, hash);
  ASSERT_TRUE(writeLogits({{3, 4}}, 2, path("model.safetensors")).ok());
  EXPECT_EQ(*modelHash(folderSource), withFile); // other values, the same header
  ASSERT_TRUE(writeLogits({{3, 4}}, 1, path("model.safetensors")).ok());
  EXPECT_NE(*modelHash(folderSource), withFile);
  ASSERT_TRUE(writeFile(path("model.safetensors"), "junk").ok());
  EXPECT_EQ(modelHash(folderSource).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(Files, WeightsOfAnotherModelAreRefusedByTheDifference) {
  plan::Plan plan = testPlan();
  model::ModelSource source{folder, true, plan.model};
  ASSERT_TRUE(writeLogits({{1, 2}}, 2, path("model.safetensors")).ok());
  plan.modelHash = *modelHash(source);
  EXPECT_TRUE(checkWeightsMatch(plan, source).ok());
  plan.modelHash = *modelHash({"", false, plan.model}); // compiled from a shape: any weights of that shape do
  EXPECT_TRUE(checkWeightsMatch(plan, source).ok());
  plan.modelHash = "00";
  EXPECT_THAT(checkWeightsMatch(plan, source).message(), HasSubstr("expected the plan's 00"));
  source.spec.hidden = 32;
  EXPECT_THAT(checkWeightsMatch(plan, source).message(),
              HasSubstr("hidden = 32: expected the plan's model, whose hidden is 16"));
  source.spec = plan.model;
  source.spec.rope.enabled = true;
  EXPECT_THAT(checkWeightsMatch(plan, source).message(), HasSubstr("rope_theta"));
}

} // namespace
} // namespace headrace::tools
