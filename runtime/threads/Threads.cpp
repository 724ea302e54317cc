// SPDX-License-Identifier: Apache-2.0
#include "runtime/threads/Threads.h"

#include <pthread.h>
#include <sched.h>

#include <cstring>

#include "absl/strings/str_cat.h"

namespace headrace::threads {

absl::Status noThread(std::string_view which, const std::error_code &why) {
  return absl::ResourceExhaustedError(absl::StrCat("no thread for the ", std::string(which), ": ", why.message(),
                                                   " (expected room for one more: ulimit -u, the cgroup's pids.max)"));
}

absl::Status pinThread(std::thread &thread, int core, std::string_view which) {
  if (core < 0)
    return absl::OkStatus();
  cpu_set_t set;
  CPU_ZERO(&set);
  if (core < CPU_SETSIZE)
    CPU_SET(core, &set);
  if (const int error = pthread_setaffinity_np(thread.native_handle(), sizeof(set), &set); error != 0)
    return absl::InvalidArgumentError(
        absl::StrCat("pinning the ", std::string(which), " to core ", core, ": ", std::strerror(error)));
  return absl::OkStatus();
}

} // namespace headrace::threads
