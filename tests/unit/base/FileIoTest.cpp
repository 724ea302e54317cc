// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/FileIo.h"

#include <sys/stat.h>

#include "tests/support/TestFiles.h"

namespace headrace::model {
namespace {

TEST(ReadTextFile, ReadsAWholeFile) {
  const TempFolder folder;
  const std::string content(200000, 'a');
  EXPECT_EQ(readTextFile(folder.write("a", content)).value(), content);
  EXPECT_EQ(readTextFile(folder.write("empty", "")).value(), "");
}

TEST(ReadTextFile, RefusesWhatIsMissingTooLargeOrNoFile) {
  const TempFolder folder;
  EXPECT_REFUSED(readTextFile(folder.file("gone")), absl::StatusCode::kNotFound,
                 folder.file("gone") + ": no such file");
  EXPECT_REFUSED(readTextFile(folder.path()), absl::StatusCode::kInvalidArgument,
                 folder.path() + ": a folder: expected a regular file");
  const std::string large = folder.write("large", std::string(11, 'x'));
  EXPECT_REFUSED(readTextFile(large, 10), absl::StatusCode::kInvalidArgument,
                 large + ": expected at most 10 bytes, it has 11");
  EXPECT_REFUSED(readTextFile("/dev/zero"), absl::StatusCode::kInvalidArgument,
                 "/dev/zero: a device: expected a regular file");
}

TEST(ReadTextFile, DoesNotWaitForAPipeNobodyWritesTo) {
  const TempFolder folder;
  ASSERT_EQ(::mkfifo(folder.file("pipe").c_str(), 0600), 0);
  EXPECT_REFUSED(readTextFile(folder.file("pipe")), absl::StatusCode::kInvalidArgument,
                 folder.file("pipe") + ": a FIFO: expected a regular file");
}

TEST(ReadTextFile, RefusesAPathWithAZeroByte) {
  EXPECT_REFUSED(readTextFile(std::string("a\0b", 3)), absl::StatusCode::kInvalidArgument,
                 "a: the path contains a zero byte");
}

TEST(MappedFile, ShowsTheFilesBytes) {
  const TempFolder folder;
  const auto file = MappedFile::open(folder.write("a", "abc"));
  ASSERT_TRUE(file.ok()) << messageOf(file);
  ASSERT_EQ((*file)->bytes().size(), 3u);
  EXPECT_EQ((*file)->bytes()[2], std::byte{'c'});
  (*file)->willNeed((*file)->bytes().subspan(1));
  (*file)->willNeed({});
}

TEST(MappedFile, MapsAnEmptyFileAsNothing) {
  const TempFolder folder;
  const auto file = MappedFile::open(folder.write("a", ""));
  ASSERT_TRUE(file.ok()) << messageOf(file);
  EXPECT_TRUE((*file)->bytes().empty());
}

TEST(Paths, JoinAndSplit) {
  EXPECT_EQ(joinPath("a", "b"), "a/b");
  EXPECT_EQ(joinPath("a/", "b"), "a/b");
  EXPECT_EQ(joinPath("", "b"), "b");
  EXPECT_EQ(joinPath("a", "/b"), "/b");
  EXPECT_EQ(folderOf("a/b"), "a");
  EXPECT_EQ(folderOf("b"), "");
  EXPECT_EQ(folderOf("/b"), "/");
  EXPECT_EQ(baseName("a/b"), "b");
  EXPECT_EQ(baseName("a/b//"), "b");
  EXPECT_EQ(baseName("b"), "b");
  const TempFolder folder;
  EXPECT_EQ(baseName(folder.path() + "/."), baseName(folder.path()));
}

} // namespace
} // namespace headrace::model
