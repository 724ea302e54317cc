// SPDX-License-Identifier: Apache-2.0
#include "runtime/threads/Futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace headrace::threads {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

void futexWait(const std::atomic<uint32_t> &word, uint32_t expected, int64_t deadlineNs) {
  timespec deadline;
  if (deadlineNs != kNever) {
    deadline.tv_sec = deadlineNs / 1'000'000'000;
    deadline.tv_nsec = deadlineNs % 1'000'000'000;
  }
  syscall(SYS_futex, reinterpret_cast<const uint32_t *>(&word), FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, expected,
          deadlineNs == kNever ? nullptr : &deadline, nullptr, FUTEX_BITSET_MATCH_ANY);
}

void futexWake(const std::atomic<uint32_t> &word, int threads) {
  syscall(SYS_futex, reinterpret_cast<const uint32_t *>(&word), FUTEX_WAKE | FUTEX_PRIVATE_FLAG, threads, nullptr,
          nullptr, 0);
}

} // namespace headrace::threads
