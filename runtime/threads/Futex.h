// SPDX-License-Identifier: Apache-2.0
//
// Sleeping until a word changes, and the clock of its deadlines.
#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>
#include <limits>

namespace headrace::threads {

inline constexpr int64_t kSpinNs = 10'000; // what a thread that waits spins for before it sleeps
inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// CLOCK_MONOTONIC, the clock that futexes' absolute timeouts use.
inline int64_t monotonicNs() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

// Between two looks at what other threads write.
inline void pauseSpinning() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Returns once woken, at `deadlineNs`, at once where the word is not `expected`, and now and then for nothing.
void futexWait(const std::atomic<uint32_t> &word, uint32_t expected, int64_t deadlineNs);
// Wakes up to so many threads.
void futexWake(const std::atomic<uint32_t> &word, int threads = 1);

} // namespace headrace::threads
