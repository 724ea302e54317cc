// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/PlanFile.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/plan/PlanBytes.h"
#include "runtime/plan/PlanStructure.h"
#include "runtime/plan/PlanVerifier.h"

namespace headrace::plan {
namespace {

absl::Status failed(const std::string &path, const char *doing, int error) {
  const std::string message = absl::StrCat(path, ": cannot ", doing, ": ", std::strerror(error));
  if (error == ENOENT)
    return absl::NotFoundError(message);
  // A path that cannot be is the caller's mistake; a full or failing disk is not.
  const bool badPath = error == EACCES || error == EISDIR || error == ENOTDIR || error == ENAMETOOLONG ||
                       error == ELOOP || error == EPERM || error == EROFS;
  return badPath ? absl::InvalidArgumentError(message) : absl::UnavailableError(message);
}

// A file descriptor that is closed when it goes.
class File {
public:
  explicit File(int fd) : fd_(fd) {}
  File(const File &) = delete;
  File &operator=(const File &) = delete;
  ~File() { close(); }
  int fd() const { return fd_; }
  int close() { return fd_ < 0 ? 0 : ::close(std::exchange(fd_, -1)); }

private:
  int fd_;
};

bool writeAll(int fd, const std::string &bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

} // namespace

std::string serialize(const Plan &plan) { return encode(plan); }

absl::StatusOr<Plan> parse(absl::Span<const std::byte> bytes, const std::string &where) {
  absl::StatusOr<Plan> plan = decode(bytes, where);
  if (!plan.ok())
    return plan;
  if (const auto fault = findStructureFault(*plan))
    return absl::InvalidArgumentError(absl::StrCat(where, ": ", fault->message));
  return plan;
}

absl::Status writePlan(const Plan &plan, const std::string &path) {
  if (encodedBytesBound(plan) > kMaxFileBytes)
    return absl::ResourceExhaustedError(absl::StrCat(path, ": the plan may take ", encodedBytesBound(plan),
                                                     " bytes, a plan file has at most ", kMaxFileBytes,
                                                     "; use fewer buckets or placements"));
  // Where the target is a link, the file it leads to is replaced, not the link.
  std::string target = path;
  struct stat info = {};
  if (::stat(path.c_str(), &info) == 0) {
    if (!S_ISREG(info.st_mode))
      return absl::InvalidArgumentError(absl::StrCat(path, ": cannot write: not a regular file"));
    char resolved[PATH_MAX];
    if (::realpath(path.c_str(), resolved) != nullptr)
      target = resolved;
  }
  // In the target's own folder: renaming within one file system replaces the target in one step.
  const std::string beside = absl::StrCat(target, ".part-", ::getpid());
  File file(::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (file.fd() < 0)
    return failed(path, "write", errno);
  if (!writeAll(file.fd(), encode(plan)) || ::fsync(file.fd()) != 0 || file.close() != 0 ||
      ::rename(beside.c_str(), target.c_str()) != 0) {
    const int error = errno;
    ::unlink(beside.c_str());
    return failed(path, "write", error);
  }
  return absl::OkStatus();
}

absl::StatusOr<Plan> readPlan(const std::string &path) {
  const File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info = {};
  if (file.fd() < 0 || ::fstat(file.fd(), &info) != 0)
    return failed(path, "read", errno);
  if (!S_ISREG(info.st_mode))
    return absl::InvalidArgumentError(absl::StrCat(path, ": cannot read: not a regular file"));
  if (static_cast<uint64_t>(info.st_size) > kMaxFileBytes)
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", info.st_size, " bytes, a plan file has at most ", kMaxFileBytes));
  std::vector<std::byte> bytes(static_cast<size_t>(info.st_size));
  size_t got = 0;
  while (got < bytes.size()) {
    const ssize_t n = ::read(file.fd(), bytes.data() + got, bytes.size() - got);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return failed(path, "read", errno);
    if (n == 0)
      break; // became shorter while it was read
    got += static_cast<size_t>(n);
  }
  absl::StatusOr<Plan> plan = parse(absl::MakeConstSpan(bytes).first(got), path);
  if (!plan.ok())
    return plan;
  if (absl::Status status = verifyPlan(*plan, path); !status.ok())
    return status;
  return plan;
}

} // namespace headrace::plan
