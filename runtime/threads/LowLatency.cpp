// SPDX-License-Identifier: Apache-2.0
#include "runtime/threads/LowLatency.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace headrace::threads {
namespace {

constexpr char kLatencyFile[] = "/dev/cpu_dma_latency";
constexpr int kNice = -15;
constexpr uint64_t kSliceNs = 100'000; // the least that Linux grants; kernels before 6.12 ignore it

struct SchedulingAttributes { // sched_setattr(2); not in every C library
  uint32_t size = sizeof(SchedulingAttributes);
  uint32_t policy = SCHED_OTHER;
  uint64_t flags = 0;
  int32_t nice = kNice;
  uint32_t priority = 0;
  uint64_t runtime = kSliceNs, deadline = 0, period = 0;
};

} // namespace

absl::StatusOr<AwakeCores> AwakeCores::hold() {
  const int file = ::open(kLatencyFile, O_WRONLY | O_CLOEXEC);
  const int32_t microseconds = 0;
  if (file >= 0 && ::write(file, &microseconds, sizeof(microseconds)) == sizeof(microseconds))
    return AwakeCores(file);
  const int error = errno;
  if (file >= 0)
    ::close(file);
  const std::string message = absl::StrCat("low latency: ", kLatencyFile, ": ", std::strerror(error),
                                           " (expected a file that this process may write)");
  return error == ENOENT ? absl::NotFoundError(message) : absl::PermissionDeniedError(message);
}

AwakeCores::AwakeCores(AwakeCores &&other) noexcept : file_(std::exchange(other.file_, -1)) {}

AwakeCores &AwakeCores::operator=(AwakeCores &&other) noexcept {
  std::swap(file_, other.file_);
  return *this;
}

AwakeCores::~AwakeCores() {
  if (file_ >= 0)
    ::close(file_);
}

absl::Status makeThreadUrgent() {
  const SchedulingAttributes attributes;
  if (::syscall(SYS_sched_setattr, 0, &attributes, 0) == 0)
    return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("low latency: nice ", kNice, " for a thread: ", std::strerror(errno),
                                                  " (expected CAP_SYS_NICE, or a limit of RLIMIT_NICE of at least ",
                                                  20 - kNice, ")"));
}

} // namespace headrace::threads
