// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/FileIo.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <sys/mman.h>
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

absl::Status openAny(const std::string &path, int flags, Descriptor &file, struct stat &status) {
  if (path.find('\0') != std::string::npos)
    return absl::InvalidArgumentError(cat(path.substr(0, path.find('\0')), ": the path contains a zero byte"));
  file.fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags);
  if (file.fd < 0) {
    const int error = errno;
    if (error == ENOENT || error == ENOTDIR)
      return absl::NotFoundError(cat(path, ": no such file"));
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

absl::StatusOr<std::unique_ptr<MappedFile>> MappedFile::open(const std::string &path) {
  Descriptor file;
  RETURN_IF_ERROR(openRegular(path, file));
  if (file.size == 0) // an empty range cannot be mapped
    return std::unique_ptr<MappedFile>(new MappedFile(nullptr, 0));
  void *data = ::mmap(nullptr, file.size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (data == MAP_FAILED)
    return absl::UnavailableError(cat(path, ": cannot be mapped: ", std::strerror(errno)));
  return std::unique_ptr<MappedFile>(new MappedFile(static_cast<const std::byte *>(data), file.size));
}

MappedFile::~MappedFile() {
  if (data_ != nullptr)
    ::munmap(const_cast<std::byte *>(data_), size_);
}

static void advise(absl::Span<const std::byte> part, int advice) {
  if (part.empty())
    return;
  const uintptr_t page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(part.data()) / page * page;
  const uintptr_t end = reinterpret_cast<uintptr_t>(part.data()) + part.size();
  ::madvise(reinterpret_cast<void *>(begin), end - begin, advice);
}

void MappedFile::willNeed(absl::Span<const std::byte> part) const { advise(part, MADV_WILLNEED); }

// Nothing is ever written to the mapping, so no page of it is lost.
void MappedFile::release(absl::Span<const std::byte> part) const { advise(part, MADV_DONTNEED); }

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
