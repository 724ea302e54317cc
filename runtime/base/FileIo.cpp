// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/FileIo.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"

namespace headrace::model {
namespace fs = std::filesystem;
namespace {

struct Descriptor {
  int fd = -1;
  uint64_t size = 0;
  Descriptor() = default;
  Descriptor(const Descriptor &) = delete;
  Descriptor &operator=(const Descriptor &) = delete;
  ~Descriptor() {
    if (fd >= 0)
      ::close(fd);
  }
};

std::string_view typeName(mode_t mode) {
  return S_ISDIR(mode)    ? "a folder"
         : S_ISREG(mode)  ? "a file"
         : S_ISFIFO(mode) ? "a FIFO"
         : S_ISSOCK(mode) ? "a socket"
                          : "a device";
}

// Copies of a hub's snapshot are full of such links: its files lie in the hub's blobs.
std::string danglingText(const std::string &path) {
  std::error_code error;
  const std::string target = fs::read_symlink(path, error).string();
  return cat(": a link to \"", escaped(target),
             "\", which is not there: expected the file itself (cp -rL copies what "
             "links lead to)");
}

absl::Status openAny(const std::string &path, int flags, Descriptor &file, struct stat &status) {
  if (path.find('\0') != std::string::npos)
    return absl::InvalidArgumentError(cat(path.substr(0, path.find('\0')), ": the path contains a zero byte"));
  file.fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags);
  if (file.fd < 0) {
    const int error = errno;
    if (error == ENOENT || error == ENOTDIR)
      return absl::NotFoundError(cat(path, isThere(path) ? danglingText(path) : ": no such file"));
    return absl::InvalidArgumentError(cat(path, ": cannot be opened: ", std::strerror(error)));
  }
  if (::fstat(file.fd, &status) != 0)
    return absl::InvalidArgumentError(cat(path, ": cannot be examined: ", std::strerror(errno)));
  return absl::OkStatus();
}

absl::Status openRegular(const std::string &path, Descriptor &file) {
  struct stat status;
  // O_NONBLOCK: opening a FIFO that nobody writes to must not hang; it is refused below.
  RETURN_IF_ERROR(openAny(path, O_NONBLOCK, file, status));
  if (!S_ISREG(status.st_mode))
    return absl::InvalidArgumentError(cat(path, ": ", typeName(status.st_mode), ": expected a regular file"));
  file.size = static_cast<uint64_t>(status.st_size);
  return absl::OkStatus();
}

absl::StatusOr<std::string> readToEnd(int fd, const std::string &path, uint64_t maxBytes) {
  std::string text;
  char buffer[1 << 14];
  for (;;) {
    const ssize_t got = ::read(fd, buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      return absl::InvalidArgumentError(cat(path, ": cannot be read: ", std::strerror(errno)));
    if (got == 0)
      return text;
    text.append(buffer, static_cast<size_t>(got));
    if (text.size() > maxBytes)
      return absl::InvalidArgumentError(cat(path, ": expected at most ", maxBytes, " bytes"));
  }
}

} // namespace

absl::StatusOr<std::string> readTextFile(const std::string &path, uint64_t maxBytes) {
  Descriptor file;
  RETURN_IF_ERROR(openRegular(path, file));
  if (file.size > maxBytes)
    return absl::InvalidArgumentError(cat(path, ": expected at most ", maxBytes, " bytes, it has ", file.size));
  return readToEnd(file.fd, path, maxBytes);
}

absl::StatusOr<std::string> readInput(const std::string &path, uint64_t maxBytes) {
  if (path == "-" || path == "/dev/stdin") // which cannot be opened where it is a socket
    return readToEnd(STDIN_FILENO, path == "-" ? "standard input" : path, maxBytes);
  Descriptor file;
  struct stat status;
  RETURN_IF_ERROR(openAny(path, 0, file, status));
  if (S_ISDIR(status.st_mode))
    return absl::InvalidArgumentError(cat(path, ": a folder: expected a file"));
  return readToEnd(file.fd, path, maxBytes);
}

InputFile::InputFile(std::string path, int descriptor, uint64_t size)
    : path_(std::move(path)), descriptor_(descriptor), size_(size) {}

InputFile::~InputFile() { ::close(descriptor_); }

absl::StatusOr<std::unique_ptr<InputFile>> InputFile::open(const std::string &path) {
  Descriptor file;
  RETURN_IF_ERROR(openRegular(path, file));
  return std::unique_ptr<InputFile>(new InputFile(path, std::exchange(file.fd, -1), file.size));
}

absl::Status InputFile::read(uint64_t offset, absl::Span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t got = ::pread(descriptor_, out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      return absl::DataLossError(cat(path_, ": cannot be read: ", std::strerror(errno)));
    if (got == 0)
      return absl::DataLossError(cat(path_, ": ends at byte ", offset, ": expected ", size_,
                                     " bytes, as it had when it was opened: it was changed meanwhile"));
    offset += static_cast<uint64_t>(got);
    out.remove_prefix(static_cast<size_t>(got));
  }
  return absl::OkStatus();
}

void InputFile::willNeed(uint64_t offset, uint64_t bytes) const {
  ::posix_fadvise(descriptor_, static_cast<off_t>(offset), static_cast<off_t>(bytes), POSIX_FADV_WILLNEED);
}

absl::Status refuseLfsPointer(std::string_view text, std::string_view where) {
  if (!text.starts_with("version https://git-lfs"))
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      cat(where,
          ": a Git LFS pointer in place of the file: expected the file itself (git lfs pull in its folder brings it)"));
}

bool isThere(const std::string &path) {
  std::error_code error;
  const fs::file_type type =
      path.find('\0') == std::string::npos ? fs::symlink_status(path, error).type() : fs::file_type::none;
  return type != fs::file_type::not_found && type != fs::file_type::none;
}

bool isDirectory(const std::string &path) {
  std::error_code error;
  return path.find('\0') == std::string::npos && fs::is_directory(path, error);
}

std::string fileTypeAt(const std::string &path) {
  struct stat status;
  const bool there = path.find('\0') == std::string::npos && ::stat(path.c_str(), &status) == 0;
  return there ? std::string(typeName(status.st_mode)) : std::string();
}

bool isRegularFile(const std::string &path) {
  std::error_code error;
  return path.find('\0') == std::string::npos && fs::is_regular_file(path, error);
}

std::string joinPath(const std::string &folder, const std::string &name) {
  if (folder.empty() || (!name.empty() && name[0] == '/'))
    return name;
  return folder.back() == '/' ? folder + name : cat(folder, "/", name);
}

bool isTomlPath(std::string_view path) {
  constexpr std::string_view kEnd = ".toml";
  return path.size() >= kEnd.size() &&
         std::equal(kEnd.begin(), kEnd.end(), path.end() - kEnd.size(),
                    [](char end, char c) { return end == c || (c >= 'A' && c <= 'Z' && end == c - 'A' + 'a'); });
}

std::string tomlStem(const std::string &path) {
  std::string name = baseName(path);
  if (isTomlPath(name))
    name.resize(name.size() - 5);
  return name;
}

std::string folderOf(const std::string &path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : slash == 0 ? std::string("/") : path.substr(0, slash);
}

std::string baseName(const std::string &path) {
  std::string trimmed = path;
  while (trimmed.size() > 1 && trimmed.back() == '/')
    trimmed.pop_back();
  std::string last = trimmed.substr(trimmed.rfind('/') + 1); // npos + 1 is 0
  if (last == "." || last == "..") {
    std::error_code error;
    const fs::path resolved = fs::weakly_canonical(trimmed, error);
    if (!error && resolved.has_filename())
      last = resolved.filename().string();
  }
  return last;
}

} // namespace headrace::model
