// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/Signals.h"

#include <sys/prctl.h>

#include <algorithm>
#include <cassert>

namespace headrace::host {
void wakeOnTime() { (void)prctl(PR_SET_TIMERSLACK, 1); }

Signals::Signals(const std::array<Bell *, kThreads> &bells) {
  for (size_t t = 0; t < kThreads; ++t) {
    waiters_[t].bell = bells[t] != nullptr ? bells[t] : &bells_[t];
    for (std::atomic<uint64_t> &wanted : waiters_[t].wanted)
      wanted.store(kNotWaiting, std::memory_order_relaxed);
  }
}

void Signals::advance(Counter counter, uint64_t value) {
  store(counter, value);
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
      waiter.bell->rings.fetch_add(1, std::memory_order_seq_cst);
      threads::futexWake(waiter.bell->rings);
    }
  }
}

bool Signals::anyReached(absl::Span<const WantOf> wants) {
  return std::any_of(wants.begin(), wants.end(), [](const WantOf &w) {
    return w.signals->counters_[static_cast<size_t>(w.want.counter)].value.load(std::memory_order_seq_cst) >=
           w.want.threshold;
  });
}

int64_t Signals::wait(Thread self, const Want &want) {
  if (reached(want))
    return 0;
  const int64_t start = threads::monotonicNs();
  waitAny(self, {&want, 1}, threads::kNever);
  return std::max<int64_t>(threads::monotonicNs() - start, 1);
}

void Signals::waitAny(Thread self, absl::Span<const Want> wants, int64_t deadlineNs) {
  std::array<WantOf, kCounters> own;
  assert(wants.size() <= own.size());
  std::transform(wants.begin(), wants.end(), own.begin(), [this](const Want &want) { return WantOf{this, want}; });
  waitAny(self, *waiters_[static_cast<size_t>(self)].bell, {own.data(), wants.size()}, deadlineNs);
}

void Signals::waitAny(Thread self, Bell &bell, absl::Span<const WantOf> wants, int64_t deadlineNs, bool spins) {
  if (!spins) {
    sleep(self, bell, wants, deadlineNs, 0);
    return;
  }
  const int64_t now = threads::monotonicNs();
  if (deadlineNs != threads::kNever && deadlineNs - now <= kLongSpinNs)
    spin(wants, now, deadlineNs);
  else if (deadlineNs != threads::kNever ||
           !spin(wants, now, now + threads::kSpinNs)) // what has no deadline often comes soon
    sleep(self, bell, wants, deadlineNs, kLongSpinNs);
}

// True once one of `wants` is reached, false at endNs. The clock is read every 16 looks.
bool Signals::spin(absl::Span<const WantOf> wants, int64_t nowNs, int64_t endNs) {
  for (; nowNs < endNs; nowNs = threads::monotonicNs())
    for (int i = 0; i < 16; ++i) {
      if (anyReached(wants))
        return true;
      threads::pauseSpinning();
    }
  return anyReached(wants);
}

// Once woken, it spins for up to spinNs: perhaps what it waits for was announced.
void Signals::sleep(Thread self, Bell &bell, absl::Span<const WantOf> wants, int64_t deadlineNs, int64_t spinNs) {
  for (;;) {
    const uint32_t rings = bell.rings.load(std::memory_order_seq_cst);
    for (const WantOf &w : wants)
      w.signals->want(self, w.want.counter, w.want.threshold);
    if (!anyReached(wants))
      threads::futexWait(bell.rings, rings, deadlineNs);
    for (const WantOf &w : wants)
      w.signals->want(self, w.want.counter, kNotWaiting);
    const int64_t now = threads::monotonicNs();
    if (now >= deadlineNs || spin(wants, now, std::min(deadlineNs, now + spinNs)))
      return;
  }
}

} // namespace headrace::host
