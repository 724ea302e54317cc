// SPDX-License-Identifier: Apache-2.0
//
// Reading files that somebody else wrote: whole small ones as text, large ones piece by piece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace headrace::model {

// The content of a regular file of at most `maxBytes`. kNotFound if it is not there or a link to what is not,
// kInvalidArgument if it is not a regular file, is larger, or cannot be read; every message begins with the path.
absl::StatusOr<std::string> readTextFile(const std::string &path, uint64_t maxBytes = uint64_t{64} << 20);

// The same of what a person names to be read once: also of a FIFO, a pipe such as /dev/stdin, a terminal, which are
// waited for, and of "-", standard input.
absl::StatusOr<std::string> readInput(const std::string &path, uint64_t maxBytes = uint64_t{64} << 20);

// A regular file that is read piece by piece, from any number of threads. Nothing of it is mapped: one that becomes
// shorter meanwhile is an error of the read that finds it so, and costs no more memory than the pieces have.
class InputFile {
public:
  // Messages begin with the path, and codes are readTextFile's.
  static absl::StatusOr<std::unique_ptr<InputFile>> open(const std::string &path);
  ~InputFile();
  InputFile(const InputFile &) = delete;
  InputFile &operator=(const InputFile &) = delete;

  uint64_t size() const { return size_; } // bytes, when it was opened
  // Fills `out` with the bytes from `offset` on. kDataLoss where the file ends before that, or cannot be read.
  absl::Status read(uint64_t offset, absl::Span<std::byte> out) const;
  // Asks the system to read so many bytes ahead; a hint, without a result.
  void willNeed(uint64_t offset, uint64_t bytes) const;

private:
  InputFile(std::string path, int descriptor, uint64_t size);
  std::string path_;
  int descriptor_;
  uint64_t size_;
};

// kInvalidArgument, beginning with `where`, for what Git LFS leaves in place of a file that it has not fetched.
absl::Status refuseLfsPointer(std::string_view text, std::string_view where);

// Whether anything has this name, if only a link to nothing: what is there was meant, and is read or refused.
bool isThere(const std::string &path);
bool isDirectory(const std::string &path);
bool isRegularFile(const std::string &path);
// What is there, as messages call it: "a folder", "a file", "a FIFO", "a device", "a socket"; empty for nothing.
std::string fileTypeAt(const std::string &path);
// "a/b" from "a" and "b"; `name` itself if it is absolute or `folder` is empty.
std::string joinPath(const std::string &folder, const std::string &name);
// The folder part of a path; empty if there is none.
std::string folderOf(const std::string &path);
// Whether a path ends in .toml, in whatever case.
bool isTomlPath(std::string_view path);
// "a10" of "hardware/a10.toml".
std::string tomlStem(const std::string &path);
// The last part of a path, of "." and ".." after resolving; for names, never to open.
std::string baseName(const std::string &path);

} // namespace headrace::model
