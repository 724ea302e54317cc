// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/ReplaceFile.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "runtime/base/Text.h"

namespace headrace::model {
namespace {

absl::Status failed(const std::string &path, int error) {
  const std::string message = cat(path, ": cannot write: ", std::strerror(error));
  if (error == ENOENT)
    return absl::NotFoundError(message);
  const bool badPath = error == EACCES || error == EISDIR || error == ENOTDIR || error == ENAMETOOLONG ||
                       error == ELOOP || error == EPERM || error == EROFS;
  return badPath ? absl::InvalidArgumentError(message) : absl::UnavailableError(message);
}

bool writeAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

// The file that is being written, for removePartFile(): its name, readable from a signal handler while `there` says so.
struct PartFile {
  char name[PATH_MAX] = {};
  std::atomic<bool> there{false};
  static_assert(std::atomic<bool>::is_always_lock_free);
};
PartFile part;

// A new file beside the target; its name is in `part`. -1 and errno where none can be made.
int openPart(const std::string &target) {
  for (int attempt = 0; attempt < 100; ++attempt) { // what a process of this number left before is not ours to remove
    const std::string name = cat(target, ".part-", ::getpid(), attempt == 0 ? "" : cat("-", attempt));
    if (name.size() >= sizeof(part.name)) {
      errno = ENAMETOOLONG;
      return -1;
    }
    struct stat info = {};
    if (::lstat(name.c_str(), &info) == 0)
      continue;
    std::memcpy(part.name, name.c_str(), name.size() + 1);
    part.there = true; // first: a signal may come as soon as the file is there
    const int fd = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd >= 0)
      return fd;
    part.there = false;
    if (errno != EEXIST)
      return -1;
  }
  errno = EEXIST;
  return -1;
}

} // namespace

void removePartFile() {
  if (part.there)
    ::unlink(part.name);
}

absl::Status replaceFile(const std::string &path, std::string_view content) {
  static std::mutex oneAtATime;
  const std::lock_guard lock(oneAtATime);
  std::string target = path;
  struct stat info = {};
  if (::stat(path.c_str(), &info) == 0) {
    if (!S_ISREG(info.st_mode))
      return absl::InvalidArgumentError(cat(path, ": cannot write: not a regular file"));
    char resolved[PATH_MAX];
    if (::realpath(path.c_str(), resolved) != nullptr)
      target = resolved;
  }
  // In the target's own folder: renaming within one file system replaces the target in one step.
  const int fd = openPart(target);
  if (fd < 0)
    return failed(path, errno);
  bool ok = writeAll(fd, content) && ::fsync(fd) == 0;
  int error = errno;
  if (::close(fd) != 0 && ok) {
    ok = false;
    error = errno;
  }
  if (ok && ::rename(part.name, target.c_str()) != 0) {
    ok = false;
    error = errno;
  }
  if (!ok)
    ::unlink(part.name);
  part.there = false;
  return ok ? absl::OkStatus() : failed(path, error);
}

} // namespace headrace::model
