// SPDX-License-Identifier: Apache-2.0
#include "tools/WriteFile.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/model/FileIo.h"
#include "runtime/model/Text.h"

namespace headrace::tools {
namespace {

absl::Status refuse(const std::string &path, const char *what, int error) {
  const std::string message = model::cat(path, ": cannot ", what, ": ", std::strerror(error));
  return error == ENOSPC || error == EIO || error == EDQUOT ? absl::UnavailableError(message)
                                                            : absl::InvalidArgumentError(message);
}

} // namespace

absl::Status checkWritable(const std::string &path) {
  if (path.empty())
    return absl::InvalidArgumentError("an output file's name is empty");
  if (model::isDirectory(path))
    return refuse(path, "write", EISDIR);
  const std::string folder = model::folderOf(path);
  if (::access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) != 0)
    return refuse(path, "write", errno);
  return absl::OkStatus();
}

absl::Status writeFile(const std::string &path, std::string_view content) {
  if (absl::Status status = checkWritable(path); !status.ok())
    return status;
  const std::string beside = model::cat(path, ".tmp-", static_cast<int64_t>(::getpid()));
  const int fd = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0)
    return refuse(path, "write", errno);
  const auto abandon = [&](int error) {
    ::close(fd);
    ::unlink(beside.c_str());
    return refuse(path, "write", error);
  };
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), content.size());
    if (written < 0 && errno != EINTR)
      return abandon(errno);
    content.remove_prefix(written < 0 ? 0 : static_cast<size_t>(written));
  }
  if (::fsync(fd) != 0 && errno != EINVAL && errno != EROFS)
    return abandon(errno);
  if (::close(fd) != 0) {
    ::unlink(beside.c_str());
    return refuse(path, "write", errno);
  }
  if (::rename(beside.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(beside.c_str());
    return refuse(path, "write", error);
  }
  return absl::OkStatus();
}

} // namespace headrace::tools
