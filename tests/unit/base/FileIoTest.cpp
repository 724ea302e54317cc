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

TEST(ReadTextFile, SaysWhereALinkToNothingLeads) {
  const TempFolder folder;
  std::filesystem::create_symlink("../../blobs/1a2b", folder.file("link"));
  EXPECT_REFUSED(readTextFile(folder.file("link")), absl::StatusCode::kNotFound,
                 folder.file("link") + ": a link to \"../../blobs/1a2b\", which is not there: expected the file itself "
                                       "(cp -rL copies what links lead to)");
  EXPECT_TRUE(isThere(folder.file("link")) && isThere(folder.path()));
  EXPECT_FALSE(isThere(folder.file("gone")));
}

TEST(InputFile, ReadsAnyPartOfAFile) {
  const TempFolder folder;
  const auto file = InputFile::open(folder.write("a", "abcdef"));
  ASSERT_TRUE(file.ok()) << messageOf(file);
  EXPECT_EQ((*file)->size(), 6u);
  std::vector<std::byte> part(3);
  (*file)->willNeed(0, 6);
  ASSERT_TRUE((*file)->read(2, absl::MakeSpan(part)).ok());
  EXPECT_EQ(part, (std::vector<std::byte>{std::byte{'c'}, std::byte{'d'}, std::byte{'e'}}));
  EXPECT_TRUE((*file)->read(6, {}).ok());
  EXPECT_EQ((*InputFile::open(folder.write("empty", "")))->size(), 0u);
}

TEST(InputFile, ReportsAFileThatBecameShorter) {
  const TempFolder folder;
  const std::string path = folder.write("a", std::string(100000, 'x'));
  const auto file = InputFile::open(path);
  ASSERT_TRUE(file.ok()) << messageOf(file);
  std::filesystem::resize_file(path, 5000);
  std::vector<std::byte> bytes(100000);
  EXPECT_REFUSED((*file)->read(0, absl::MakeSpan(bytes)), absl::StatusCode::kDataLoss,
                 path + ": ends at byte 5000: expected 100000 bytes, as it had when it was opened: it was changed "
                        "meanwhile");
}

TEST(LfsPointer, IsRefusedAsSuch) {
  EXPECT_REFUSED(refuseLfsPointer(kLfsPointer, "model/merges.txt"), absl::StatusCode::kInvalidArgument,
                 "model/merges.txt: a Git LFS pointer in place of the file: expected the file itself (git lfs pull in "
                 "its folder brings it)");
  EXPECT_TRUE(refuseLfsPointer("version https://example.com", "a").ok());
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
