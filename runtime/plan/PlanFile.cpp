// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/PlanFile.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/FileIo.h"
#include "runtime/base/ReplaceFile.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Xxh64.h"
#include "runtime/plan/proof/PlanVerifier.h"
#include "runtime/plan/structure/PlanStructure.h"
#include "runtime/plan/value/PlanBytes.h"

namespace headrace::plan {
namespace {

absl::Status cannotRead(const std::string &path, int error) {
  const std::string message = absl::StrCat(path, ": cannot read: ", std::strerror(error));
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
  ~File() {
    if (fd_ >= 0)
      ::close(fd_);
  }
  int fd() const { return fd_; }

private:
  const int fd_;
};

} // namespace

std::string serialize(const Plan &plan) { return sealed(encode(plan)); }

absl::StatusOr<Plan> parse(absl::Span<const std::byte> bytes, const std::string &where) {
  RETURN_IF_ERROR(checkIsPlan(bytes, where));
  absl::StatusOr<absl::Span<const std::byte>> body = unsealed(bytes, where);
  if (!body.ok())
    return body.status();
  absl::StatusOr<Plan> plan = decode(*body, where);
  if (!plan.ok())
    return plan;
  if (const auto fault = findStructureFault(*plan))
    return absl::InvalidArgumentError(absl::StrCat(where, ": ", fault->message));
  return plan;
}

std::string planHash(const Plan &plan) {
  Plan nameless = plan;
  nameless.compilerVersion = nameless.reason = "";
  for (std::string *path : {&nameless.modelPath, &nameless.goal.record})
    *path = std::filesystem::path(*path).filename().string();
  for (Placement &placement : nameless.placements)
    placement.name = "";
  for (Schedule &schedule : nameless.schedules)
    schedule.name = "";
  const std::string bytes = serialize(nameless);
  return absl::StrFormat(
      "%016x", model::xxh64(absl::MakeConstSpan(reinterpret_cast<const std::byte *>(bytes.data()), bytes.size()), 0));
}

absl::Status writePlan(const Plan &plan, const std::string &path) {
  if (encodedBytesBound(plan) > kMaxFileBytes)
    return absl::ResourceExhaustedError(absl::StrCat(path, ": the plan may take ", encodedBytesBound(plan),
                                                     " bytes, a plan file has at most ", kMaxFileBytes,
                                                     "; use fewer buckets or placements"));
  return model::replaceFile(path, serialize(plan));
}

absl::StatusOr<Plan> readPlan(const std::string &path) {
  const File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info = {};
  if (file.fd() < 0 || ::fstat(file.fd(), &info) != 0)
    return cannotRead(path, errno);
  if (!S_ISREG(info.st_mode))
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", model::fileTypeAt(path), ": expected a regular file"));
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
      return cannotRead(path, errno);
    if (n == 0)
      break; // became shorter while it was read
    got += static_cast<size_t>(n);
  }
  absl::StatusOr<Plan> plan = parse(absl::MakeConstSpan(bytes).first(got), path);
  if (!plan.ok())
    return plan;
  RETURN_IF_ERROR(verifyPlan(*plan, path));
  return plan;
}

} // namespace headrace::plan
