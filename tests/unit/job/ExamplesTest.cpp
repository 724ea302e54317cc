// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/Examples.h"

#include <cstdlib>

#include "runtime/base/FileIo.h"
#include "runtime/base/Text.h"
#include "runtime/job/JobFile.h"
#include "runtime/job/ShippedExamples.h"
#include "runtime/model/ModelSpec.h"
#include "tests/support/SourceDir.h"
#include "tests/support/TestFiles.h"

namespace headrace::model {
namespace {

// Sets $HEADRACE_EXAMPLES for one test.
class ExamplesAt {
public:
  explicit ExamplesAt(const std::string &folder) { ::setenv("HEADRACE_EXAMPLES", folder.c_str(), 1); }
  ~ExamplesAt() { ::unsetenv("HEADRACE_EXAMPLES"); }
};

constexpr char kTiny[] = "family = \"llama\"\nlayers = 3\nhidden = 8\nheads = 2\nintermediate = 8\nvocab = 10\n"
                         "max_positions = 16\n";

TEST(Examples, FindsShippedFilesByBareName) {
  const auto opt = openModel("opt-6.7b");
  ASSERT_TRUE(opt.ok()) << messageOf(opt);
  EXPECT_EQ(opt->spec->name, "opt-6.7b");
  EXPECT_EQ(opt->checkpoint, nullptr);
  EXPECT_THAT(opt->path, testing::EndsWith("examples/models/opt-6.7b.toml"));
  EXPECT_TRUE(openModel("opt-6.7b.toml").ok());
  EXPECT_EQ(openHardware("a10")->name, "a10");
}

TEST(Examples, TheEnvironmentAddsAFolder) {
  const TempFolder folder;
  folder.write("models/mine.toml", kTiny);
  EXPECT_FALSE(openModel("mine").ok());
  const ExamplesAt examples(folder.path());
  EXPECT_EQ(openModel("mine")->spec->layers, 3);
  EXPECT_THAT(exampleNames("models"), testing::Contains("mine"));
  EXPECT_THAT(exampleNames("models"), testing::Contains("opt-6.7b")); // the others stay
}

// What the program carries is what lies in examples/.
TEST(Examples, AreBuiltIn) {
  std::vector<std::string> carried;
  for (const ShippedExample &shipped : shippedExamples()) {
    const std::string file = cat(shipped.kind, "/", shipped.name, ".toml");
    carried.push_back(file);
    EXPECT_EQ(readTextFile(sourceDir() + "/examples/" + file).value(), shipped.text) << file;
    EXPECT_EQ(readExample("/built-in/" + file).value(), shipped.text);
  }
  std::vector<std::string> there;
  for (const char *kind : {"hardware", "models"})
    for (const auto &entry : std::filesystem::directory_iterator(sourceDir() + "/examples/" + kind))
      there.push_back(cat(kind, "/", entry.path().filename().string()));
  EXPECT_THAT(carried, testing::UnorderedElementsAreArray(there));
  EXPECT_EQ(openModel("/built-in/models/opt-6.7b.toml")->spec->name, "opt-6.7b");
  EXPECT_EQ(openHardware("/built-in/hardware/a10.toml")->name, "a10");
  EXPECT_EQ(codeOf(openModel("/built-in/models/opt-1b.toml")), absl::StatusCode::kNotFound);
}

TEST(Examples, APathWinsOverAName) {
  const TempFolder folder;
  folder.write("opt-6.7b/shape.toml", kTiny);
  EXPECT_EQ(resolveExample(folder.path(), "opt-6.7b", "models").value(), folder.file("opt-6.7b"));
  EXPECT_EQ(openModel(folder.file("opt-6.7b/shape.toml"))->spec->name, "shape");
}

TEST(Examples, RefuseUnknownNamesListingTheShippedOnes) {
  const auto refused = openModel("opt-1b");
  EXPECT_EQ(codeOf(refused), absl::StatusCode::kNotFound);
  EXPECT_THAT(messageOf(refused),
              testing::StartsWith("\"opt-1b\": no such file or folder, nor one of the shipped models: llama-13b, "));
  EXPECT_REFUSED(openModel("./gone/opt-1b"), absl::StatusCode::kNotFound, "\"./gone/opt-1b\": no such file or folder");
  EXPECT_REFUSED(openModel("meta-llama/Llama-3.1-8B"), absl::StatusCode::kNotFound,
                 "\"meta-llama/Llama-3.1-8B\": no such file or folder; did you mean llama-3.1-8b?");
  EXPECT_REFUSED(openModel(""), absl::StatusCode::kNotFound, "\"\": no such file or folder");
  EXPECT_THAT(messageOf(openHardware("b300")), testing::HasSubstr("shipped hardware: a10, a100-40, gh200, "));
}

TEST(Examples, RefuseFilesOfAnotherKind) {
  const TempFolder folder;
  const std::string path = folder.write("model.txt", "x");
  EXPECT_REFUSED(openModel(path), absl::StatusCode::kInvalidArgument,
                 path + ": expected a Hugging Face model folder, or a shape's .toml file");
}

} // namespace
} // namespace headrace::model
