// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/Signals.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

namespace headrace::host {
namespace {

inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

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

void futexWake(const std::atomic<uint32_t> &word) {
  syscall(SYS_futex, reinterpret_cast<const uint32_t *>(&word), FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, nullptr, nullptr,
          0);
}

} // namespace

Signals::Signals() {
  for (Waiter &waiter : waiters_)
    for (std::atomic<uint64_t> &wanted : waiter.wanted)
      wanted.store(kNotWaiting, std::memory_order_relaxed);
}

void Signals::advance(Counter counter, uint64_t value) {
  counters_[static_cast<size_t>(counter)].value.store(value, std::memory_order_seq_cst);
  ring(counter, value);
}

void Signals::announce(Counter counter, uint64_t value) { ring(counter, value); }

void Signals::ring(Counter counter, uint64_t value) {
  const size_t c = static_cast<size_t>(counter);
  for (Waiter &waiter : waiters_) {
    uint64_t wanted = waiter.wanted[c].load(std::memory_order_seq_cst);
    // Whoever replaces the threshold rings, so that a sleeper is rung for once. If the exchange fails, the waiter has
    // woken by itself; had it asked for more since, it has looked at the counter since.
    if (wanted <= value && wanted != kNotWaiting &&
        waiter.wanted[c].compare_exchange_strong(wanted, kNotWaiting, std::memory_order_seq_cst)) {
      waiter.bell.fetch_add(1, std::memory_order_seq_cst);
      futexWake(waiter.bell);
    }
  }
}

bool Signals::anyReached(absl::Span<const Want> wants) const {
  return std::any_of(wants.begin(), wants.end(), [&](const Want &want) {
    return counters_[static_cast<size_t>(want.counter)].value.load(std::memory_order_seq_cst) >= want.threshold;
  });
}

int64_t Signals::wait(Thread self, const Want &want) {
  if (reached(want))
    return 0;
  const int64_t start = monotonicNs();
  waitAny(self, {&want, 1}, kNever);
  return std::max<int64_t>(monotonicNs() - start, 1);
}

void Signals::waitAny(Thread self, absl::Span<const Want> wants, int64_t deadlineNs) {
  const int64_t now = monotonicNs();
  if (deadlineNs != kNever && deadlineNs - now <= kLongSpinNs)
    spin(wants, now, deadlineNs);
  else if (deadlineNs != kNever || !spin(wants, now, now + kSpinNs)) // what has no deadline often comes soon
    sleep(self, wants, deadlineNs);
}

// True once one of `wants` is reached, false at endNs. The clock is read every 16 looks.
bool Signals::spin(absl::Span<const Want> wants, int64_t nowNs, int64_t endNs) const {
  for (; nowNs < endNs; nowNs = monotonicNs())
    for (int i = 0; i < 16; ++i) {
      if (anyReached(wants))
        return true;
      pause();
    }
  return anyReached(wants);
}

void Signals::sleep(Thread self, absl::Span<const Want> wants, int64_t deadlineNs) {
  Waiter &waiter = waiters_[static_cast<size_t>(self)];
  for (;;) {
    const uint32_t bell = waiter.bell.load(std::memory_order_seq_cst);
    for (const Want &want : wants)
      waiter.wanted[static_cast<size_t>(want.counter)].store(want.threshold, std::memory_order_seq_cst);
    if (!anyReached(wants))
      futexWait(waiter.bell, bell, deadlineNs);
    for (const Want &want : wants)
      waiter.wanted[static_cast<size_t>(want.counter)].store(kNotWaiting, std::memory_order_seq_cst);
    const int64_t now = monotonicNs();
    if (now >= deadlineNs || spin(wants, now, std::min(deadlineNs, now + kLongSpinNs))) // perhaps it was announced
      return;
  }
}

} // namespace headrace::host
