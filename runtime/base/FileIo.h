// SPDX-License-Identifier: Apache-2.0
//
// Reading files that somebody else wrote: whole small ones as text, large ones mapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace headrace::model {

// The content of a regular file of at most `maxBytes`. kNotFound if it is not there, kInvalidArgument if it is not a
// regular file, is larger, or cannot be read; every message begins with the path.
absl::StatusOr<std::string> readTextFile(const std::string &path, uint64_t maxBytes = uint64_t{64} << 20);

// The same of what a person names to be read once: also of a FIFO, a pipe such as /dev/stdin, a terminal, which are
// waited for, and of "-", standard input.
absl::StatusOr<std::string> readInput(const std::string &path, uint64_t maxBytes = uint64_t{64} << 20);

// A read-only mapping of a regular file. The file must not be truncated while it is mapped: the system answers a read
// behind its end with SIGBUS, as for every mapped file.
class MappedFile {
public:
  static absl::StatusOr<std::unique_ptr<MappedFile>> open(const std::string &path);
  ~MappedFile();
  MappedFile(const MappedFile &) = delete;
  MappedFile &operator=(const MappedFile &) = delete;

  absl::Span<const std::byte> bytes() const { return {data_, size_}; }
  // Asks the system to read this part ahead; a hint, without a result.
  void willNeed(absl::Span<const std::byte> part) const;
  // Says that this part will not be read again soon: its pages no longer count as this process's memory, and are the
  // system's to keep or to drop. Reading it again gives the same bytes.
  void release(absl::Span<const std::byte> part) const;

private:
  MappedFile(const std::byte *data, size_t size) : data_(data), size_(size) {}
  const std::byte *data_;
  size_t size_;
};

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
