// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/ReplaceFile.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "runtime/model/Text.h"

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

} // namespace

absl::Status replaceFile(const std::string &path, std::string_view content) {
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
  const std::string beside = cat(target, ".part-", ::getpid());
  const int fd = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (fd < 0)
    return failed(path, errno);
  bool ok = writeAll(fd, content) && ::fsync(fd) == 0;
  int error = errno;
  if (::close(fd) != 0 && ok) {
    ok = false;
    error = errno;
  }
  if (ok && ::rename(beside.c_str(), target.c_str()) != 0) {
    ok = false;
    error = errno;
  }
  if (ok)
    return absl::OkStatus();
  ::unlink(beside.c_str());
  return failed(path, error);
}

} // namespace headrace::model
